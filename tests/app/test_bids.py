"""Folders in a known layout become lists that name what is there."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from vrnet import BadInput
from vrnet.app.bids import as_bids
from vrnet.app.cohort import scan_folder, write_list
from vrnet.cohort.table import CohortTable, Subject, find_missing, read_table


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_patients_of_acdc_are_end_diastole_and_end_systole_with_their_labels(acdc):
    rows = scan_folder(acdc)
    assert [row["subject"] for row in rows] == ["patient001", "patient002"]
    assert set(rows[0]) - {"group"} == {"subject", "fixed", "moving", "fixed_labels", "moving_labels"}
    assert all(row[part].exists() for row in rows for part in set(row) - {"subject", "group"})


def test_a_patient_of_acdc_whose_image_is_missing_is_listed_and_missed(acdc, tmp_path):
    """Left out of the list, it would be left out of the study, and nobody told."""
    shutil.copytree(acdc, tmp_path / "acdc")
    scan_folder(tmp_path / "acdc")[1]["moving"].unlink()
    write_list(scan_folder(tmp_path / "acdc"), tmp_path)
    table = read_table(tmp_path / "pairs.csv")
    assert [one.name for one in table.subjects] == ["patient001", "patient002"]
    assert [*find_missing(table.subjects)] == ["patient002"]


def test_the_group_of_a_patient_of_acdc_goes_with_the_list(tmp_path):
    """Of pairs and of cines; where nothing is said, the cell is empty."""
    for name, group in (("p1", "Group: DCM\n"), ("p2", "")):
        touch(tmp_path, *(f"acdc/{name}/{name}_{part}.nii.gz" for part in ("frame01", "frame12", "4d")))
        (tmp_path / "acdc" / name / "Info.cfg").write_text(f"ED: 1\nES: 12\n{group}")
    for is_cine in (False, True):
        write_list(scan_folder(tmp_path / "acdc", is_cine), tmp_path)
        table = read_table(tmp_path / ("cines.csv" if is_cine else "pairs.csv"))
        assert (table.carried, [one.carried for one in table.subjects]) == (("group",), [("DCM",), ("",)])


def write_4d(path, frames=3):
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(np.zeros((2, 2, 2, frames)[: 4 if frames else 3], np.uint8), np.eye(4)), path)


def test_a_folder_of_acdc_with_cines_alone_is_a_list_of_cines(tmp_path):
    """Info.cfg counts frames from 1, a list from 0; a patient without Info.cfg is tracked from its first frame."""
    write_4d(tmp_path / "patient001" / "patient001_4d.nii.gz")
    write_4d(tmp_path / "patient002" / "patient002_4d.nii.gz")
    touch(tmp_path, "patient001/patient001_frame03_gt.nii.gz")
    (tmp_path / "patient001" / "Info.cfg").write_text("ED: 3\nES: 1\n")
    write_list(scan_folder(tmp_path), tmp_path)
    path = tmp_path / "cines.csv"
    with path.open(newline="") as file:
        first, second = csv.DictReader(file)
    assert first == {
        "subject": "patient001",
        "cine": "patient001/patient001_4d.nii.gz",
        "labels": "patient001/patient001_frame03_gt.nii.gz",
        "frame": "2",
    }
    assert (second["subject"], second["labels"], second["frame"]) == ("patient002", "", "")
    assert find_missing(read_table(path).subjects) == {}


def test_cines_are_listed_before_pairs_only_if_asked_for(acdc, tmp_path):
    folder = tmp_path / "acdc"
    shutil.copytree(acdc, folder)
    for k in (1, 2):
        write_4d(folder / f"patient00{k}" / f"patient00{k}_4d.nii.gz")
    assert "fixed" in scan_folder(folder)[0]
    assert [{*row} - {"group"} for row in scan_folder(folder, cines=True)] == [
        {"subject", "cine", "labels", "frame"}
    ] * 2


def named(rows, folder):
    return [
        {key: value if key == "subject" else str(value.relative_to(folder)) for key, value in row.items()}
        for row in rows
    ]


def test_in_bids_phases_make_a_pair(tmp_path):
    touch(
        tmp_path, *(f"sub-{k}/anat/sub-{k}_phase-{phase}_cine.nii.gz" for k in ("01", "02") for phase in ("ED", "ES"))
    )
    touch(tmp_path, "sub-03/anat/sub-03_phase-ED_cine.nii.gz", "dataset_description.json")
    assert named(scan_folder(tmp_path), tmp_path) == [
        {
            "subject": f"sub-{k}",
            "fixed": f"sub-{k}/anat/sub-{k}_phase-ED_cine.nii.gz",
            "moving": f"sub-{k}/anat/sub-{k}_phase-ES_cine.nii.gz",
        }
        for k in ("01", "02")
    ]


def test_in_bids_two_sessions_make_a_pair_of_each_image(tmp_path):
    touch(
        tmp_path, *(f"sub-01/ses-{s}/anat/sub-01_ses-{s}_{kind}.nii.gz" for s in ("a", "b") for kind in ("T1w", "T2w"))
    )
    assert named(scan_folder(tmp_path), tmp_path) == [
        {
            "subject": f"sub-01_{kind}",
            "fixed": f"sub-01/ses-a/anat/sub-01_ses-a_{kind}.nii.gz",
            "moving": f"sub-01/ses-b/anat/sub-01_ses-b_{kind}.nii.gz",
        }
        for kind in ("T1w", "T2w")
    ]


def test_in_bids_a_cine_is_an_image_of_four_axes(tmp_path):
    write_4d(tmp_path / "sub-1" / "anat" / "sub-1_cine.nii.gz")
    write_4d(tmp_path / "sub-2" / "anat" / "sub-2_cine.nii.gz", frames=0)
    touch(tmp_path, "sub-3/sub-3_cine.nii.gz")
    for run in "12":
        write_4d(tmp_path / "sub-4" / f"sub-4_run-{run}_cine.nii")
    names = [row["subject"] for row in scan_folder(tmp_path)]
    assert names == ["sub-1", "sub-4_run-1_cine", "sub-4_run-2_cine"]


def test_the_list_leads_to_the_files_from_where_it_lies(acdc, tmp_path):
    shutil.copytree(acdc, tmp_path / "data")
    write_list(scan_folder(tmp_path / "data"), tmp_path / "deep" / "out")
    path = tmp_path / "deep" / "out" / "pairs.csv"
    with path.open(newline="") as file:
        assert next(csv.DictReader(file))["fixed"].startswith("../../data/patient001/patient001_frame")
    assert find_missing(read_table(path).subjects) == {}


def test_a_folder_in_no_known_layout_is_told(tmp_path):
    with pytest.raises(BadInput, match="no pairs or cines are found"):
        scan_folder(tmp_path)
    with pytest.raises(BadInput, match="are found in the folder"):
        scan_folder(tmp_path / "none")


# Names of subjects as BIDS has them: letters and digits of ASCII.


def table(*names):
    files = {"fixed": "/a.nii", "moving": "/b.nii"}
    return CohortTable(Path("pairs.csv"), (), tuple(Subject(name, files) for name in names))


def test_names_keep_their_letters_and_digits():
    named = as_bids(table("patient_01", "sub-02", "Zoë"))
    assert [one.name for one in named.subjects] == ["sub-patient01", "sub-02", "sub-Zo"]
    assert [replace(one, name="") for one in named.subjects] == [
        replace(one, name="") for one in table("", "", "").subjects
    ]


def test_names_without_any_are_refused_by_their_rows():
    with pytest.raises(BadInput, match=r'pairs\.csv has 2 rows whose subject has none .*\(row 2 "张三"; 4 "__"\)'):
        as_bids(table("p1", "张三", "p2", "__"))


def test_names_that_would_be_the_same_are_refused():
    with pytest.raises(BadInput, match="with the subject of another"):
        as_bids(table("p-1", "p_1"))
