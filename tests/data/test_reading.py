import gzip

import numpy as np
import pytest

from tests.data.conftest import write
from vrnet import BadInput
from vrnet.data.protocols import read_frames, read_labels, read_phases, read_shown

PLAIN = np.diag([1.5, 1.5, 10, 1])
RAMP = np.arange(8 * 6 * 4).reshape(8, 6, 4)


def test_phases_are_of_one_shape_and_in_one_place(tmp_path):
    write(tmp_path / "a.nii.gz", RAMP, PLAIN)
    write(tmp_path / "b.nii.gz", RAMP[:, :5], PLAIN)
    write(tmp_path / "c.nii.gz", RAMP, PLAIN + np.array([[0, 0, 0, 1000.0]] + [[0] * 4] * 3))
    with pytest.raises(BadInput, match=r"differ in shape \(8x6x4 and 8x5x4\)"):
        read_phases([tmp_path / "a.nii.gz", tmp_path / "b.nii.gz"])
    with pytest.raises(BadInput, match="do not overlap"):
        read_phases([tmp_path / "a.nii.gz", tmp_path / "c.nii.gz"])


def test_what_cannot_be_seen_is_refused(tmp_path):
    write(tmp_path / "constant.nii.gz", 0 * RAMP + 7, PLAIN)
    write(tmp_path / "nan.nii.gz", np.where(RAMP == 3, np.nan, RAMP), PLAIN, np.float32)
    write(tmp_path / "flat.nii.gz", RAMP[..., 0], PLAIN)
    for name, reason in (("constant", "is constant .7."), ("nan", "contains NaN"), ("flat", "is 2D")):
        with pytest.raises(BadInput, match=f"{name}.nii.gz {reason}"):
            read_phases([tmp_path / f"{name}.nii.gz"] * 2)


@pytest.mark.parametrize("harm", ["truncated", "garbled", "another", "empty"])
def test_damaged_files_are_refused(tmp_path, harm):
    noise = np.random.default_rng(0).integers(0, 1000, (40, 40, 10))
    path = tmp_path / "a.nii.gz"
    write(path, noise, PLAIN)
    whole = path.read_bytes()
    half = len(whole) // 2
    garbled = whole[:half] + bytes(255 - byte for byte in whole[half : half + 50]) + whole[half + 50 :]
    ways = {"truncated": whole[:half], "garbled": garbled, "another": gzip.compress(b"text" * 200), "empty": b""}
    path.write_bytes(ways[harm])
    with pytest.raises(BadInput, match="cannot read"):
        read_shown(path)


def test_frames_of_a_4d_file_are_volumes_in_time(tmp_path):
    frames = np.stack([RAMP + 100 * t for t in range(3)], -1)
    write(tmp_path / "sa.nii.gz", frames, PLAIN)
    found = read_frames(tmp_path / "sa.nii.gz")
    assert [image.array.tolist() for image in found] == [(RAMP + 100 * t).tolist() for t in range(3)]
    assert {image.grid.spacing for image in found} == {(1.5, 1.5, 10.0)}
    write(tmp_path / "sa.nii.gz", RAMP, PLAIN)
    with pytest.raises(BadInput, match="not a series"):
        read_frames(tmp_path / "sa.nii.gz")


def test_labels_are_bytes_on_the_grid_of_their_image(tmp_path):
    write(tmp_path / "image.nii.gz", RAMP, PLAIN)
    image = read_shown(tmp_path / "image.nii.gz")
    write(tmp_path / "good.nii.gz", RAMP % 4, PLAIN, np.float32)
    write(tmp_path / "shifted.nii.gz", RAMP % 4, PLAIN + np.array([[0, 0, 0, 1.0]] + [[0] * 4] * 3))
    write(tmp_path / "many.nii.gz", RAMP % 4 + 1000, PLAIN)
    write(tmp_path / "halves.nii.gz", RAMP / 2, PLAIN, np.float32)
    labels = read_labels(tmp_path / "good.nii.gz", image).array
    assert labels.dtype == np.uint8
    assert (labels == RAMP % 4).all()
    for name, reason in (("shifted", "not on the grid"), ("many", "above 255"), ("halves", "not whole")):
        with pytest.raises(BadInput, match=reason):
            read_labels(tmp_path / f"{name}.nii.gz", image)
