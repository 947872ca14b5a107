import pytest

from vrnet import BadInput
from vrnet.data.labels import (
    KNOWN,
    check_labels_are_there,
    label_text,
    names_told_by_files,
    read_label_names,
    rename_structures,
)

HEART = {1: "RV", 2: "Myo", 3: "LV"}


@pytest.mark.parametrize("given", ["1=RV,2=Myo,3=LV", " 3 = LV, 1=RV ,2=Myo", "acdc", "ACDC", "ukbb", HEART])
def test_names_are_written_out_or_known_by_the_name_of_a_data_set(given):
    assert read_label_names(given) == HEART


def test_names_are_taken_as_metrics_json_has_them(as_users_run):
    assert read_label_names({str(label): name for label, name in HEART.items()}) == HEART


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
    [("", "give them as 1=RV"), ("brats", "acdc, ukbb, hippocampus, freesurfer"), ("1=", "give them as"),
     ("RV=1", "give them as"), ("1.5=RV", "give them as"), ("1=RV,,2=LV", "give them as"), ("1", "give them as"),
     ("1=RV,1=LV", "label 1 is given twice"), ("1=RV,2=RV", "name RV is given twice"), ("0=air", "background"),
     ("1=RV\n", None), ({1: " "}, "give them as"), ({}, "give them as"), ("x\ny", r"x\\ny"),
     (["RV", "Myo"], "give them as 1=RV"), ({1: 2}, "give them as"), ({1.5: "RV"}, "give them as"), (3, "give them as"),
     ("9" * 5000 + "=RV", "give them as")],
)  # fmt: skip
def test_what_names_nothing_is_told_in_one_line(as_users_run, given, said):
    if said is None:
        assert read_label_names(given) == {1: "RV"}
        return
    with pytest.raises(BadInput, match=said) as error:
        read_label_names(given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["patient002_frame01_gt.nii.gz", "/data/ACDC/patient002/patient002_frame12_gt.nii.gz"], HEART),
        (["patient002_frame01_gt.nii.gz", "ed_gt.nii.gz"], {}),
        (["label_sa_ED.nii.gz", "label_sa_ES.nii.gz"], {}),  # of UK Biobank there are both ways round
        (["patient002_frame01_gt_mine.nii.gz"], {}),
        ([], {}),
    ],
)
def test_masks_that_are_called_as_in_acdc_have_its_structures_and_others_none(files, names):
    assert names_told_by_files(files) == names


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
