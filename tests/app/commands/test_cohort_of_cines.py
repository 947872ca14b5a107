"""`vrnet cohort` on a list of cines: each is tracked as `vrnet track` does it, and the table has its numbers."""

import csv
import json
import sys

import numpy as np
import pytest
import SimpleITK as sitk

from vrnet import Grid, Image, Transform, write_image
from vrnet.app import main as cli
from vrnet.images.io import to_sitk
from vrnet.phantom import cycle

GRID = Grid.plain((32, 32, 2), (4.0, 4.0, 10.0))
FRAMES = 4
QUICK = "--method", "Gaussian-L2", "--set", "levels=1", "--set", "warps=2"


@pytest.fixture(scope="module")
def cines(tmp_path_factory):
    """A list of two cines; the labels of the second belong to its frame 1."""
    folder, lines = tmp_path_factory.mktemp("cines"), ["subject,cine,labels,frame,group"]
    for seed, first in ((1, 0), (2, 1)):
        beat = cycle(seed, GRID.shape, GRID.spacing, frames=FRAMES)
        frames = [to_sitk(frame, GRID) for frame in np.roll(beat.frames.numpy(), first, axis=0)]
        sitk.WriteImage(sitk.JoinSeries(frames, 0.0, 0.2), str(folder / f"{seed}.nii.gz"))
        write_image(Image(beat.labels.numpy(), GRID), folder / f"{seed}_gt.nii.gz")
        lines.append(f"heart{seed},{seed}.nii.gz,{seed}_gt.nii.gz,{first},{'ab'[first]}")
    (folder / "cines.csv").write_text("\n".join(lines))
    return folder / "cines.csv"


@pytest.fixture(scope="module")
def tracked(cines, tmp_path_factory):
    """The folder of a cohort."""
    out = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["vrnet", "cohort", str(cines), "--out", str(out), *QUICK])
        cli.main()
    return out


def rows(out):
    with (out / "cohort.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def files_in(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_subject_has_to_the_bit_what_track_writes(tracked, cines, vrnet, tmp_path):
    words = cines.parent / "2.nii.gz", "--labels", cines.parent / "2_gt.nii.gz", "--frame", 1
    assert vrnet("track", *words, "--out", tmp_path, *QUICK)[0] == 0
    of_cohort = tracked / "subjects" / "heart2"
    theirs = {name for name in files_in(tmp_path) if not name.startswith(".")}
    assert files_in(of_cohort) == theirs | {"done.json", "thumbnail.png"}
    for name in theirs - {"summary.json"}:  # which tells the time
        assert (of_cohort / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_the_table_has_the_numbers_of_each_summary(tracked):
    for row in rows(tracked):
        summary = json.loads((tracked / "subjects" / row["subject"] / "summary.json").read_text())
        assert float(row["lv_ejection_fraction_percent"]) == summary["volumes"]["lv_ejection_fraction_percent"]
        assert float(row["lv_largest_ml"]) == summary["volumes"]["lv_largest_ml"]
        peak = summary["strain"]["peaks"]["global"]["green_circumferential"]["percent"]
        assert float(row["peak_green_circumferential_percent"]) == peak < 0
        assert float(row["closure_forward_mm"]) == summary["closure_mm"]["forward"]
        assert (row["verdict"], row["frames"], row["status"]) == (summary["verdict"]["level"], str(FRAMES), "done")
        assert float(row["seconds"]) > 0
        assert row["method"] == summary["method"]
    assert [row["group"] for row in rows(tracked)] == ["a", "b"]


def test_what_is_not_labelled_has_empty_cells(cines, vrnet, tmp_path):
    """A subject whose labels have no wall, and one who has no labels, beside one who has all."""
    folder = cines.parent
    labels = sitk.ReadImage(str(folder / "1_gt.nii.gz"))
    sitk.WriteImage(labels * sitk.Cast(labels != 2, labels.GetPixelID()), str(folder / "cavities.nii.gz"))
    other = cines.with_name("parts.csv")
    given = {"all": "1_gt.nii.gz", "cavities": "cavities.nii.gz", "none": ""}
    other.write_text("\n".join(["subject,cine,labels", *(f"{name},1.nii.gz,{file}" for name, file in given.items())]))
    status, _, err = vrnet("cohort", other, "--out", tmp_path, *QUICK)
    assert status == 0, err
    found = {row["subject"]: row for row in rows(tmp_path)}
    for column, known in {"mass_g": {"all"}, "lv_largest_ml": {"all", "cavities"}}.items():
        assert {name for name, row in found.items() if row[column]} == known
    volumes = list(csv.DictReader((tmp_path / "subjects" / "cavities" / "volumes.csv").open(newline="")))
    assert {row["wall_ml"] for row in volumes} == {""}
    assert all(float(row["lv_ml"]) > 0 for row in volumes)


def test_with_a_report_the_page_leads_to_the_pages_of_cines(cines, vrnet, tmp_path):
    one = cines.with_name("one.csv")
    one.write_text("\n".join(cines.read_text().splitlines()[:2]))
    assert vrnet("cohort", one, "--out", tmp_path, *QUICK, "--report")[0] == 0
    assert {"report.html", "cine.gif", "strain.png"} <= files_in(tmp_path / "subjects" / "heart1")
    page = (tmp_path / "index.html").read_text()
    assert '"page": "report.html"' in page
    assert "LV ejection fraction (%)" in page
    assert "the frame farthest from it" in page


def test_another_frame_is_noticed_and_that_subject_done_again(tracked, cines, vrnet):
    other = cines.with_name("other.csv")
    other.write_text(cines.read_text().replace("gt.nii.gz,1", "gt.nii.gz,2"))
    status, said, _ = vrnet("cohort", other, "--out", tracked, *QUICK, "--dry-run")
    assert (status, "1 done already" in said, "Again, 1: newer or other inputs" in said) == (0, True, True)
    assert "2 done already" in vrnet("cohort", cines, "--out", tracked, *QUICK, "--dry-run")[1]


def test_a_frame_beyond_the_end_is_the_failure_of_that_subject(cines, vrnet, tmp_path):
    other = cines.with_name("beyond.csv")
    other.write_text("subject,cine,frame\np,1.nii.gz,9\n")
    status, said, _ = vrnet("cohort", other, "--out", tmp_path, *QUICK)
    assert (status, "Could not be done, " in said, "9" in rows(tmp_path)[0]["reason"]) == (3, True, True)
    assert list((tmp_path / ".working").iterdir()) == []


def test_names_that_cannot_be_tracked_by_are_told_before_the_work(cines, vrnet, tmp_path):
    status, _, err = vrnet("cohort", cines, "--out", tmp_path / "out", *QUICK, "--label-names", "1=liver,3=scar")
    assert (status, "name a part of the heart" in err, (tmp_path / "out").exists()) == (2, True, False)


def test_in_bids_each_transform_brings_its_frame_to_the_reference(cines, vrnet, tracked, tmp_path):
    status, _, err = vrnet("cohort", cines, "--out", tmp_path, *QUICK, "--bids", "--label-names", "1=RV,2=Myo,3=LV")
    assert status == 0, err
    names = files_in(tmp_path / "sub-heart2")
    moved = {f"sub-heart2_from-frame0{k}_to-frame01_mode-image_xfm.nii.gz" for k in range(FRAMES)}
    assert names == moved | {
        "sub-heart2_desc-tracked_dseg.nii.gz",
        "sub-heart2_desc-volumes_metrics.csv",
        "sub-heart2_desc-slices_metrics.csv",
        "sub-heart2_desc-strain_metrics.csv",
        "sub-heart2_desc-tracking_metrics.json",
        "sub-heart2_thumbnail.png",
        "done.json",
    }
    ours = Transform.load(tmp_path / "sub-heart2" / "sub-heart2_from-frame03_to-frame01_mode-image_xfm.nii.gz")
    theirs = Transform.load(tracked / "subjects" / "heart2" / "transforms" / "frame_03.nii.gz")
    assert np.array_equal(ours.displacement, theirs.displacement)
