"""`vrnet track`: its files, and what it refuses."""

import csv
import json
import re

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import ndimage

from tests.images.cines import write_slices
from tests.phantoms import cycle
from vrnet import Grid, Image, Transform, write_image
from vrnet.app.track import LABELLED as FILES_WITH_LABELS
from vrnet.cardiac.strain import MEASURES
from vrnet.fields.calculus import warp
from vrnet.images.io import to_sitk

GRID = Grid((48, 44, 2), (3.0, 3.0, 10.0), (-50.0, 20.0, 7.0), (0.8, -0.6, 0.0, 0.6, 0.8, 0.0, 0.0, 0.0, 1.0))
FRAMES = 5


@pytest.fixture(scope="module")
def beat():
    return cycle(2, GRID.shape, GRID.spacing, frames=FRAMES)


def write_cine(path, frames, grid=GRID):
    sitk.WriteImage(sitk.JoinSeries([to_sitk(frame, grid) for frame in frames], 0.0, 0.17), str(path))
    return path


@pytest.fixture
def files(beat, tmp_path):
    """A folder with a cine, and the labels of its first frame."""
    write_cine(tmp_path / "cine.nii.gz", beat.frames.numpy())
    write_image(Image(beat.labels.numpy(), GRID), tmp_path / "labels.nii.gz")
    return tmp_path


@pytest.fixture
def track(vrnet, files):
    def run(*words):
        return vrnet("track", files / "cine.nii.gz", "--out", files / "out", "--method", "TV-L1", *words)

    return run


def everything(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "summary.json" and "/." not in f"/{path.relative_to(folder).as_posix()}"
    }


def test_what_is_written_is_read_by_other_tools(track, files, beat):
    status, out, err = track("--labels", files / "labels.nii.gz")
    assert status == 0, err
    folder = files / "out"
    names = {f"transforms/frame_{k:02d}.nii.gz" for k in range(FRAMES)}
    assert everything(folder).keys() == names | {*FILES_WITH_LABELS}
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["frames"], summary["reference"], summary["folding_strict_percent"]) == (FRAMES, 0, 0)
    assert summary["closure_mm"]["forward"] < 1
    assert summary["strain"]["definitions"] == {m.name: m.definition for m in MEASURES}
    labels = nibabel.load(folder / "labels.nii.gz")
    assert labels.shape == (*GRID.shape, FRAMES)
    assert_array_equal(np.asarray(labels.dataobj)[..., 0], beat.labels.numpy())
    with (folder / "volumes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert_allclose([float(row["time_ms"]) for row in rows], 170.0 * np.arange(FRAMES), rtol=1e-4)
    assert all(len(row["lv_ml"].partition(".")[2]) <= 3 for row in rows)
    assert "Wrote 5 transforms, labels.nii.gz" in out
    assert re.search(r"Strain is of slices\W+1 to 2 \(of 2\)", out)
    assert "Seconds of tracking" in out
    assert summary["label_names"] == {"1": "RV", "2": "Myo", "3": "LV"}
    assert summary["volumes"]["slices_whose_wall_is_open"] == []
    assert "counted from 0" in summary["counting"]
    lines = (folder / "strain.csv").read_text().splitlines()
    comments = [line for line in lines if line.startswith("#")]
    assert lines[: len(comments)] == [f"# {m.name}_percent: {m.definition}" for m in MEASURES]
    strain = np.genfromtxt(lines[len(comments) :], delimiter=",", names=True, dtype=None, encoding="utf-8")
    assert strain.dtype.names == ("region", "frame", "time_ms", *(f"{m.name}_percent" for m in MEASURES))
    of_wall = strain["green_radial_percent"][strain["region"] == "global"]
    assert of_wall.max() == pytest.approx(summary["strain"]["peaks"]["global"]["green_radial"]["percent"])


@pytest.mark.release
def test_the_cavity_alone_has_volumes_and_says_what_strain_needs(track, files, beat):
    write_image(Image((beat.labels.numpy() == 3) * np.uint8(3), GRID), files / "cavity.nii.gz")
    status, out, err = track("--labels", files / "cavity.nii.gz")
    assert status == 0, err
    for note in ("taken for the cavity of the LV", "strain needs it"):
        assert re.search(f"Note: .*{re.escape(note)}", " ".join(out.split()))
    summary = json.loads((files / "out" / "summary.json").read_text())
    assert "strain needs it" in summary["strain_not_measured"]
    assert not (files / "out" / "strain.csv").exists()
    assert summary["volumes"]["lv_ejection_fraction_percent"] > 10


@pytest.mark.release
def test_slices_have_a_file_whose_areas_are_those_of_the_volumes(track, files):
    assert track("--labels", files / "labels.nii.gz")[0] == 0
    tables = {}
    for name in ("slices", "volumes"):
        with (files / "out" / f"{name}.csv").open() as file:
            lines = list(file)
        comments = [line for line in lines if line.startswith("#")]
        tables[name] = list(csv.DictReader(lines[len(comments) :]))
        if name == "slices":
            columns = lines[len(comments)].strip().split(",")
            assert [re.match("# (.*?):", line)[1] for line in comments] == ["slice, frame", *columns[3:]]
    rows = tables["slices"]
    assert [(row["slice"], row["frame"]) for row in rows] == [(str(k), str(t)) for k in (0, 1) for t in range(FRAMES)]
    for area, volume in (("cavity_mm2", "lv_ml"), ("wall_mm2", "wall_ml")):
        found = np.array([float(row[area]) for row in rows]).reshape(2, FRAMES).sum(0) * GRID.spacing[2] / 1000
        assert_allclose(found, [float(row[volume]) for row in tables["volumes"]], atol=1e-3)
    assert all(row["green_radial_percent"] for row in rows)
    assert float(rows[2]["green_radial_percent"]) > 1
    assert track("--labels", "none")[0] == 0
    assert not (files / "out" / "slices.csv").exists(), "it is of a run that had labels"


def test_simpleitk_brings_a_frame_to_the_reference_as_we_do(track, files, beat):
    assert track()[0] == 0
    path = files / "out" / "transforms" / "frame_02.nii.gz"
    theirs = sitk.DisplacementFieldTransform(sitk.ReadImage(str(path), sitk.sitkVectorFloat64))
    frame = to_sitk(beat.frames[2].numpy(), GRID)
    warped = sitk.GetArrayFromImage(sitk.Resample(frame, frame, theirs, sitk.sitkLinear)).T
    ours = warp(beat.frames[2][None, None], torch.from_numpy(Transform.load(path).in_voxels())[None])[0, 0].numpy()
    inside = (slice(10, -10), slice(10, -10))
    assert_allclose(warped[inside], ours[inside], atol=1e-3)
    before, after = (
        np.abs(image - beat.frames[0].numpy())[inside].mean() for image in (beat.frames[2].numpy(), warped)
    )
    assert after < 0.8 * before


@pytest.mark.release
def test_a_run_that_was_stopped_leaves_the_results_that_were_there(track, files, monkeypatch):
    """And nothing half-written: the same command tracks again."""
    assert track()[0] == 0
    whole = everything(files / "out")

    def stop(*words):
        raise KeyboardInterrupt

    monkeypatch.setattr("vrnet.registration.cine.smooth", stop)
    status, _, err = track("--labels", files / "labels.nii.gz")
    assert status == 130
    assert "interrupted; nothing is half-written" in err
    assert everything(files / "out") == whole


@pytest.mark.release
def test_a_run_without_a_report_takes_that_of_the_run_before_away(vrnet, files):
    words = ("track", files / "cine.nii.gz", "--labels", files / "labels.nii.gz", "--method", "identity")
    status, said, err = vrnet(*words, "--out", files / "out", "--report")
    assert status == 0, err
    assert "report.html, strain.png, cine.gif" in said
    drawn = {"report.html", "strain.png", "cine.gif"}
    assert drawn <= {path.name for path in (files / "out").iterdir()}
    assert vrnet(*words, "--out", files / "out")[0] == 0
    assert not drawn & {path.name for path in (files / "out").iterdir()}


def one_frame(files, beat):
    write_cine(files / "cine.nii.gz", beat.frames.numpy()[:1])


def half_a_file(files, beat):
    (files / "cine.nii.gz").write_bytes((files / "cine.nii.gz").read_bytes()[:5000])


def labels_elsewhere(files, beat):
    write_image(Image(beat.labels.numpy()[1:], Grid.plain((47, 44, 2), GRID.spacing)), files / "labels.nii.gz")


def nothing(files, beat):
    """The files are good."""


def own_file(files, beat):
    (files / "out" / "transforms").mkdir(parents=True)
    (files / "out" / "transforms" / "frame_03.nii.gz").write_text("of somebody else")


LABELLED = ("--labels", "labels.nii.gz")


@pytest.mark.parametrize(("spoil", "words", "said"), [
    (one_frame, (), "one frame only|no time frames"),
    (half_a_file, (), "cannot read"),
    (labels_elsewhere, LABELLED, "not on the grid"),
    (nothing, ("--frame", "5"), "frames 0 to 4"),
    (nothing, (*LABELLED, "--label-names", "1=scar"), "name a part of the heart"),
    (nothing, ("--method", "TV-L7"), "TV-L7"),
    (own_file, (), "would be lost"),
])  # fmt: skip
def test_bad_input_is_told_in_one_line_and_nothing_is_written(vrnet, files, beat, monkeypatch, spoil, words, said):
    spoil(files, beat)
    before = everything(files)
    monkeypatch.chdir(files)
    method = () if "--method" in words else ("--method", "TV-L1")
    status, _, err = vrnet("track", "cine.nii.gz", "--out", "out", *method, *words)
    assert status == 2, err
    assert len(err.strip().splitlines()) == 1
    assert re.search(said, err), err
    assert everything(files) == before


def test_register_says_which_command_takes_a_cine(vrnet, files):
    status, _, err = vrnet("register", files / "cine.nii.gz", files / "labels.nii.gz", "--out", files / "out")
    assert status == 2
    assert "vrnet track" in err


def test_a_tracking_is_measured_anew_without_tracking(vrnet, track, files, beat):
    """Labels given afterwards tell what they would have told at once, to the last digit; transforms are not touched."""
    assert track()[0] in (0, 3)
    folder, labels = files / "out", files / "labels.nii.gz"
    before = everything(folder)
    status, out, err = vrnet("measure", folder, "--labels", labels)
    assert status in (0, 3), err
    assert f"Wrote {', '.join(FILES_WITH_LABELS)}, summary.json" in out
    later = everything(folder)
    assert all(later[name] == before[name] for name in before if name.startswith("transforms"))
    track("--labels", labels)
    assert everything(folder) == later
    summaries = json.loads((folder / "summary.json").read_text())
    assert summaries["source"] == {
        "cine": str(files / "cine.nii.gz"), "labels": str(labels), "frame": 0, "label_names": None, "series": None,
        "corrections": {},
    }  # fmt: skip


def test_a_frame_that_is_corrected_changes_its_neighbours_too_but_none_that_is_far(vrnet, track, files):
    """Once corrected, it stays so, until labels of the reference replace all."""
    track("--labels", files / "labels.nii.gz")
    folder = files / "out"
    before = nibabel.load(folder / "labels.nii.gz")
    maps = np.asarray(before.dataobj)
    corrected = maps[..., 2].copy()
    corrected[ndimage.binary_dilation(corrected == 3, np.ones((5, 5, 1)))] = 3
    nibabel.save(nibabel.Nifti1Image(corrected, before.affine), files / "corrected.nii.gz")
    for words in (("--labels", files / "corrected.nii.gz", "--frame", 2), ()):
        status, _, err = vrnet("measure", folder, *words)
        assert status in (0, 3), err
        again = np.asarray(nibabel.load(folder / "labels.nii.gz").dataobj)
        assert_array_equal(again[..., 2], corrected)
        sizes = [(each == 3).sum((0, 1, 2)) for each in (maps, again)]
        gained = (sizes[1] - sizes[0]) / (sizes[1] - sizes[0])[2]
        assert gained[[0, 4]].tolist() == [0, 0]
        assert all(0.25 < part < 0.75 for part in gained[[1, 3]])
    vrnet("measure", folder, "--labels", files / "labels.nii.gz")
    assert_array_equal(np.asarray(nibabel.load(folder / "labels.nii.gz").dataobj), maps)


def test_labels_of_another_frame_and_of_another_grid_are_told(vrnet, track, files, beat):
    track("--labels", "none")
    labels, origin = beat.labels.numpy(), GRID.points(np.array([[-6.0, -4.0, 0.0]]))[0]
    larger = Grid((60, 52, 2), GRID.spacing, tuple(origin.tolist()), GRID.direction)
    write_image(Image(np.pad(labels, ((6, 6), (4, 4), (0, 0))), larger), files / "larger.nii.gz")
    status, *said = vrnet("measure", files / "out", "--labels", files / "larger.nii.gz")
    assert status in (0, 3), said
    assert "another grid" in "".join(said)
    assert "better than" not in "".join(said)
    assert_array_equal(np.asarray(nibabel.load(files / "out" / "labels.nii.gz").dataobj)[..., 0], labels)
    end = int(beat.end_systole)
    said = vrnet("measure", files / "out", "--labels", files / "labels.nii.gz", "--frame", end)[1:]
    assert f"better than frame {end + 1}" in "".join(said)


def test_pages_are_added_later_and_a_cine_that_was_moved_is_asked_for(vrnet, track, files):
    track("--labels", files / "labels.nii.gz")
    folder = files / "out"
    (files / "cine.nii.gz").rename(files / "moved.nii.gz")
    status, _, err = vrnet("measure", folder, "--report")
    assert (status, len(err.strip().splitlines())) == (2, 1)
    assert "--cine" in err
    assert vrnet("measure", folder, "--report", "--cine", files / "moved.nii.gz")[0] in (0, 3)
    assert (folder / "report.html").exists()
    assert (folder / "strain.csv").exists()
    assert vrnet("measure", files)[0] == 2


def test_a_study_is_listed_without_tracking_and_its_stack_is_tracked(vrnet, tmp_path, beat):
    study, cine = tmp_path / "study", (200 * beat.frames.numpy()).clip(0).astype(np.uint16)
    write_slices(study / "a", cine, GRID, "1.2.7", x00200011="7", x0008103e="cine_sa")
    write_slices(study / "b", cine[:1], GRID, "1.2.8", x00200011="8", x0008103e="psir")
    status, out, err = vrnet("track", study, "--out", tmp_path / "out", "--dry-run")
    assert status == 0, err
    assert "series 7 (cine_sa), 2 slices x 5 frames of 48 x 44 pixels: taken" in out
    assert "series 8 (psir), 2 slices x 1 frame of 48 x 44 pixels: left, one image of each place, no cine" in out
    assert not (tmp_path / "out").exists()
    status, out, err = vrnet("track", study, "--out", tmp_path / "out", "--method", "TV-L1", "--labels", "none")
    assert status == 0, err
    assert "Series 8 (psir)" in out
    assert len(json.loads((tmp_path / "out" / "summary.json").read_text())["study"]) == 2
