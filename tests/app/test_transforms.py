import csv
import re

import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose

from vrnet import Affine, Grid, Image, Transform, read_image, write_image


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


@pytest.fixture
def chain(files, tmp_path):
    """Three transforms that do not commute, as files: a field, an affine map and a translation."""
    middle = sitk.AffineTransform(2)
    middle.SetMatrix((0.9, 0.2, -0.1, 1.1))
    for transform, name in ((middle, "middle.tfm"), (sitk.TranslationTransform(2, (9.0, -6.0)), "last.tfm")):
        sitk.WriteTransform(transform, str(tmp_path / name))
    return files / "true.nii.gz", tmp_path / "middle.tfm", tmp_path / "last.tfm"


def mapped_in_order(chain, point):
    """A point taken through each transform by SimpleITK, first the first."""
    field = sitk.DisplacementFieldTransform(sitk.ReadImage(str(chain[0]), sitk.sitkVectorFloat64))
    for transform in (field, *(sitk.ReadTransform(str(path)) for path in chain[1:])):
        point = transform.TransformPoint(point)
    return point


def test_points_go_through_transforms_in_the_order_given(vrnet, chain, tmp_path):
    (tmp_path / "in.csv").write_text("x,y\n-20,120\n")
    words = "--then", chain[1], "--then", chain[2], "--out", tmp_path / "out.csv"
    assert vrnet("points", chain[0], tmp_path / "in.csv", *words)[0] == 0
    row = next(csv.DictReader((tmp_path / "out.csv").open()))
    assert_allclose([float(row["x"]), float(row["y"])], mapped_in_order(chain, (-20.0, 120.0)), atol=1e-3)


def test_apply_goes_through_transforms_in_the_order_given_and_interpolates_once(vrnet, files, chain, tmp_path):
    """A ramp is what linear interpolation reproduces: each voxel shows the place that its point ends at."""
    grid = Grid.plain((400, 400), (1.0, 1.0))
    write_image(Image(np.indices(grid.shape)[0].astype(np.float32), grid), tmp_path / "ramp.nii.gz")
    words = "--then", chain[1], "--then", chain[2], "--reference", files / "fixed.nii.gz"
    assert vrnet("apply", chain[0], tmp_path / "ramp.nii.gz", *words, "--out", tmp_path / "out.nii.gz")[0] == 0
    fixed, warped = read_image(files / "fixed.nii.gz").grid, read_image(tmp_path / "out.nii.gz").array
    index = np.array([[30, 40], [34, 20], [50, 33], [45, 45]])
    expected = [mapped_in_order(chain, point) for point in fixed.points(index.astype(float)).tolist()]
    inside = [(0 < np.array(point)).all() for point in expected]
    assert sum(inside) >= 3
    assert_allclose(warped[tuple(index.T)][inside], np.array(expected)[inside][:, 0], atol=1e-2)


def test_transforms_of_other_dimensions_do_not_chain(vrnet, chain, files, tmp_path):
    sitk.WriteTransform(sitk.TranslationTransform(3), str(tmp_path / "deep.tfm"))
    (tmp_path / "in.csv").write_text("x,y\n-20,120\n")
    words = "--then", tmp_path / "deep.tfm", "--out", tmp_path / "out.csv"
    status, _, err = vrnet("points", chain[0], tmp_path / "in.csv", *words)
    assert status == 2
    assert "deep.tfm is 3D and" in err


def test_apply_says_what_is_evidently_a_segmentation(vrnet, files, tmp_path):
    for name, words, is_said in (
        ("moving_labels", (), True),
        ("moving_labels", ("--labels",), False),
        ("moving", (), False),
    ):
        words = files / f"{name}.nii.gz", "--reference", files / "fixed.nii.gz", "--out", tmp_path / "o.nii.gz", *words
        status, out, _ = vrnet("apply", files / "true.nii.gz", *words)
        assert (status, "add --labels" in out) == (0, is_said)


def test_invert_says_how_exact_it_is(vrnet, files, tmp_path):
    status, out, _ = vrnet("invert", files / "true.nii.gz", "--out", tmp_path / "back.h5")
    assert status == 0
    there, back = Transform.load(files / "true.nii.gz"), Transform.load(tmp_path / "back.h5")
    x = there.grid.points(np.argwhere(np.ones((40, 40))) + 12.0)
    error = np.linalg.norm(there.points(back.points(x)) - x, axis=1)
    assert np.median(error) < 0.1
    assert "From FIXED to MOVING and back, half of random points that move by more than 4 mm end within 0.0" in out
    assert len(out.splitlines()) == 2


def test_invert_reports_what_points_between_voxels_of_the_moving_region_meet(vrnet, tmp_path):
    """A jump that no field on this grid can undo, in one corner of a large and still background."""
    grid, u = Grid.plain((64, 64), (1.0, 1.0)), np.zeros((2, 64, 64))
    u[0, 20:26, 20:26] = 4.0
    Transform(u, grid).save(tmp_path / "jump.nii.gz")
    status, out, _ = vrnet("invert", tmp_path / "jump.nii.gz", "--out", tmp_path / "back.nii.gz")
    assert status == 0
    there, back = Transform.load(tmp_path / "jump.nii.gz"), Transform.load(tmp_path / "back.nii.gz")
    x = np.random.default_rng(1).uniform(19.5, 25.5, (4000, 2))
    p95 = np.percentile(np.linalg.norm(back.points(there.points(x)) - x, axis=1), 95)
    said = float(re.search(r"95 % within ([\d.]+) mm", out)[1])
    assert_allclose(said, p95, rtol=0.1)
    assert said > 1


def test_invert_may_take_the_grid_of_moving(vrnet, files, tmp_path):
    small = Grid((20, 24), (5.0, 5.0), (0.0, 90.0), (1.0, 0.0, 0.0, 1.0))
    write_image(Image(np.zeros(small.shape, np.float32), small), tmp_path / "small.nii.gz")
    words = "--reference", tmp_path / "small.nii.gz", "--out", tmp_path / "back.mha"
    assert vrnet("invert", files / "true.nii.gz", *words)[0] == 0
    assert Transform.load(tmp_path / "back.mha").grid.matches(small)


@pytest.fixture
def far(files, tmp_path):
    """The true motion after an affine start: turned by 27 degrees, and half a metre away. (file, its grid, the map)"""
    true = Transform.load(files / "true.nii.gz")
    turn = np.array([[np.cos(0.47), -np.sin(0.47)], [np.sin(0.47), np.cos(0.47)]])
    affine = Affine("affine", 1.05 * turn, np.array([500.0, -90.0]), true.grid.points(np.array([[31.5, 31.5]]))[0])
    true.followed_by(affine).save(tmp_path / "far.nii.gz")
    sitk.WriteTransform(affine.to_sitk(), str(tmp_path / "affine.tfm"))
    return tmp_path / "far.nii.gz", true.grid, affine


def errors_said(out):
    """The millimetres that `vrnet invert` prints: of half of the points, of 95 % and of all."""
    return [float(re.search(words, out)[1]) for words in (r"end within ([\d.]+) mm", r"95 % within ([\d.]+) mm",
                                                          r"farthest ([\d.]+) mm")]  # fmt: skip


def test_after_an_affine_start_the_inverse_needs_no_reference(vrnet, far, tmp_path):
    path, grid, _ = far
    status, out, _ = vrnet("invert", path, "--out", tmp_path / "back.nii.gz")
    assert status == 0
    assert errors_said(out)[0] < 0.1
    assert errors_said(out)[1] < 1
    there, back = (
        sitk.DisplacementFieldTransform(sitk.ReadImage(str(file), sitk.sitkVectorFloat64))
        for file in (path, tmp_path / "back.nii.gz")
    )
    x = grid.voxels()
    returned = [back.TransformPoint(there.TransformPoint(point)) for point in x.tolist()]
    assert np.percentile(np.linalg.norm(returned - x, axis=1), 95) < 1


def test_points_that_lead_out_of_moving_are_not_counted_and_said(vrnet, far, tmp_path):
    path, grid, affine = far
    moving = affine.image_of(grid)
    half = Grid((32, 64), moving.spacing, moving.origin, moving.direction)
    write_image(Image(np.zeros(half.shape, np.float32), half), tmp_path / "half.mha")
    words = "--reference", tmp_path / "half.mha", "--out", tmp_path / "back.nii.gz"
    status, out, _ = vrnet("invert", path, *words)
    assert status == 0
    assert errors_said(out)[1] < 1
    said = int(re.search(r"(\d+) % of these points are not counted", out)[1])
    assert 40 < said < 60


def test_a_reference_that_the_transform_does_not_lead_to_is_refused(vrnet, far, files, tmp_path):
    words = "--reference", files / "fixed.nii.gz", "--out", tmp_path / "back.nii.gz"
    status, _, err = vrnet("invert", far[0], *words)
    assert status == 2
    assert "give --reference MOVING" in err
    assert not (tmp_path / "back.nii.gz").exists()


@pytest.mark.parametrize(("name", "has_reference"), [("back.tfm", False), ("back.h5", True)])
def test_the_inverse_of_an_affine_map_is_exact_and_affine(vrnet, far, files, tmp_path, name, has_reference):
    words = ("--reference", files / "fixed.nii.gz") if has_reference else ()
    status, out, _ = vrnet("invert", tmp_path / "affine.tfm", *words, "--out", tmp_path / name)
    assert status == 0
    found = sitk.ReadTransform(str(tmp_path / name))
    assert found.IsLinear()
    theirs = sitk.ReadTransform(str(tmp_path / "affine.tfm")).GetInverse()
    for point in ((0.0, 0.0), (-70.0, 30.0), (900.0, 4.0)):
        assert_allclose(found.TransformPoint(point), theirs.TransformPoint(point), atol=1e-8)
    assert "is exact" in out


def test_the_inverse_of_an_affine_map_may_be_a_field_on_the_grid_of_moving(vrnet, far, files, tmp_path):
    status, _, err = vrnet("invert", tmp_path / "affine.tfm", "--out", tmp_path / "back.nii.gz")
    assert status == 2
    assert ".tfm" in err
    assert "--reference MOVING" in err
    words = "--reference", files / "fixed.nii.gz", "--out", tmp_path / "back.nii.gz"
    assert vrnet("invert", tmp_path / "affine.tfm", *words)[0] == 0
    back = Transform.load(tmp_path / "back.nii.gz")
    assert_allclose(back.ends(), far[2].inverse().points(back.grid.voxels()), atol=1e-3)


def test_a_composite_is_inverted_on_the_grid_of_moving(vrnet, far, files, tmp_path):
    """As ANTs writes it: an affine map and a field in one file, which has no grid of its own."""
    _, grid, affine = far
    field = Transform.load(files / "true.nii.gz")
    sitk.WriteTransform(sitk.CompositeTransform([affine.to_sitk(), field.to_sitk()]), str(tmp_path / "both.h5"))
    status, _, err = vrnet("invert", tmp_path / "both.h5", "--out", tmp_path / "back.nii.gz")
    assert status == 2
    assert "give --reference MOVING" in err
    moving = affine.image_of(grid)
    write_image(Image(np.zeros(moving.shape, np.float32), moving), tmp_path / "moving.mha")
    words = "--reference", tmp_path / "moving.mha", "--out", tmp_path / "back.nii.gz"
    status, out, _ = vrnet("invert", tmp_path / "both.h5", *words)
    assert status == 0
    assert errors_said(out)[0] < 0.1


def test_apply_to_what_lies_elsewhere_says_so(vrnet, far, files, tmp_path):
    words = files / "moving.nii.gz", "--reference", files / "fixed.nii.gz", "--out", tmp_path / "o.nii.gz"
    status, out, _ = vrnet("apply", far[0], *words)
    assert status == 0
    assert "Note: the transform leads to no place in" in out
    assert "the result is empty" in out
    assert "Note" not in vrnet("apply", files / "true.nii.gz", *words)[1]


def test_apply_says_where_nothing_of_a_label_map_is_seen(vrnet, files, tmp_path):
    """The grids meet, and the labels lie in a part of theirs that fixed does not show."""
    labels = read_image(files / "moving_labels.nii.gz")
    wide = Grid((200, 64), labels.grid.spacing, labels.grid.origin, labels.grid.direction)
    array = np.zeros(wide.shape, np.uint8)
    array[150:160, 20:30] = 1
    write_image(Image(array, wide), tmp_path / "wide.nii.gz")
    words = "--reference", files / "fixed.nii.gz", "--out", tmp_path / "o.nii.gz", "--labels"
    _, out, _ = vrnet("apply", files / "true.nii.gz", tmp_path / "wide.nii.gz", *words)
    assert "o.nii.gz is empty: what" in out


def test_points_and_a_transform_that_look_exchanged_are_told(vrnet, files, tmp_path):
    points = "IN.CSV"
    (tmp_path / points).write_text("x,y\n-20,120\n")
    status, _, err = vrnet("points", tmp_path / points, files / "true.nii.gz", "--out", tmp_path / "out.csv")
    assert status == 2
    assert f"{points} and {files / 'true.nii.gz'} look exchanged" in err
    assert not (tmp_path / "out.csv").exists()


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
    assert "1 did not move" in out
    affine = sitk.AffineTransform(2)
    affine.Translate((3.0, -4.0))
    sitk.WriteTransform(affine, str(tmp_path / "a.tfm"))
    assert vrnet("points", tmp_path / "a.tfm", tmp_path / "in.csv", "--out", tmp_path / "out.csv")[0] == 0
    assert next(csv.DictReader((tmp_path / "out.csv").open()))["x"] == "10002.000000"


def test_jacobian_is_that_of_the_points_that_itk_maps(vrnet, files, tmp_path):
    status, out, _ = vrnet("jacobian", files / "true.nii.gz", "--out", tmp_path / "det.nii.gz")
    found = read_image(tmp_path / "det.nii.gz")
    field = sitk.DisplacementFieldTransform(sitk.ReadImage(str(files / "true.nii.gz"), sitk.sitkVectorFloat64))
    steps = found.grid.to_world.T  # by a voxel along each axis
    for voxel in ((20, 30), (31, 31), (40, 25)):
        (x,) = found.grid.points(np.array([voxel], float))
        ends = [[np.array(field.TransformPoint((x + sign * h).tolist())) for sign in (1, -1)] for h in steps]
        moved = np.array([(a - b) / 2 for a, b in ends])
        assert_allclose(found.array[voxel], np.linalg.det(moved) / np.linalg.det(steps), atol=1e-4)
    assert status == 0
    assert f"{found.array.min():.3f} at least" in out
