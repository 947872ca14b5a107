import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import ndimage

from vrnet import BadInput, Grid, Image
from vrnet.data.labels import (
    KNOWN,
    check_labels_are_there,
    fill_holes,
    find_cavity,
    label_in_cavity,
    label_text,
    names_told_by_files,
    read_label_names,
    rename_structures,
)

HEART = {1: "RV", 2: "Myo", 3: "LV"}


@pytest.mark.parametrize("given", [" 3 = LV, 1=RV ,2=Myo", "ACDC", HEART, {"1": "RV", "2": "Myo", "3": "LV"}])
def test_names_are_written_out_or_known_by_the_name_of_a_data_set(as_users_run, given):
    assert read_label_names(given) == HEART


def test_a_name_may_hold_anything_but_commas():
    name = 'a=b "><img src=x onerror=alert(1)>'
    assert read_label_names(f"-7={name}") == {-7: name}


def test_known_sets_are_those_of_their_makers():
    """ACDC's and the Decathlon's by their papers; FreeSurfer's by its table of colours."""
    assert read_label_names("hippocampus") == {1: "anterior", 2: "posterior"}
    brain = read_label_names("freesurfer")
    assert (brain[17], brain[53], brain[16]) == ("Left-Hippocampus", "Right-Hippocampus", "Brain-Stem")
    assert (brain[2], brain[41], brain[255]) == (
        "Left-Cerebral-White-Matter",
        "Right-Cerebral-White-Matter",
        "CC_Anterior",
    )
    assert all(len(set(names.values())) == len(names) for names in KNOWN.values())


@pytest.mark.parametrize(
    ("given", "said"),
    [("brats", "acdc, ukbb, hippocampus, freesurfer"), ("1=RV,1=LV", "label 1 is given twice"),
     ("1=RV,2=RV", "name RV is given twice"), ("0=air", "background"), ({}, "give them as"), ("x\ny", r"x\\ny"),
     (["RV", "Myo"], "give them as 1=RV"), ({1: 2}, "give them as"), ("9" * 5000 + "=RV", "give them as")],
)  # fmt: skip
def test_what_names_nothing_is_told_in_one_line(as_users_run, given, said):
    with pytest.raises(BadInput, match=said) as error:
        read_label_names(given)
    assert "\n" not in str(error.value)


def test_masks_that_are_called_as_in_acdc_have_its_structures_and_others_none():
    files = ["patient002_frame01_gt.nii.gz", "/data/ACDC/patient002/patient002_frame12_gt.nii.gz"]
    assert names_told_by_files(files) == HEART
    assert names_told_by_files([*files, "ed_gt.nii.gz"]) == names_told_by_files([]) == {}


def test_a_label_without_a_name_is_called_a_label():
    assert [label_text(label, {"1": "RV"}) for label in (1, "1", 7, -2, "Myo")] == [
        "RV",
        "RV",
        "label 7",
        "label -2",
        "Myo",
    ]


def test_a_label_that_no_voxel_has_cannot_be_named_but_a_known_set_may_have_more():
    with pytest.raises(BadInput, match="no voxel has the label 4, which is called LA: the labels are 1, 2"):
        check_labels_are_there("1=RV,4=LA", [0, 1, 2])
    check_labels_are_there("freesurfer", [0, 17])
    check_labels_are_there({2: "Myo"}, [0, 1, 2])


def test_structures_without_names_get_them_and_those_with_names_keep_them():
    assert rename_structures({"1": 1, "2": 2}, "2=Myo") == {"1": 1, "Myo": 2}
    with pytest.raises(BadInput, match="called LV already"):
        rename_structures({"LV": 3, "2": 2}, "2=Myo")


RV, WALL, LV = 1, 2, 3


def short_axis(shape=(40, 40, 3), is_open=False):
    """A ring about the LV with the RV beside it, in every slice across the last axis."""
    x, y = np.meshgrid(np.arange(shape[0]) - 20, np.arange(shape[1]) - 20, indexing="ij")
    r = np.hypot(x, y)
    plane = np.where(r < 7, LV, np.where(r < 11, WALL, np.where(np.hypot(x - 13, y) < 6, RV, 0)))
    plane[(plane == WALL) & (y > 4) & is_open] = 0
    return np.repeat(plane[..., None], shape[2], 2) if len(shape) == 3 else plane


def image(array, order=None):
    own = Image(array.astype(np.uint8), Grid.plain(array.shape, (1.5, 1.5, 8.0)[: array.ndim]))
    return own if order is None else own.reordered(order)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_the_wall_encloses_the_lv_whatever_its_number_and_whichever_axis_slices_lie_across(order):
    labels = short_axis()
    assert label_in_cavity([image(labels, order)], WALL, (LV, RV)) == LV
    exchanged = np.array([0, 3, 2, 1])[labels]
    assert label_in_cavity([image(exchanged, order)], WALL, (LV, RV)) == RV


def test_open_walls_do_not_tell_and_are_outvoted():
    closed, arcs = short_axis(), short_axis(is_open=True)
    assert label_in_cavity([image(arcs)], WALL, (LV, RV)) is None
    assert label_in_cavity([image(0 * arcs)], WALL, (LV, RV)) is None
    assert label_in_cavity([image(short_axis((40, 40)))], WALL, (RV, LV)) == LV
    assert label_in_cavity([image(arcs), image(closed)], WALL, (LV, RV)) == LV


def test_a_pit_in_the_wall_is_no_cavity():
    """One voxel of another label within an open wall, as outlines leave behind, tells nothing."""
    arcs = short_axis(is_open=True)
    arcs[11, 20, :] = RV
    assert (arcs[10, 20] == arcs[12, 20]).all()
    assert label_in_cavity([image(arcs)], WALL, (LV, RV)) is None
    assert not find_cavity(arcs[..., 0] == WALL).any()


def test_holes_are_filled_slice_by_slice_as_by_scipy():
    slices = np.random.default_rng(0).random((5, 24, 20)) < 0.6
    assert_array_equal(fill_holes(slices), [ndimage.binary_fill_holes(mask) for mask in slices])


def test_a_bay_that_the_border_of_the_image_closes_is_no_hole():
    bay = np.zeros((1, 6, 6), bool)
    bay[0, :4, [1, 4]] = bay[0, 3, 1:5] = True
    assert_array_equal(fill_holes(bay), bay)
