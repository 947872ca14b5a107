"""A pair read, registered, measured and written; and what its reader is told."""

import json
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose
from scipy import ndimage
from scipy.spatial.transform import Rotation

from tests.app.outputs import read_json
from tests.models import saved
from tests.phantoms import phantom
from vrnet import BadInput, Grid, Image, InputWarning, PairResult, Transform, load_method, parse, write_image
from vrnet.app.pair_files import landmark_error, notes_on, phantom_pair, read_pair, register_files
from vrnet.cardiac.labels import shown
from vrnet.data.labels import read_label_names
from vrnet.images.grid import Affine
from vrnet.images.io import Points
from vrnet.registration.intensity import Remap
from vrnet.registration.masks import PairMasks
from vrnet.registration.pair import ImagePair
from vrnet.vocabulary import RegistrationOptions


def quiet(name):
    """A stage that shows nothing."""
    return lambda part: None


@pytest.fixture(scope="module")
def pair():
    return phantom_pair(phantom(3))


def write_pair(pair, folder):
    for image in pair.images.values():
        write_image(image, folder / image.name)


@pytest.fixture(scope="module")
def done(pair, tmp_path_factory):
    """(result, metrics, folder, stages): a phantom registered, with a report."""
    folder, stages = tmp_path_factory.mktemp("run") / "out", []

    def stage(name):
        stages.append(name)
        return lambda part: None

    result, metrics, written = register_files(stage, pair, parse("TV-L1"), folder, report=True)
    assert all(path.exists() for path in written)
    return result, metrics, folder, stages


def test_metrics_json_is_what_simpleitk_measures_on_the_files(pair, done, tmp_path):
    _, metrics, folder, _ = done
    write_pair(pair, tmp_path)
    fixed, warped = (sitk.ReadImage(str(path)) for path in (tmp_path / "fixed.nii.gz", folder / "warped.nii.gz"))
    labels = [tmp_path / "fixed_labels.nii.gz", folder / "warped_labels.nii.gz"]
    overlap = sitk.LabelOverlapMeasuresImageFilter()
    overlap.Execute(*(sitk.ReadImage(str(path)) for path in labels))
    dice = [overlap.GetDiceCoefficient(label) for label in (1, 2, 3)]
    written = read_json(folder / "metrics.json")
    assert written == json.loads(json.dumps(metrics))
    assert_allclose([written["dice"]["after"][str(label)] for label in (1, 2, 3)], dice)
    assert_allclose(written["dice"]["after"]["mean"], np.mean(dice))
    difference = np.abs(sitk.GetArrayFromImage(warped) - sitk.GetArrayFromImage(fixed)).mean()
    assert_allclose(written["similarity"]["mae_after"], difference, rtol=1e-5)
    before = np.abs(pair.moving.array - pair.fixed.array).mean()
    assert_allclose(written["similarity"]["mae_before"], before, rtol=1e-5)
    assert before > 1.5 * difference
    assert written["weights"] is None


def test_the_files_hold_the_phantom_and_the_error_of_its_known_motion(pair, done, tmp_path):
    patient, (result, metrics, *_) = phantom(3), done
    write_pair(pair, tmp_path)
    for name in ("fixed", "moving", "fixed_labels", "moving_labels"):
        image = sitk.ReadImage(str(tmp_path / f"{name}.nii.gz"))
        assert np.array_equal(sitk.GetArrayFromImage(image).T, getattr(patient, name)[0, 0])
        assert_allclose(image.GetSpacing(), patient.spacing, rtol=1e-6)
    assert pair.label_names == {3: "LV", 2: "Myo", 1: "RV"}
    heart = pair.fixed_labels.array > 0
    true = patient.field[0].numpy()[:, heart] * np.reshape(patient.spacing, (2, 1))
    lengths = (np.linalg.norm(u - true, axis=0).mean() for u in (0 * true, result.transform.displacement[:, heart]))
    found = (metrics["known_motion"][f"end_point_error_mm_{when}"] for when in ("before", "after"))
    assert_allclose(list(found), list(lengths), rtol=1e-5)


def test_the_page_says_what_was_run_and_how_well(done):
    _, metrics, folder, stages = done
    page = (folder / "report.html").read_text()
    assert "TV-L1" in page
    assert "lam 0.075" in page
    assert f"{metrics['dice']['after']['mean']:.3f}" in page
    assert stages == ["registering with TV-L1", "measuring", "writing"]


@pytest.mark.release
def test_what_is_written_and_said_names_what_the_default_came_to(pair, tmp_path):
    stages = []

    def stage(name):
        stages.append(name)
        return lambda part: None

    _, metrics, _ = register_files(stage, pair, parse("default"), tmp_path, report=True)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert (metrics["method"], metrics["weights"]) == ("short-axis", "short_axis.safetensors")
    assert stages[0] == "registering with short-axis"
    assert "averaged with acdc, train: 40 subjects, 1685 steps, at 1.8 x 1.8 mm" in page
    assert metrics["dice"]["after"]["mean"] > 0.9


@pytest.mark.release
def test_a_trained_model_is_named_with_its_weights(pair, tmp_path):
    path = saved(tmp_path)
    _, metrics, _ = register_files(quiet, pair, load_method(path), tmp_path / "out", report=True)
    assert (metrics["method"], metrics["weights"]) == ("C-L2-2x1-w2", "m.safetensors")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "m.safetensors" in page
    assert "on phantoms, at 1.8 x 1.8 mm, by vrnet 0.1.0" in page
    assert "Conv2d" not in page


@pytest.mark.release
def test_the_page_says_whether_intensities_were_matched(pair, tmp_path):
    register_files(quiet, pair, parse("TV-L1"), tmp_path, RegistrationOptions(match_intensities=True), report=True)
    assert "moving matched to the histogram of fixed" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.release
def test_what_is_written_says_that_there_were_masks_and_measures_inside_both(pair, tmp_path):
    """Before and after, by the voxels that SimpleITK finds inside."""
    dilated = [
        ndimage.binary_dilation(labels.array > 0, iterations=8) for labels in (pair.fixed_labels, pair.moving_labels)
    ]
    masks = (Image(mask, pair.fixed.grid, name) for mask, name in zip(dilated, ("inner.nii", "outer.nii"), strict=True))
    masked = ImagePair(pair.fixed, pair.moving, masks=PairMasks(*masks))
    result, metrics, _ = register_files(quiet, masked, parse("TV-L1"), tmp_path, report=True)
    outer = sitk.GetImageFromArray(dilated[1].astype(np.uint8).T)
    outer.SetSpacing(pair.moving.grid.spacing)
    moved = sitk.GetArrayFromImage(sitk.Resample(outer, result.transform.itk, sitk.sitkNearestNeighbor)).T
    inside = dilated[0] & dilated[1] & (moved > 0)
    assert 0.01 < inside.mean() < 0.5
    for when, image in (("before", pair.moving), ("after", result.warped)):
        x, y = pair.fixed.array[inside], image.array[inside]
        assert metrics["similarity"][f"mae_{when}"] == pytest.approx(np.abs(x - y).mean(), rel=1e-5)
        assert metrics["similarity"][f"ncc_{when}"] == pytest.approx(np.corrcoef(x, y)[0, 1], rel=1e-4)
    assert metrics["masks"] == {"fixed": "inner.nii", "moving": "outer.nii"}
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for words in ("fixed mask", "inner.nii", "moving mask", "outer.nii", "inside the masks"):
        assert words in page


def test_points_must_come_in_pairs(done):
    two, three = (Points(np.zeros((n, 2)), ["x", "y"], [["0", "0"]] * n, [0, 1]) for n in (2, 3))
    with pytest.raises(BadInput, match="give pairs"):
        landmark_error(done[0], two, three)


# What is read.


def test_labels_must_match_their_image(pair):
    other = phantom_pair(phantom(3, (64, 64)))
    sizes = "it has 64 x 64 voxels of .*, and that grid has 160 x 160 voxels of"
    with pytest.raises(BadInput, match=f"labels.nii.gz is not on the grid of fixed.nii.gz: {sizes} .* was drawn on"):
        ImagePair(pair.fixed, pair.moving, fixed_labels=other.fixed_labels)
    with pytest.raises(BadInput, match=r"grid of fixed\.nii\.gz: .* it lies on that of moving\.nii\.gz: give each to"):
        ImagePair(pair.fixed, other.moving, other.moving_labels, pair.fixed_labels)


def test_a_pair_is_read_with_labels_of_any_number_type_and_masks(pair, tmp_path):
    write_pair(pair, tmp_path)
    floats = Image(pair.fixed_labels.array.astype(np.float32), pair.fixed.grid, "floats.nii.gz")
    write_image(floats, tmp_path / "floats.nii.gz")
    maps = {"fixed_labels": "floats", "fixed_mask": "fixed_labels", "moving_mask": "moving_labels"}
    names = {name: maps.get(name, name) for name in ("fixed", "moving", "fixed_labels", "moving_labels", *maps)}
    read = read_pair(**{name: tmp_path / f"{file}.nii.gz" for name, file in names.items()})
    assert read.fixed_labels.array.dtype.kind == "i"
    assert np.array_equal(read.fixed_labels.array, pair.fixed_labels.array)
    assert np.array_equal(read.masks.fixed.array, pair.fixed_labels.array > 0)
    assert np.array_equal(read.masks.moving.array, pair.moving_labels.array > 0)


def test_one_image_given_twice_is_told_of(pair, tmp_path):
    write_pair(pair, tmp_path)
    write_image(replace(pair.fixed, name="copy.nii.gz"), tmp_path / "copy.nii.gz")
    with pytest.warns(InputWarning, match=r"fixed\.nii\.gz and \S*copy\.nii\.gz are the same image"):
        read_pair(tmp_path / "fixed.nii.gz", tmp_path / "copy.nii.gz")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_pair(tmp_path / "fixed.nii.gz", tmp_path / "moving.nii.gz")


@pytest.mark.parametrize(
    ("name", "given", "names", "naming"),
    [
        ("patient001_frame01_gt.nii.gz", None, ["RV", "Myo", "LV"], "as in ACDC"),
        ("patient001_frame01_gt.nii.gz", "1=right", ["right"], ""),
        ("labels.nii.gz", None, [], "by their numbers"),
    ],
)
def test_structures_are_named_as_given_or_as_the_files_of_acdc_tell(pair, name, given, names, naming):
    """And where nobody gave the names, it is said where they are from."""
    maps = {role: replace(getattr(pair, role), name=name) for role in ("fixed_labels", "moving_labels")}
    named = replace(pair, **maps, label_names={}).with_label_names(given)
    assert list(named.label_names.values()) == names
    assert naming in named.naming
    assert bool(named.naming) == bool(naming)
    other = {role: replace(labels, array=2 * labels.array) for role, labels in maps.items()}
    assert replace(pair, **other, label_names={}).with_label_names(None).label_names == {}


def with_ventricles(pair, fixed=False, moving=False):
    """The labels of a pair, with LV and RV exchanged in either map, as in files that count the LV as 1."""
    maps = {"fixed_labels": fixed, "moving_labels": moving}
    chosen = {role: getattr(pair, role) for role, is_exchanged in maps.items() if is_exchanged}
    other = {role: each.with_array(np.array([0, 3, 2, 1])[each.array]) for role, each in chosen.items()}
    return replace(pair, **other, label_names={})


@pytest.mark.parametrize("names", ["acdc", "1=rv,2=wall,3=cavity"])
def test_a_wall_that_encloses_the_rv_is_told_of(pair, names):
    exchanged = with_ventricles(pair, fixed=True, moving=True)
    advice = re.escape(shown({4 - k: name for k, name in read_label_names(names).items()}))
    said = f'encloses label 1, taken for the RV, and not 3, for the LV: if they are exchanged, give .*"{advice}"'
    with pytest.warns(InputWarning, match=f"fixed_labels.nii.gz and moving_labels.nii.gz the wall {said}"):
        exchanged.with_label_names(names)
    with pytest.warns(InputWarning, match="in moving_labels.nii.gz the wall encloses label 1, .* number both maps"):
        with_ventricles(pair, moving=True).with_label_names(names)


@pytest.mark.parametrize("names", ["hippocampus", "1=RV,3=LV", None])
def test_where_names_do_not_say_that_labels_are_hearts_nothing_is_told_of_walls(pair, names):
    exchanged = with_ventricles(pair, fixed=True, moving=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exchanged.with_label_names(names)
        pair.with_label_names("acdc")
        exchanged.with_label_names("3=RV,2=Myo,1=LV")


# What a reader is told beside the verdict.

SMALL = Grid.plain((8, 8, 8), (1.0, 1.0, 1.0))


def still(**how):
    """One image twice, of which the result is told to have been found so."""
    values = np.random.default_rng(0).random(SMALL.shape).astype(np.float32)
    fixed, moving = (Image(values, SMALL, name=name) for name in ("a.nii.gz", "b.nii.gz"))
    transform = Transform.from_voxels(np.zeros((3, *SMALL.shape), np.float32), SMALL)
    return PairResult(fixed=fixed, moving=moving, transform=transform, warped=moving, **how)


@pytest.mark.parametrize(("degrees", "is_told"), [(85, False), (120, True)])
def test_an_affine_start_that_turns_an_image_round_is_told(degrees, is_told):
    """A mirrored brain is turned by 180°, so that left comes to lie on right."""
    matrix = Rotation.from_rotvec(np.radians(degrees) * np.array([0.6, 0.8, 0])).as_matrix()
    affine = Affine("affine", matrix, np.zeros(3), SMALL.points(np.array([[3.5, 3.5, 3.5]]))[0])
    assert (f"turns b.nii.gz by {degrees}°" in " ".join(notes_on(still(affine=affine)))) is is_told


def test_whose_intensities_were_changed_is_told_by_name():
    (note,) = notes_on(still(remap=Remap(2.0, 3.0)))
    assert "the intensities of b.nii.gz as 2 times what they are, plus 3." in note
