import re
import warnings
from dataclasses import replace

import numpy as np
import pytest

from vrnet import BadInput, Image, InputWarning, write_image
from vrnet.app import register as demo
from vrnet.app.pair import ImagePair, read_pair, write_pair
from vrnet.cardiac.labels import shown
from vrnet.data.labels import read_label_names
from vrnet.phantom import phantom


@pytest.fixture(scope="module")
def pair():
    return demo.phantom_pair(phantom(3))


def test_labels_must_match_their_image(pair):
    other = demo.phantom_pair(phantom(3, (64, 64)))
    sizes = "it has 64 x 64 voxels of .*, and that grid has 160 x 160 voxels of"
    with pytest.raises(BadInput, match=f"labels.nii.gz is not on the grid of fixed.nii.gz: {sizes} .* was drawn on"):
        ImagePair(pair.fixed, pair.moving, fixed_labels=other.fixed_labels)
    with pytest.raises(BadInput, match=r"grid of fixed\.nii\.gz: .* it lies on that of moving\.nii\.gz: give each to"):
        ImagePair(pair.fixed, other.moving, other.moving_labels, pair.fixed_labels)


def test_a_pair_is_read_with_labels_in_any_number_type(pair, tmp_path):
    write_pair(pair, tmp_path)
    floats = Image(pair.fixed_labels.array.astype(np.float32), pair.fixed.grid, "floats.nii.gz")
    write_image(floats, tmp_path / "floats.nii.gz")
    read = read_pair(tmp_path / "fixed.nii.gz", tmp_path / "moving.nii.gz", tmp_path / "floats.nii.gz")
    assert read.fixed_labels.array.dtype.kind == "i"
    assert np.array_equal(read.fixed_labels.array, pair.fixed_labels.array)


def test_one_image_given_twice_is_told_of(pair, tmp_path):
    write_pair(pair, tmp_path)
    write_image(replace(pair.fixed, name="copy.nii.gz"), tmp_path / "copy.nii.gz")
    with pytest.warns(InputWarning, match=r"fixed\.nii\.gz and \S*copy\.nii\.gz are the same image"):
        read_pair(tmp_path / "fixed.nii.gz", tmp_path / "copy.nii.gz")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_pair(tmp_path / "fixed.nii.gz", tmp_path / "moving.nii.gz")


def test_masks_are_read_beside_labels(pair, tmp_path):
    write_pair(pair, tmp_path)
    files = [tmp_path / f"{part}.nii.gz" for part in ("fixed", "moving")]
    masks = [tmp_path / f"{part}_labels.nii.gz" for part in ("fixed", "moving")]
    read = read_pair(*files, fixed_mask=masks[0], moving_mask=masks[1])
    assert read.fixed_labels is None
    assert np.array_equal(read.masks.fixed.array, pair.fixed_labels.array > 0)
    assert np.array_equal(read.masks.moving.array, pair.moving_labels.array > 0)


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


def test_a_file_that_is_called_as_in_acdc_but_holds_other_labels_tells_no_names(pair):
    maps = {
        role: replace(getattr(pair, role), array=2 * getattr(pair, role).array, name="patient001_frame01_gt.nii.gz")
        for role in ("fixed_labels", "moving_labels")
    }
    assert replace(pair, **maps, label_names={}).with_label_names(None).label_names == {}


def with_ventricles(pair, fixed=False, moving=False):
    """The labels of a pair, with LV and RV exchanged in either map, as in files that count the LV as 1."""
    maps = {"fixed_labels": fixed, "moving_labels": moving}
    chosen = {role: getattr(pair, role) for role, is_exchanged in maps.items() if is_exchanged}
    other = {role: each.with_array(np.array([0, 3, 2, 1])[each.array]) for role, each in chosen.items()}
    return replace(pair, **other, label_names={})


@pytest.mark.parametrize("names", ["acdc", "ukbb", "1=RV,2=Myo,3=LV", "1=rv,2=wall,3=cavity"])
def test_a_wall_that_encloses_the_rv_is_told_of(pair, names):
    exchanged = with_ventricles(pair, fixed=True, moving=True)
    advice = re.escape(shown({4 - k: name for k, name in read_label_names(names).items()}))
    said = f'encloses label 1, taken for the RV, and not 3, for the LV: if they are exchanged, give .*"{advice}"'
    with pytest.warns(InputWarning, match=f"fixed_labels.nii.gz and moving_labels.nii.gz the wall {said}"):
        exchanged.with_label_names(names)


def test_maps_that_are_numbered_differently_are_told_of(pair):
    with pytest.warns(
        InputWarning, match="in moving_labels.nii.gz the wall encloses label 1, .* number both maps alik"
    ):
        with_ventricles(pair, moving=True).with_label_names("acdc")


@pytest.mark.parametrize("names", ["hippocampus", "freesurfer", "1=RV,3=LV", "1=a,2=b,3=c", None])
def test_where_names_do_not_say_that_labels_are_hearts_nothing_is_told_of_walls(pair, names):
    exchanged = with_ventricles(pair, fixed=True, moving=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exchanged.with_label_names(names)
        pair.with_label_names("acdc")
        exchanged.with_label_names("3=RV,2=Myo,1=LV")
