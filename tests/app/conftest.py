"""Files of made-up hearts for the commands to work on."""

import pytest

from tests.data.conftest import heart, write_acdc, write_splits
from tests.phantoms import phantom
from vrnet import Grid, Image, Transform, write_image

PARTS = "fixed", "moving", "fixed_labels", "moving_labels"


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A folder with a phantom's images and labels, and a transform: fixed.nii.gz and so on."""
    folder, patient = tmp_path_factory.mktemp("files"), phantom(0, (64, 64), 4.0)
    grid = Grid((64, 64), (4.0, 4.0), (-50.0, 20.0), (0.8, -0.6, 0.6, 0.8))
    for name in ("fixed", "moving", "fixed_labels", "moving_labels"):
        write_image(Image(getattr(patient, name)[0, 0].numpy(), grid), folder / f"{name}.nii.gz")
    Transform.from_voxels(patient.field[0].numpy(), grid).save(folder / "true.nii.gz")
    return folder


@pytest.fixture
def register(vrnet, files, tmp_path):
    """register("--report") gives (folder, stdout) of a run on the files."""

    def run(*words, expected=0):
        status, out, err = vrnet(
            "register", files / "fixed.nii.gz", files / "moving.nii.gz", "--out", tmp_path / "out", *words
        )
        assert status == expected, err
        return tmp_path / "out", out

    return run


@pytest.fixture(scope="session")
def acdc(tmp_path_factory):
    """A folder of ACDC with two made-up patients, one of them to test on."""
    folder = tmp_path_factory.mktemp("acdc")
    for seed, name in ((3, "patient001"), (4, "patient002")):
        write_acdc(folder, name, *heart(seed))
    write_splits(folder, test=["patient001"], train=["patient002"])
    return folder


@pytest.fixture(scope="session")
def hearts(tmp_path_factory):
    """A CSV file of 32x32 hearts: three to train on, one to validate, one to test."""
    folder, lines = tmp_path_factory.mktemp("hearts"), [",".join(("name", "split", *PARTS))]
    for seed, split in enumerate(("train", "train", "train", "val", "test")):
        patient, files = phantom(seed, (32, 32), 8.0), [f"{seed}_{part}.nii.gz" for part in PARTS]
        for part, file in zip(PARTS, files, strict=True):
            write_image(Image(getattr(patient, part)[0, 0].numpy(), Grid.plain((32, 32), (8.0, 8.0))), folder / file)
        lines.append(",".join((f"heart{seed}", split, *files)))
    (folder / "hearts.csv").write_text("\n".join(lines))
    return folder / "hearts.csv"


@pytest.fixture(scope="session")
def data(hearts):
    """The words that name the data set."""
    return "--data", "manifest", "--root", hearts, "--cache", hearts.parent / "cache"
