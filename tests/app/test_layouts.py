"""Folders in a known layout become lists that name what is there."""

import csv

import pytest

from vrnet import BadInput
from vrnet.app.layouts import scan_folder, write_pairs
from vrnet.cohort.table import read_table


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def named(rows, folder):
    return [
        {key: value if key == "subject" else str(value.relative_to(folder)) for key, value in row.items()}
        for row in rows
    ]


def test_patients_of_acdc_are_end_diastole_and_end_systole_with_their_labels(acdc):
    rows = scan_folder(acdc)
    assert [row["subject"] for row in rows] == ["patient001", "patient002"]
    assert set(rows[0]) == {"subject", "fixed", "moving", "fixed_labels", "moving_labels"}
    assert all(row[part].exists() for row in rows for part in set(row) - {"subject"})


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


def test_the_list_leads_to_the_files_from_where_it_lies(tmp_path):
    touch(tmp_path / "data", "sub-1/sub-1_phase-ED_x.nii.gz", "sub-1/sub-1_phase-ES_x.nii.gz")
    path = write_pairs(scan_folder(tmp_path / "data"), tmp_path / "deep" / "out")
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["fixed"] == "../../data/sub-1/sub-1_phase-ED_x.nii.gz"
    read_table(path).check_files()


def test_a_folder_in_no_known_layout_is_told(tmp_path):
    with pytest.raises(BadInput, match="no pairs are found"):
        scan_folder(tmp_path)
    with pytest.raises(BadInput, match="is no folder"):
        scan_folder(tmp_path / "none")
