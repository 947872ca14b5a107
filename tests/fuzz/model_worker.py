"""Damage models, checkpoints, packs and tables, and read them: python -m tests.fuzz.model_worker KIND FIRST COUNT
FOLDER."""

import shutil
import signal

import numpy as np
import torch

from tests.fuzz.cases import CANARY, SECONDS_PER_CASE, run_cases, run_command
from tests.fuzz.image_seeds import volume
from tests.fuzz.model_mutations import CHANGES
from tests.fuzz.model_seeds import SEEDS, STEPS, results_of, training
from tests.fuzz.mutations import mutate
from vrnet.data.manifest import Manifest, SubjectFolder
from vrnet.data.prepared import load_pack, prepare_split
from vrnet.errors import BadInput
from vrnet.images.io import read_points, write_points
from vrnet.methods.weights import load_method
from vrnet.training.pairs import Pairs
from vrnet.training.run import load_checkpoint

CASES_PER_COMMAND = 50
OUT = "out"


def prepare(kind, folder):
    """The whole files with what they hold, the canary outside their folder, and an image and a transform."""
    import SimpleITK as sitk

    seeds, inside = folder / "seeds", folder / "inside"
    seeds.mkdir()
    inside.mkdir()
    SEEDS[kind](seeds)
    (folder / "canary.txt").write_bytes(CANARY * 200)
    sitk.WriteImage(volume(np.float32)[:, :, 0], str(folder / "whole.nii"))
    sitk.WriteTransform(sitk.TranslationTransform(3, (1, 0, 0)), str(folder / "still.tfm"))
    ending = {"packs": ".npz", "csv": ".csv"}.get(kind, ".safetensors")
    return {path: READ[kind](path, folder) for path in sorted(seeds.iterdir()) if path.suffix == ending}


def read_weights(path, folder):
    """The card and the numbers of a model, which registers a pair if it can be read."""
    found = load_method(path)
    I = torch.rand(1, 1, 16, 16)
    with torch.inference_mode():
        assert found.build(2)(I, I, (1.8, 1.8)).shape == (1, 2, 16, 16)
    return found.card, found.model.state_dict()


def read_checkpoint(path, folder):
    model, optimizer = training(0)
    progress, total = load_checkpoint(path, model, optimizer, STEPS)
    model(torch.rand(2, 1, 6, 6)).sum().backward()
    kept = {"total": total} | {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for number, moments in optimizer.state_dict()["state"].items():
        kept |= {f"{number} {name}": tensor.clone() for name, tensor in moments.items()}
    optimizer.step()
    return (progress.step, progress.rows), kept


def read_pack(path, folder):
    """Everything in a pack, as it is trained on."""
    about, kept = [], {}
    for key, part in load_pack(path).items():
        about += [key, part.names, part.structures, part.data, part.pairs_across_subjects]
        for sample in part.samples:
            about += [sample.name, sample.spacing]
            names = ("fixed", "moving", "fixed_labels", "moving_labels", "field")
            kept |= {f"{key} {sample.name} {name}": getattr(sample, name) for name in names}
        Pairs.from_split(part).batch(torch.tensor([0]))
    return about, {name: tensor for name, tensor in kept.items() if tensor is not None}


def read_table(path, folder):
    """A table as the command that is given it reads it."""
    if path.name == "split.csv":
        SubjectFolder(path.parent, path).subjects("val")
    elif path.name == "points.csv":
        write_points(read_points(path, "RAS"), folder / OUT / "moved.csv", "LPS")
    elif path.name == "pairs.csv":
        found = Manifest.read(path)
        prepare_split(found, "train", "training", folder / OUT / "cache")
    else:
        results, entry = results_of(folder / OUT / "results")
        own = results.folder(entry)
        (own / "run").mkdir(parents=True, exist_ok=True)
        shutil.copy(path, own / ("run/metrics.csv" if path.name == "validations.csv" else "metrics.csv"))
        shutil.copy(folder / "seeds" / "config.json", own)
        results.validations(entry) if path.name == "validations.csv" else results.rows(entry)
    return None, {}


READ = {"weights": read_weights, "checkpoints": read_checkpoint, "packs": read_pack, "csv": read_table}


def command(kind, path, folder):
    """The same by the command line: exit status, and what it said."""
    out, whole = folder / OUT, folder / "whole.nii"
    if kind == "weights":
        return run_command("register", whole, whole, "--weights", path, "--out", out / "register")
    if kind == "packs":
        return run_command("evaluate", "identity", "--data", path, "--split", "val", "--out", out / "evaluate")
    if path.name == "points.csv":
        return run_command("points", folder / "still.tfm", path, "--out", out / "points.csv")
    return 0, ""


def is_same(ours, theirs):
    """Whether two readings gave the same, to the bit."""
    (about, tensors), (other_about, others) = ours, theirs
    same = tensors.keys() == others.keys() and all(torch.equal(tensors[name], others[name]) for name in tensors)
    return about == other_about and same


def damage(kind, seeds, rng, folder):
    """A file beside the others, and what it held before: half of them damaged, half changed but formally in order."""
    chosen = list(seeds)[rng.integers(len(seeds))]
    shutil.rmtree(folder / "inside")
    shutil.copytree(folder / "seeds", folder / "inside")
    (folder / OUT).mkdir(exist_ok=True)
    is_damage, canary = rng.random() < 0.5, str(folder / "canary.txt")
    change = mutate if is_damage else CHANGES[kind]
    path = folder / "inside" / chosen.name
    path.write_bytes(change(chosen.read_bytes(), rng, canary))
    return path, seeds[chosen] if is_damage and kind != "csv" else None


def run_case(kind, number, seeds, folder):
    """What is wrong with how a file was treated, and whether it was read."""
    path, before = damage(kind, seeds, np.random.default_rng([number, len(kind)]), folder)
    wrong, message = [], ""
    try:
        found = READ[kind](path, folder)
        wrong += ["damaged, and read as another thing"] if before and not is_same(found, before) else []
    except BadInput as error:
        message = str(error)
        wrong += ["several lines"] if path.name != "pairs.csv" and len(message.splitlines()) != 1 else []
    except Exception as error:
        wrong.append(f"{type(error).__name__}: {error}")
    was_read = not message
    if number % CASES_PER_COMMAND == 0:
        signal.alarm(SECONDS_PER_CASE)
        status, said = command(kind, path, folder)
        message += said
        wrong += [f"status {status}"] if status not in (0, 2) else []
        wrong += ["a traceback"] if "Traceback" in said else []
    outputs = [file.read_bytes() for file in (folder / OUT).rglob("*") if file.is_file()]
    shutil.rmtree(folder / OUT)
    if any(CANARY[:20] in output for output in [*outputs, message.encode(errors="backslashreplace")]):
        wrong.append("the canary's content came out")
    return wrong, was_read


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_cases(prepare, run_case)
