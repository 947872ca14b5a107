"""A transform is judged again after its affine start, and in the intensities, that it was found with."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose

from tests.app.outputs import read_json
from tests.app.test_recorded_masks import flat
from vrnet import Grid, Image, read_image, write_image
from vrnet.app.pair import Conditions, conditions_beside, read_pair, register_pair, run_of, unmatched_brightness
from vrnet.images.grid import Affine
from vrnet.images.resample import match_histogram
from vrnet.methods.names import parse
from vrnet.phantom import phantom
from vrnet.registration.intensity import Remap
from vrnet.registration.options import RegistrationOptions
from vrnet.report.pair import Pair

GRID = Grid.plain((48, 48), (4.0, 4.0))
MEASURES = "affine", "similarity", "folding_percent", "folding_strict_percent", "jacobian_gradient"
AFTER_START = "There was an affine start"
OPTIONS = {"both": RegistrationOptions(affine="rigid"), "histogram": RegistrationOptions(match_intensities=True)}
KEPT = {"kept": RegistrationOptions(affine="rigid", brightness="keep")}
WORDS = {
    "both": ("after the start in affine.tfm and with matched intensities", "not equally bright"),
    "histogram": ("with matched intensities",),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a heart, with one registration for each of OPTIONS and KEPT; moving is thrice as bright, and its
    header puts it 12 mm away."""
    folder, heart = tmp_path_factory.mktemp("hearts"), phantom(3, GRID.shape, 4.0)
    away = Grid(GRID.shape, GRID.spacing, (12.0, 0.0), GRID.direction)
    write_image(Image(heart.fixed[0, 0].numpy(), GRID), folder / "fixed.nii.gz")
    write_image(Image(3 * heart.moving[0, 0].numpy() + 0.2, away), folder / "moving.nii.gz")
    pair = read_pair(folder / "fixed.nii.gz", folder / "moving.nii.gz")
    for name, options in (OPTIONS | KEPT).items():
        register_pair(lambda stage: lambda done: None, pair, parse("TV-L1"), folder / name, options)
    return folder


@pytest.fixture
def hearts(made, tmp_path):
    """A copy of these files."""
    return shutil.copytree(made, tmp_path / "hearts")


@pytest.fixture
def again(vrnet, hearts, tmp_path):
    """again(transform) gives (all that is printed in one line, metrics, the page)."""

    def run(transform, command="report", *words):
        out = tmp_path / ("page" if command == "report" else "m.json")
        pair = "--fixed", hearts / "fixed.nii.gz", "--moving", hearts / "moving.nii.gz"
        status, said, err = vrnet(command, transform, *pair, "--out", out, *words)
        assert status in (0, 3), err
        page = (out / "report.html").read_text(encoding="utf-8") if command == "report" else ""
        return " ".join((said + err).split()), read_json(out / "metrics.json" if page else out), page

    return run


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_transform_is_judged_as_it_was_when_it_was_found(hearts, again, kind):
    out = hearts / kind
    found = read_json(out / "metrics.json")
    for command in ("report", "evaluate"):
        said, metrics, page = again(out / "transform.nii.gz", command)
        assert all(words in said for words in WORDS[kind])
        assert f"as {out / 'metrics.json'} says" in said
        assert [metrics[key] for key in ("intensities_matched", "brightness")] == [
            found[key] for key in ("intensities_matched", "brightness")
        ]
        for key in ("level", "reasons"):
            assert metrics["verdict"][key] == found["verdict"][key]
        for key in MEASURES:
            assert flat_numbers(metrics[key]) == pytest.approx(flat_numbers(found[key]), rel=1e-4, abs=1e-6), key
        if page:
            assert (AFTER_START in page) == (found["affine"] is not None)
            assert ("here and in the differences" in page) == found["intensities_matched"]


def flat_numbers(measure):
    """The numbers of a measure, which may have none."""
    return [number for number in flat(measure) if isinstance(number, float)]


def test_of_a_file_alone_nothing_is_known(hearts, again, tmp_path):
    out = hearts / "both"
    shutil.copy(out / "transform.nii.gz", tmp_path / "alone.nii.gz")
    said, metrics, page = again(tmp_path / "alone.nii.gz")
    assert "is judged as it was found" not in said
    assert [metrics[key] for key in ("affine", "intensities_matched", "brightness")] == [None, False, None]
    assert AFTER_START not in page


@pytest.mark.parametrize("command", ["report", "evaluate"])
def test_of_a_file_alone_other_brightness_is_told(hearts, again, tmp_path, command):
    """Moving is 3 times fixed, plus 0.2; and the same heart as bright as fixed is not told of."""
    shutil.copy(hearts / "both" / "transform.nii.gz", tmp_path / "alone.nii.gz")
    said, _, _ = again(tmp_path / "alone.nii.gz", command)
    found = re.search(
        r"moving.nii.gz would be as bright as fixed.nii.gz with .* as ([\d.]+) times .*, less (\d\.\d+)", said
    )
    assert [float(number) for number in found.groups()] == pytest.approx([1 / 3, 0.2 / 3], rel=0.15)
    moving = read_image(hearts / "moving.nii.gz")
    write_image(moving.with_array((moving.array - 0.2) / 3), hearts / "moving.nii.gz")
    assert "equally bright" not in again(tmp_path / "alone.nii.gz", command)[0]


def test_brightness_that_was_matched_or_kept_is_not_told_as_unmatched():
    """And only the voxels that both images have count."""
    heart = phantom(3, GRID.shape, 4.0)
    fixed, moving = heart.fixed[0, 0].numpy(), 2 * heart.fixed[0, 0].numpy()
    pair = Pair(fixed, moving, moving, np.zeros((2, *GRID.shape), np.float32), GRID)
    everywhere, part = np.ones(GRID.shape, bool), np.arange(48)[:, None] < np.full(48, 20)
    for known in (Conditions(match_intensities=True), Conditions(remap=Remap(2.0, 0.0))):
        assert unmatched_brightness(pair, everywhere, known) is None
    assert unmatched_brightness(pair, everywhere, Conditions(is_brightness_kept=True)) is None
    assert unmatched_brightness(pair, everywhere, Conditions()).gain == pytest.approx(0.5)
    brighter_beyond = replace(pair, warped=np.where(part, fixed, moving))
    assert unmatched_brightness(brighter_beyond, everywhere, Conditions()) is not None
    assert unmatched_brightness(brighter_beyond, part, Conditions()) is None


@pytest.mark.parametrize("command", ["report", "evaluate"])
def test_what_is_recorded_is_not_used_where_that_is_asked_for(hearts, again, tmp_path, command):
    out = hearts / "both"
    assert "(--ignore-recorded judges it as a whole" in again(out / "transform.nii.gz", command)[0]
    said, metrics, _ = again(out / "transform.nii.gz", command, "--ignore-recorded")
    shutil.copy(out / "transform.nii.gz", tmp_path / "alone.nii.gz")
    _, alone, _ = again(tmp_path / "alone.nii.gz", command)
    assert "metrics.json says" not in said
    assert metrics | {"method": ""} == alone | {"method": ""}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda metrics: metrics.pop("brightness"), "has no brightness"),
        (lambda metrics: (metrics.pop("brightness"), metrics.pop("options")), "has no brightness and no options"),
        (lambda metrics: metrics["options"].pop("match_intensities"), "is damaged"),
        (lambda metrics: metrics.update(options=None), "has no options"),
    ],
)
def test_a_start_that_is_lost_with_other_keys_is_told(hearts, again, change, reason):
    out = hearts / "both"
    metrics = read_json(out / "metrics.json")
    change(metrics)
    (out / "metrics.json").write_text(json.dumps(metrics))
    said, metrics, _ = again(out / "transform.nii.gz")
    assert f"{out / 'metrics.json'} {reason}, so that it does not tell how {out / 'transform.nii.gz'} was found" in said
    assert metrics["affine"] is None


def test_a_record_that_cannot_be_read_is_told(hearts, again):
    """Its masks, its start and its intensities are lost with it."""
    out = hearts / "both"
    (out / "metrics.json").write_text((out / "metrics.json").read_text()[:100])
    assert f"{out / 'metrics.json'} cannot be read, so that it does not tell how" in again(out / "transform.nii.gz")[0]


@pytest.mark.parametrize("method", ["both/transform.nii.gz", "identity"])
def test_an_evaluation_does_not_replace_the_record_of_a_registration(vrnet, hearts, method):
    record = hearts / "both" / "metrics.json"
    before = record.read_bytes()
    pair = "--fixed", hearts / "fixed.nii.gz", "--moving", hearts / "moving.nii.gz"
    name = hearts / method if "/" in method else method
    for _ in ("as it was written", "copied without hidden files"):
        status, _, err = vrnet("evaluate", name, *pair, "--out", record)
        assert (status, "metrics.json is of the result in its folder" in err) == (2, True), err
        assert record.read_bytes() == before
        (hearts / "both" / ".vrnet.json").unlink(missing_ok=True)


def test_an_evaluation_does_not_replace_the_measures_of_a_page(vrnet, hearts, again, tmp_path):
    again(hearts / "both" / "transform.nii.gz", "report")
    pair = "--fixed", hearts / "fixed.nii.gz", "--moving", hearts / "moving.nii.gz"
    status, _, err = vrnet("evaluate", "identity", *pair, "--out", tmp_path / "page" / "metrics.json")
    assert (status, "metrics.json is of the result in its folder" in err) == (2, True), err


def test_an_evaluation_replaces_its_own_earlier_one_beside_a_transform(vrnet, hearts, tmp_path):
    shutil.copy(hearts / "both" / "transform.nii.gz", tmp_path / "transform.nii.gz")
    pair = "--fixed", hearts / "fixed.nii.gz", "--moving", hearts / "moving.nii.gz"
    for _ in ("first", "again"):
        status, said, err = vrnet("evaluate", tmp_path / "transform.nii.gz", *pair, "--out", tmp_path / "metrics.json")
        assert status in (0, 3), err
        assert "metrics.json." in " ".join(said.split())


def test_the_folder_of_a_result_is_answered_with_its_transform(vrnet, hearts, monkeypatch):
    """But for one with the name of a method."""
    monkeypatch.chdir(hearts)
    pair = "--fixed", "fixed.nii.gz", "--moving", "moving.nii.gz"
    (hearts / "both").rename("identity")
    assert vrnet("evaluate", "identity", *pair)[0] == 0
    (hearts / "identity").rename("both")
    for words in ((), ("--ignore-recorded",)):
        status, _, err = vrnet("evaluate", "both", *pair, *words)
        assert (status, "both is a folder: give its transform, both/transform.nii.gz" in err) == (2, True), err


@pytest.mark.parametrize("content", ["[1]", '{"dice": 0.9}'])
def test_nothing_is_said_of_a_file_of_another_program(tmp_path, recwarn, content):
    (tmp_path / "metrics.json").write_text(content)
    conditions_beside(tmp_path / "transform.nii.gz", tmp_path / "a", tmp_path / "b", GRID)
    assert not recwarn


def test_a_start_that_is_gone_or_another_is_told_and_not_used(hearts, again):
    out, turn = hearts / "both", sitk.Euler2DTransform((90.0, 90.0), 0.5, (20.0, 3.0))
    for change in (
        lambda path: sitk.WriteTransform(turn, str(path)),  # that of another registration
        lambda path: path.write_text("#Insight Transform File V1.0\n"),
        lambda path: path.unlink(),
    ):
        change(out / "affine.tfm")
        said, metrics, _ = again(out / "transform.nii.gz")
        assert "affine.tfm is gone, or is another: the whole transform is judged as a deformation" in said
        assert metrics["affine"] is None
        assert metrics["intensities_matched"]


def test_conditions_of_other_images_are_told_and_not_used(hearts, again):
    out = hearts / "both"
    metrics = read_json(out / "metrics.json")
    (out / "metrics.json").write_text(json.dumps(metrics | {"files": {"fixed": "a.nii.gz", "moving": "b.nii.gz"}}))
    said, metrics, _ = again(out / "transform.nii.gz")
    assert "tells how a.nii.gz and b.nii.gz were compared, which are other images: that is not used" in said
    assert metrics["affine"] is None


def test_nothing_is_advised_that_is_recorded():
    still = np.eye(2), np.zeros(2), np.zeros(2)
    run = run_of(None, {}, Conditions(Affine("affine", *still), match_intensities=True))
    assert (run.has_affine, run.is_matched) == (True, True)
    run = run_of(None, {}, Conditions(Affine("rigid", *still), remap=Remap(2.0, 0.0), is_brightness_kept=True))
    assert (run.has_start, run.has_affine, run.is_matched, run.is_brightness_kept) == (True, False, False, True)
    assert not run_of(None, {}, Conditions()).has_start


def test_whoever_kept_brightness_is_told_again_to_match_it(hearts, again):
    """Not to match histograms, which is for more than a factor."""
    found = read_json(hearts / "kept" / "metrics.json")
    advice = next(each for each in found["verdict"]["try"] if "--brightness match" in each)
    for command in ("report", "evaluate"):
        _, metrics, _ = again(hearts / "kept" / "transform.nii.gz", command)
        assert f"vrnet register {advice}" in metrics["verdict"]["try"]


def test_moving_is_seen_in_the_intensities_that_were_matched(hearts):
    """By the line, where there is one; by the histogram, where that was asked for."""
    pair = read_pair(hearts / "fixed.nii.gz", hearts / "moving.nii.gz")
    line = Remap(2.0, 0.5)
    assert_allclose(Conditions(remap=line).seen(pair).array, 2 * pair.moving.array + 0.5, rtol=1e-6)
    by_histogram = match_histogram(pair.moving, pair.fixed).array
    assert_allclose(Conditions(remap=line, match_intensities=True).seen(pair).array, by_histogram)
    assert Conditions().seen(pair) is pair.moving


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1]",
        "{}",
        '{"affine": 3, "brightness": null, "options": null}',
        '{"affine": {"kind": "rigid"}, "brightness": null, "options": {"match_intensities": false}}',
        '{"affine": {"kind": "b-spline"}, "brightness": null, "options": {"match_intensities": false}}',
        '{"affine": null, "brightness": {"gain": "2"}, "options": {"match_intensities": false}}',
        '{"affine": null, "brightness": {"gain": -1.0, "offset": 1.0}, "options": {"match_intensities": false}, '
        '"files": {"fixed": "a", "moving": "b"}}',
        '{"affine": null, "brightness": null, "options": {"match_intensities": "yes"}}',
        '{"affine": null, "brightness": null, "options": {"match_intensities": true}, "files": 3}',
    ],
)
def test_a_file_that_tells_no_conditions_is_no_obstacle(tmp_path, content):
    (tmp_path / "metrics.json").write_text(content)
    assert conditions_beside(tmp_path / "transform.nii.gz", tmp_path / "a", tmp_path / "b", GRID) == Conditions()
