"""Damage files and read them, one after another, in a process that the test watches: python -m tests.fuzz.image_worker
FORMAT FIRST COUNT FOLDER. The number of each case is printed before it, so that a crash names it."""

import contextlib
import io
import json
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from tests.fuzz.image_seeds import SEEDS, volume
from tests.fuzz.mutations import mutate
from tests.memory import peak_bytes
from vrnet.errors import BadInput, InputWarning

CANARY = b"The canary sings: nobody may read this. "
SECONDS_PER_CASE = 10
CASES_PER_COMMAND = 25
ODD_ENDINGS = [".nii", ".NII.GZ", ".img", ".mha", ".nrrd", ".dat", ".dcm", ".png", ".h5", ".tfm", ""]


def prepare(kind, folder):
    """The whole files, the canary outside their folder, and an image and a transform that are in order."""
    import SimpleITK as sitk

    seeds, inside = folder / "seeds", folder / "inside"
    seeds.mkdir()
    inside.mkdir()
    SEEDS[kind](seeds)
    (folder / "canary.txt").write_bytes(CANARY * 200)
    sitk.WriteImage(volume(np.float32), str(folder / "whole.nii"))
    sitk.WriteTransform(sitk.TranslationTransform(3, (1, 0, 0)), str(folder / "still.tfm"))
    return sorted(seeds.iterdir())


def damage(seeds, rng, folder):
    """Damage one of the whole files; its name is the first thing to be read. Others of its name lie beside it whole."""
    chosen, inside = seeds[rng.integers(len(seeds))], folder / "inside"
    for old in inside.iterdir():
        old.unlink()
    for seed in seeds:
        if seed.stem == chosen.stem and seed != chosen:
            (inside / seed.name).write_bytes(seed.read_bytes())
    name = chosen.name if rng.random() < 0.8 else chosen.stem + ODD_ENDINGS[rng.integers(len(ODD_ENDINGS))]
    (inside / name).write_bytes(mutate(chosen.read_bytes(), rng, str(folder / "canary.txt")))
    return inside / name


def read(kind, number, path, folder):
    """Read a file as its format is used, and write what was read."""
    from vrnet.images.io import read_grid, read_image, write_image
    from vrnet.images.transform import Transform, read_point_map

    out = folder / "out.nii"
    if kind == "transforms":
        image = read_image(folder / "whole.nii")
        read_point_map(path).TransformPoint((1.0,) * read_point_map(path).GetDimension())
        write_image(Transform.load(path, image.grid).apply(image), out)
        return
    if number % 5 == 0:
        with contextlib.suppress(BadInput):
            read_grid(path)
        with contextlib.suppress(BadInput):
            signal.alarm(SECONDS_PER_CASE)
            Transform.load(path).save(folder / "field.nii")
    signal.alarm(SECONDS_PER_CASE)  # each use of the file has that long
    write_image(read_image(path.parent if kind == "dicom" and number % 2 else path), out)


def command(kind, path, folder):
    """The same by the command line: exit status, and what it said."""
    from vrnet.app import cli

    given = ["--transform", path] if kind == "transforms" else ["--transform", folder / "still.tfm"]
    given += ["--moving", folder / "whole.nii" if kind == "transforms" else path]
    sys.argv = ["vrnet", "apply", *map(str, [*given, "--reference", folder / "whole.nii", "--out", folder / "out.nii"])]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            cli.main()
        return 0, said.getvalue()
    except SystemExit as stop:
        return stop.code or 0, said.getvalue()


def run_case(kind, number, seeds, folder):
    """What is wrong with how a damaged file was treated, and whether it was read."""
    path = damage(seeds, np.random.default_rng([number, len(kind)]), folder)
    wrong, message = [], ""
    try:
        read(kind, number, path, folder)
    except BadInput as error:
        message = str(error)
        wrong += ["several lines"] if len(message.splitlines()) != 1 else []
    except Exception as error:
        wrong.append(f"{type(error).__name__}: {error}")
    was_read = not message
    if number % CASES_PER_COMMAND == 0:
        signal.alarm(SECONDS_PER_CASE)
        status, said = command(kind, path, folder)
        message += said
        wrong += [f"status {status}"] if status not in (0, 2) else []
        wrong += ["a traceback"] if "Traceback" in said else []
    outputs = [file.read_bytes() for name in ("out.nii", "field.nii") if (file := folder / name).exists()]
    for out in ("out.nii", "field.nii"):
        (folder / out).unlink(missing_ok=True)
    if any(CANARY[:20] in output for output in [*outputs, message.encode()]):
        wrong.append("the canary's content came out")
    return wrong, was_read


def main(kind, first, count, folder):
    folder = Path(folder)
    seeds, failures, read_count, slowest = prepare(kind, folder), {}, 0, (0.0, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    warnings.simplefilter("ignore", InputWarning)  # what is odd and read all the same is told, here to nobody
    for number in range(int(first), int(first) + int(count)):
        print(number, flush=True)
        began = time.monotonic()
        signal.alarm(SECONDS_PER_CASE)
        wrong, was_read = run_case(kind, number, seeds, folder)
        signal.alarm(0)
        slowest, read_count = max(slowest, (time.monotonic() - began, number)), read_count + was_read
        if wrong:
            failures[number] = wrong
    found = {"failures": failures, "read": read_count, "slowest": slowest, "peak_bytes": peak_bytes()}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
