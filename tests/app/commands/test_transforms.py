import csv

import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose

from vrnet import Grid, Image, Transform, read_image, write_image


def test_apply_brings_moving_and_its_labels_to_fixed(register, vrnet, files, tmp_path):
    folder, _ = register("--moving-labels", files / "moving_labels.nii.gz")
    for words, name in (((), "moving"), (("--labels",), "moving_labels")):
        out = tmp_path / f"{name}.mha"
        applied = "apply", folder / "transform.nii.gz", files / f"{name}.nii.gz"
        assert vrnet(*applied, "--reference", files / "fixed.nii.gz", "--out", out, *words)[0] == 0
        expected = read_image(folder / f"{name.replace('moving', 'warped')}.nii.gz").array
        assert_allclose(read_image(out).array, expected, atol=1e-3)
        assert read_image(out).array.dtype == expected.dtype


@pytest.mark.parametrize("words", [("--labels", "--smooth"), ("--interpolation", "bspline")])
def test_apply_has_other_interpolations(vrnet, files, tmp_path, words):
    moving = files / ("moving_labels.nii.gz" if "--labels" in words else "moving.nii.gz")
    words = *words, "--reference", files / "fixed.nii.gz", "--out", tmp_path / "out.nrrd"
    assert vrnet("apply", files / "true.nii.gz", moving, *words)[0] == 0
    transform, image = Transform.load(files / "true.nii.gz"), read_image(moving)
    expected = (
        transform.apply_labels(image, smooth=True)
        if "--labels" in words
        else transform.apply(image, interpolation="bspline")
    )
    assert_allclose(read_image(tmp_path / "out.nrrd").array, expected.array, atol=1e-5)


def test_invert_says_how_exact_it_is(vrnet, files, tmp_path):
    status, out, _ = vrnet("invert", files / "true.nii.gz", "--out", tmp_path / "back.h5")
    assert status == 0
    there, back = Transform.load(files / "true.nii.gz"), Transform.load(tmp_path / "back.h5")
    x = there.grid.points(np.argwhere(np.ones((40, 40))) + 12.0)
    error = np.linalg.norm(there.points(back.points(x)) - x, axis=1)
    assert np.median(error) < 0.1
    assert "half of the points end within 0.0" in out


def test_invert_may_take_the_grid_of_moving(vrnet, files, tmp_path):
    small = Grid((20, 24), (5.0, 5.0), (0.0, 90.0), (1.0, 0.0, 0.0, 1.0))
    write_image(Image(np.zeros(small.shape, np.float32), small), tmp_path / "small.nii.gz")
    words = "--reference", tmp_path / "small.nii.gz", "--out", tmp_path / "back.mha"
    assert vrnet("invert", files / "true.nii.gz", *words)[0] == 0
    assert Transform.load(tmp_path / "back.mha").grid.matches(small)


def test_points_go_where_simpleitk_takes_them(vrnet, files, tmp_path):
    (tmp_path / "in.csv").write_text("label,x,y\napex,-20,120\nbase,30.5,140\n")
    status, out, _ = vrnet("points", files / "true.nii.gz", tmp_path / "in.csv", "--out", tmp_path / "out.csv")
    assert status == 0
    assert "2 points in LPS" in out
    transform = sitk.DisplacementFieldTransform(sitk.ReadImage(str(files / "true.nii.gz"), sitk.sitkVectorFloat64))
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    for row, point in zip(rows, [(-20.0, 120.0), (30.5, 140.0)], strict=True):
        assert_allclose([float(row["x"]), float(row["y"])], transform.TransformPoint(point), atol=1e-3)
    assert [row["label"] for row in rows] == ["apex", "base"]


def test_points_may_be_given_in_ras(vrnet, files, tmp_path):
    """RAS has x and y of the other sign than LPS, in the points that are given and in those that are written."""
    for space, sign in (("LPS", 1), ("RAS", -1)):
        (tmp_path / f"{space}.csv").write_text(f"x,y\n{-20 * sign},{120 * sign}\n")
        assert vrnet("points", files / "true.nii.gz", tmp_path / f"{space}.csv", "--out", tmp_path / f"{space}o.csv",
                     "--space", space)[0] == 0  # fmt: skip
    lps, ras = (next(csv.DictReader((tmp_path / f"{space}o.csv").open())) for space in ("LPS", "RAS"))
    assert_allclose([float(ras[axis]) for axis in "xy"], [-float(lps[axis]) for axis in "xy"])
    assert float(lps["x"]) != -20


def test_points_that_did_not_move_are_mentioned_and_affine_transforms_need_no_grid(vrnet, files, tmp_path):
    (tmp_path / "in.csv").write_text("x,y\n9999,120\n-20,120\n")
    _, out, _ = vrnet("points", files / "true.nii.gz", tmp_path / "in.csv", "--out", tmp_path / "out.csv")
    assert "1 of them did not move" in out
    affine = sitk.AffineTransform(2)
    affine.Translate((3.0, -4.0))
    sitk.WriteTransform(affine, str(tmp_path / "a.tfm"))
    assert vrnet("points", tmp_path / "a.tfm", tmp_path / "in.csv", "--out", tmp_path / "out.csv")[0] == 0
    assert next(csv.DictReader((tmp_path / "out.csv").open()))["x"] == "10002.000000"
