"""Every writer, where its file does not fit: it says so, and the old file stays; and given NaN: it writes nothing."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn
from torch.optim import Adam

from tests.disks import file_size_limit, full_disk
from tests.models import card
from vrnet.data.prepared import PreparedSplit, save_pack
from vrnet.data.protocols import Sample
from vrnet.errors import BadInput
from vrnet.files import write_json, write_rows, write_tensors
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.io import Points, write_image, write_points
from vrnet.images.transforms import Transform
from vrnet.methods.weights import save_weights
from vrnet.report.figures import save
from vrnet.training.run import Progress, save_checkpoint

NOISE = np.random.default_rng(0).standard_normal((2, 96, 96))
GRID = Grid.plain((96, 96), (1.0, 1.0))
TABLE = ["x", "y"]


def model():
    return nn.Linear(100, 100)


def checkpoint(path, network):
    save_checkpoint(path, network, Adam(network.parameters()), Progress(1, []), torch.zeros(()))


def figure(path):
    drawn = Figure()
    drawn.add_subplot().imshow(NOISE[0], cmap="viridis")
    save(drawn, path)


def sample():
    image = torch.from_numpy(NOISE[:1, None]).float().sigmoid()
    return Sample("s", image, image, (1.0, 1.0))


def split():
    return PreparedSplit("phantom", "train", (sample(),), {}, False)


def points(path, lps):
    write_points(Points(lps, TABLE, [["0", "0"]] * len(lps), [0, 1]), path, "LPS")


WRITERS = {
    **{f"x{suffix}": lambda path: write_image(Image(NOISE[0], GRID), path) for suffix in (".nii.gz", ".nii", ".mha")},
    **{f"t{suffix}": lambda path: Transform(NOISE, GRID).save(path) for suffix in (".nrrd", ".h5")},
    "m.json": lambda path: write_json({"numbers": NOISE}, path),
    "rows.csv": lambda path: write_rows([{"x": x} for x in NOISE.flat], path),
    "m.safetensors": lambda path: save_weights(model(), card(), path),
    "checkpoint.safetensors": lambda path: checkpoint(path, model()),
    "pack.npz": lambda path: save_pack({("train", "training"): split()}, path),
    "figure.png": figure,
}
"""{name of a file: what writes more than 12 kB there}"""


@contextmanager
def tmpfs(folder, old):
    """A disk of 24 kB, on which the old file is."""
    with full_disk(folder, 24) as is_full:
        if not is_full:
            pytest.skip("only the superuser can mount a full disk")
        old.write_text("old")
        yield


@contextmanager
def limit(folder, old):
    old.write_text("old")
    with file_size_limit(12):
        yield


@pytest.mark.parametrize(
    ("name", "place"),
    [*((name, limit) for name in WRITERS), *((name, tmpfs) for name in ("x.nii.gz", "t.h5", "m.json"))],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_file_that_does_not_fit_is_refused_and_the_old_one_stays(tmp_path, name, place):
    path = tmp_path / name
    WRITERS[name](tmp_path / f"fits{name}")
    (tmp_path / f"fits{name}").unlink()
    with place(tmp_path, path):
        with pytest.raises(BadInput, match="cannot write") as raised:
            WRITERS[name](path)
        assert len(str(raised.value).splitlines()) == 1
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]


def test_whatever_the_room_a_transform_is_whole_or_refused(tmp_path):
    """ITK says nothing of a full disk: it left half of a file, or none of it, as if all were well."""
    path, transform, refused = tmp_path / "t.nii.gz", Transform(NOISE, GRID), 0
    for room_kilobytes in range(4, 160, 12):
        path.unlink(missing_ok=True)
        try:
            with file_size_limit(room_kilobytes):
                transform.save(path)
        except BadInput:
            refused += 1
            assert not list(tmp_path.iterdir())
        else:
            assert np.abs(Transform.load(path).displacement - NOISE).max() < 1e-3
    assert 3 < refused < 13


@pytest.mark.parametrize(("value", "suffix"), [(np.nan, ".nii.gz"), (np.inf, ".h5"), (1e305, ".nrrd")])
def test_no_transform_is_written_that_is_not_finite(tmp_path, suffix, value):
    """The last is finite, and infinite in the steps that displacements are rounded to."""
    displacement = NOISE.copy()
    displacement[1, 3, 4] = value
    with pytest.raises(BadInput, match=r"NaN or infinite: .* is not written"):
        Transform(displacement, GRID).save(tmp_path / f"t{suffix}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_nothing_else_is_written_that_is_not_finite(tmp_path, value):
    broken = model()
    with torch.no_grad():
        broken.weight[3, 4] = value
    writers = [
        lambda: write_image(Image(np.full((8, 8), value), Grid.plain((8, 8), (1.0, 1.0))), tmp_path / "x.mha"),
        lambda: points(tmp_path / "p.csv", np.array([[0.0, value]])),
        lambda: save_weights(broken, card(), tmp_path / "m.safetensors"),
        lambda: checkpoint(tmp_path / "c.safetensors", broken),
        lambda: write_tensors({"x": torch.tensor([value])}, tmp_path / "t.safetensors", {}),
    ]
    for write in writers:
        with pytest.raises(BadInput, match="NaN or infinite"):
            write()
    assert not list(tmp_path.iterdir())


def test_weights_that_half_precision_cannot_hold_are_refused(tmp_path):
    large = model()
    with torch.no_grad():
        large.weight[0, 0] = 1e6
    with pytest.raises(BadInput, match="NaN or infinite"):
        save_weights(large, card(), tmp_path / "m.safetensors", half=True)
    save_weights(large, card(), tmp_path / "m.safetensors")
