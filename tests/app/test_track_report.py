"""`vrnet track --report` and `.report()`: the page and pictures of a tracked cine."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image as Picture

from vrnet import Cine, Grid, Image, InputWarning, write_image
from vrnet.app.cine import Tracking, describe_tracking, notes_on_tracking, summary
from vrnet.app.console import tracking_table
from vrnet.cardiac.wall import HeartLabels
from vrnet.images.io import read_cine
from vrnet.phantom.cycle import cycle
from vrnet.registration.cine import TrackedFrames
from vrnet.report.cine import ejection_fraction, in_percent

GRID = Grid.plain((56, 52, 2), (3.0, 3.0, 10.0))
FRAMES = 4


@pytest.fixture(scope="module")
def beat():
    return cycle(2, GRID.shape, GRID.spacing, frames=FRAMES)


@pytest.fixture(scope="module")
def exact(beat):
    """The result of tracking that makes no mistake."""
    closing = np.full((2, 3, *GRID.shape), 0.05)
    found = TrackedFrames(beat.fields.numpy(), closing, "truth", None, "cpu", 2, (None,) * FRAMES, 1.0)
    cine = Cine(beat.frames.numpy(), GRID, beat.times_ms, "a/heart.nii.gz")
    return Tracking(cine, 0, found, Image(beat.labels.numpy(), GRID), HeartLabels())


def test_the_report_is_a_page_with_pictures_beside_it(exact, tmp_path):
    page = exact.report(tmp_path / "new" / "folder")
    assert page == tmp_path / "new" / "folder" / "report.html"
    assert sorted(path.name for path in page.parent.iterdir()) == ["cine.gif", "report.html", "strain.png"]
    text = page.read_text()
    assert "<title>truth: heart.nii.gz</title>" in text
    assert f"{max(exact.closure_mm.values()):.2f} mm" in text
    with Picture.open(page.parent / "cine.gif") as film:
        assert film.n_frames == FRAMES


def test_without_labels_there_are_no_curves(exact, tmp_path):
    Tracking(exact.cine, 0, exact.found).report(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cine.gif", "report.html"]


@pytest.mark.parametrize("heart", [HeartLabels(), HeartLabels(rv=None, wall=None)])
def test_labels_without_a_wall_have_volumes_alone_and_the_page_says_why(exact, beat, tmp_path, heart):
    """The cavity alone: no strain is measured, and the page and the picture do without."""
    labels = Image(np.where(beat.labels.numpy() == 3, 3, 0), GRID)
    with pytest.warns(InputWarning, match="no strain is measured"):
        page = Tracking(exact.cine, 0, exact.found, labels, heart).report(tmp_path)
    said = page.read_text()
    assert "Ejection fraction, LV" in said
    assert "Peak strain" not in said
    assert "Not measured: the wall of the left ventricle is not labelled, and strain needs it." in said
    assert (tmp_path / "strain.png").exists()


def test_the_page_says_what_was_run(exact):
    said = describe_tracking(exact)
    assert (said["cine"], said["method"], said["slices"]) == ("a/heart.nii.gz", "truth", "each by itself")
    assert said["frames"] == "4 of 56 x 52 x 2 voxels of 3 x 3 x 10 mm"
    assert said["reference"] == "frame 1 of 4"
    assert "frame 1 here is frame 0 there" in said["in files"]


def test_what_helped_a_network_is_told_in_the_terminal_on_the_page_and_in_its_file(exact):
    helped = replace(exact, found=replace(exact.found, turned_by="TV-L1", refined_by="Gaussian-LNCC"))
    said, kept = describe_tracking(helped), summary(helped)
    assert (said["turns found by"], said["refined by"]) == ("TV-L1", "Gaussian-LNCC")
    assert (kept["turned_by"], kept["refined_by"]) == ("TV-L1", "Gaussian-LNCC")
    titles = [str(tracking_table(each).title) for each in (helped, exact)]
    assert [", turned, refined, 4 frames" in title for title in titles] == [True, False]
    assert not {"turns found by", "refined by"} & describe_tracking(exact).keys()


def test_what_may_be_no_cine_is_told_at_the_end_and_on_the_page(exact, tmp_path):
    doubted = replace(exact, cine=replace(exact.cine, doubt="BEWARE: it is <b>"))
    assert notes_on_tracking(doubted)[0] == "BEWARE: it is <b>."
    header = doubted.report(tmp_path / "page.html").read_text().split("</header>")[0]
    assert "BEWARE: it is &lt;b&gt;." in header
    assert summary(doubted)["doubt"] == "BEWARE: it is <b>"
    assert summary(exact)["doubt"] is None
    assert not any("BEWARE" in note for note in notes_on_tracking(exact))


def test_a_page_can_be_had_alone(exact, tmp_path):
    assert exact.report(tmp_path / "page.html") == tmp_path / "page.html"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_the_command_writes_it_and_a_run_without_it_takes_it_away(vrnet, beat, tmp_path):
    import SimpleITK as sitk

    from vrnet.images.io import to_sitk

    frames = [to_sitk(frame, GRID) for frame in beat.frames.numpy()]
    sitk.WriteImage(sitk.JoinSeries(frames, 0.0, 0.2), str(tmp_path / "cine.nii.gz"))
    write_image(Image(beat.labels.numpy(), GRID), tmp_path / "labels.nii.gz")
    assert len(read_cine(tmp_path / "cine.nii.gz")) == FRAMES
    out = tmp_path / "out"
    words = (
        "track",
        tmp_path / "cine.nii.gz",
        "--labels",
        tmp_path / "labels.nii.gz",
        "--method",
        "identity",
        "--out",
        out,
    )
    status, said, err = vrnet(*words, "--report")
    assert status == 0, err
    assert "report.html, strain.png, cine.gif" in said
    assert {"report.html", "strain.png", "cine.gif"} <= {path.name for path in out.iterdir()}
    assert vrnet(*words)[0] == 0
    assert not {"report.html", "strain.png", "cine.gif"} & {path.name for path in out.iterdir()}


def test_the_ejection_fractions_of_both_ventricles_stand_together(exact):
    """One entry, so that the page's first line stays short; without the LV it is that of the RV."""
    volumes = exact.volumes
    both = ejection_fraction(volumes)
    assert both.name == "Ejection fraction, LV"
    assert both.detail == f"RV {in_percent(volumes.rv_ejection_fraction_percent)}"
    assert ejection_fraction(replace(volumes, open_slices=(2,))).detail.startswith("without slice 3, RV ")
    right = ejection_fraction(replace(volumes, lv_ml=0 * volumes.lv_ml, open_slices=(2,)))
    assert (right.name, right.detail) == ("Ejection fraction, RV", "")
