"""Damage images and transforms, and read them: python -m tests.fuzz.image_worker FORMAT FIRST COUNT FOLDER."""

import contextlib
import signal

import numpy as np

from tests.fuzz.cases import CANARY, SECONDS_PER_CASE, run_cases, run_command
from tests.fuzz.image_seeds import SEEDS, volume
from tests.fuzz.mutations import mutate
from vrnet.errors import BadInput

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
    from vrnet.images.transforms import Transform, read_point_map

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
    given = ["--transform", path] if kind == "transforms" else ["--transform", folder / "still.tfm"]
    given += ["--moving", folder / "whole.nii" if kind == "transforms" else path]
    return run_command("apply", *given, "--reference", folder / "whole.nii", "--out", folder / "out.nii")


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


if __name__ == "__main__":
    run_cases(prepare, run_case)
