"""Put the runs that have folders, OUT/DATA/PROTOCOL/RUN, into rows.csv and configs.jsonl of their data sets.

    python benchmarks/collect.py [OUT, or else results]

The folder of a run holds metrics.csv, and config.json or summary.json; its training, if it has one, is in `run` there.
It may be removed then. Results of release 0.5.0 and before are converted so, too.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vrnet.files import exists, read_json, read_rows, write_bytes, write_rows
from vrnet.paper.results import CONFIGS, ROWS, RUN, SCORES
from vrnet.training.run import CONFIG, METRICS

SUMMARY = "summary.json"


def collect(out: Path) -> list[str]:
    """Put every run that has a folder, OUT/DATA/PROTOCOL/RUN, into rows.csv and configs.jsonl of its data set, in place
    of what they have of it; and the scores of α of all budgets into one file. Folders stay. The names of the runs."""
    done = []
    for folder in sorted(path for path in out.iterdir() if path.is_dir()):
        measured = {path.parent for path in folder.glob(f"*/*/{METRICS}")}
        found = sorted(measured | {path.parent.parent for path in folder.glob(f"*/*/{RUN}/{METRICS}")})
        if found:
            collect_runs(folder, found)
        if scores := sorted(folder.glob(f"*/{SCORES}")):
            kept = [{"protocol": path.parent.name} | row for path in scores for row in read_rows(path, "scores")]
            before = read_rows(folder / SCORES, "scores") if exists(folder / SCORES) else []
            names = {(row["protocol"], row["entry"]) for row in kept}
            kept += [row for row in before if (row["protocol"], row["entry"]) not in names]
            write_rows(sorted(kept, key=lambda row: (row["protocol"], row["entry"])), folder / SCORES)
        done += [path.relative_to(out).as_posix() for path in found]
    return done


def collect_times(out: Path) -> None:
    """Put the seconds per pair that release 0.5.0 kept in a file each into one file per device."""
    for folder in sorted(path for path in (out / "runtime").glob("*") if path.is_dir()):
        rows = []
        for path in sorted(folder.glob("*.json")):
            (method, shape), time = path.stem.rsplit("_", 1), read_json(path)
            kept = {"seconds": time["seconds"], "hardware": time["hardware"], **time["versions"]}
            rows.append({"method": method, "shape": shape, **kept})
        write_rows(sorted(rows, key=lambda row: (row["shape"], row["method"])), folder.with_suffix(".csv"))


def collect_runs(folder: Path, runs: Sequence[Path]) -> None:
    """Put these runs of a data set into its two files."""
    new = {(run.parent.name, run.name) for run in runs}
    rows, lines = [], []
    if exists(folder / ROWS):
        kept = read_rows(folder / ROWS, "one row per run and subject")
        rows = [row for row in kept if (row["protocol"], row["run"]) not in new]
        kept = [json.loads(line) for line in (folder / CONFIGS).read_text(encoding="utf-8").splitlines()]
        lines = [line for line in kept if (line["protocol"], line["run"]) not in new]
    for run in runs:
        line = describe_run(run)
        lines.append(line)
        training = line.get("training") or line.get("fit", {}).get("training") or {}
        about = {key: line[key] for key in ("protocol", "run", "method")}
        about |= {key: training.get(key, "") for key in ("alpha", "seed")}
        measured = read_rows(run / METRICS, "one row per subject") if exists(run / METRICS) else []
        rows += [about | row for row in measured]
    write_rows(sorted(rows, key=lambda row: (row["protocol"], row["run"])), folder / ROWS)
    lines.sort(key=lambda line: (line["protocol"], line["run"]))
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    write_bytes(text.encode(), folder / CONFIGS)


def describe_run(folder: Path) -> dict[str, Any]:
    """The line of configs.jsonl of the run in a folder: config.json, and what else is known of it."""
    config, summary, fit = (
        read_json(path) if exists(path) else {} for path in (folder / CONFIG, folder / SUMMARY, folder / RUN / CONFIG)
    )
    method = config.get("method") or summary.get("method") or fit["method"]
    line = {"protocol": folder.parent.name, "run": folder.name, "method": method} | config
    line.pop("subjects", None)  # whose rows are there
    if summary:
        line["evaluation"] = {key: value for key, value in summary.items() if key not in ("method", "metrics")}
    if fit:
        validations = read_rows(folder / RUN / METRICS, "one row per validation")
        line["fit"] = {key: value for key, value in fit.items() if key != "method"}
        line["validations"] = [{key: float(cell) for key, cell in row.items()} for row in validations]
    return line


if __name__ == "__main__":
    out = Path(*sys.argv[1:] or ["results"])
    collect_times(out)
    print("\n".join(collect(out)) or f"there are no folders of runs in {out}")
