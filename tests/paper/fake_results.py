"""Results as if measured: known numbers in the folder of an entry."""

from dataclasses import asdict

from vrnet.files import write_json, write_rows
from vrnet.paper.results import method_settings

STRUCTURES = "LV", "Myo", "RV"


def make_row(subject, dice, hd):
    """One subject whose structures all score alike, so that their mean is known."""
    scores = {f"{kind}_{name}": x for kind, x in (("dice", dice), ("hd", hd)) for name in (*STRUCTURES, "mean")}
    return {"subject": subject, **scores, "folding_percent": 0.5, "jacobian_gradient": 0.03, "seconds": 0.1}


def write_result(results, entry, scores, hardware="a machine", val_dice=0.5):
    """One subject for each (Dice, Hausdorff distance)."""
    folder, rows = results.folder(entry), [make_row(f"s{k}", *score) for k, score in enumerate(scores)]
    write_rows(rows, folder / "metrics.csv")
    config = {"method": entry.name, "hardware": hardware, "versions": {"vrnet": "0.1.0", "torch": "2.11"}}
    config |= {"subjects": [row["subject"] for row in rows], "settings": method_settings(entry.method, results.d)}
    if entry.training is not None:
        config |= {"training": asdict(entry.training), "validation": {"val_dice": val_dice}}
    write_json(config, folder / "config.json")
