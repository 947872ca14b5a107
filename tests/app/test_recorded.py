"""A transform is judged again as it was when it was found: inside its masks, after its affine start, in the intensities
that were matched. metrics.json beside it says so."""

import json
import shutil

import numpy as np
import pytest
from scipy import ndimage

from tests.app.outputs import OVERLAPS, file_names, read_json
from tests.phantoms import phantom
from vrnet import Grid, Image, write_image
from vrnet.app.pair_files import read_pair, register_files
from vrnet.methods.names import parse
from vrnet.vocabulary import RegistrationOptions

GRID, MASK_GRID = Grid.plain((48, 48), (4.0, 4.0)), Grid.plain((96, 96), (2.0, 2.0))
REGULARITY = {"folding_percent", "folding_strict_percent", "jacobian_gradient"}
MASKS = "fixed_mask.nii.gz", "moving_mask.nii.gz"
AFTER_START = "There was an affine start"
OPTIONS = {"both": RegistrationOptions(affine="rigid"), "histogram": RegistrationOptions(match_intensities=True)}
KEPT = {"kept": RegistrationOptions(affine="rigid", brightness="keep")}
WORDS = {
    "both": ("after the start in affine.tfm and with matched intensities", "not equally bright"),
    "histogram": ("with matched intensities",),
}


def numbers(measure):
    """The numbers of a measure, which may have none."""
    if isinstance(measure, dict):
        return [number for part in measure.values() for number in numbers(part)]
    return [measure] if isinstance(measure, float) else []


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two folders of images with registrations of them: hearts, of which moving is thrice as bright, and 12 mm away by
    its header; and a heart in noise, with labels, and masks that leave the noise out."""
    folder, heart = tmp_path_factory.mktemp("made"), phantom(3, GRID.shape, 4.0)
    hearts, spoilt = folder / "hearts", folder / "spoilt"
    hearts.mkdir()
    spoilt.mkdir()
    away = Grid(GRID.shape, GRID.spacing, (12.0, 0.0), GRID.direction)
    write_image(Image(heart.fixed[0, 0].numpy(), GRID), hearts / "fixed.nii.gz")
    write_image(Image(3 * heart.moving[0, 0].numpy() + 0.2, away), hearts / "moving.nii.gz")
    pair = read_pair(hearts / "fixed.nii.gz", hearts / "moving.nii.gz")
    for name, options in (OPTIONS | KEPT).items():
        register_files(lambda stage: lambda done: None, pair, parse("TV-L1"), hearts / name, options)
    heart, rng = phantom(3, MASK_GRID.shape, 2.0), np.random.default_rng(0)
    for role in ("fixed", "moving"):
        image, labels = (getattr(heart, name)[0, 0].numpy() for name in (role, f"{role}_labels"))
        mask = ndimage.binary_dilation(labels > 0, iterations=4)
        noisy = np.where(mask, image, rng.random(MASK_GRID.shape)).astype(np.float32)
        for name, array in ((role, noisy), (f"{role}_labels", labels), (f"{role}_mask", mask.astype(np.uint8))):
            write_image(Image(array, MASK_GRID), spoilt / f"{name}.nii.gz")
    return folder


@pytest.fixture
def hearts(made, tmp_path):
    """A copy of these files."""
    return shutil.copytree(made / "hearts", tmp_path / "hearts")


@pytest.fixture
def spoilt(made, vrnet, tmp_path):
    """A copy of these, whose folder `out` is that of the registration inside masks."""
    data = shutil.copytree(made / "spoilt", tmp_path / "spoilt")
    words = "--method", "TV-L1", "--out", data / "out", *masks_of(data), *labels_of(data)
    assert vrnet("register", data / "fixed.nii.gz", data / "moving.nii.gz", *words)[0] in (0, 3)
    return data


def masks_of(data):
    return "--fixed-mask", data / MASKS[0], "--moving-mask", data / MASKS[1]


def labels_of(data):
    return "--fixed-labels", data / "fixed_labels.nii.gz", "--moving-labels", data / "moving_labels.nii.gz"


@pytest.fixture
def again(vrnet, tmp_path):
    """again(data, transform, "--ignore-recorded") gives (all that is printed in one line, metrics, the page)."""

    def run(data, transform, *words, command="report"):
        out = tmp_path / ("page" if command == "report" else "m.json")
        pair = "--fixed", data / "fixed.nii.gz", "--moving", data / "moving.nii.gz"
        labels = labels_of(data) if (data / "fixed_labels.nii.gz").exists() else ()
        _, said, err = vrnet(command, transform, *pair, *labels, "--out", out, *words)
        found = out / "metrics.json" if command == "report" else out
        page = out / "report.html"
        text = page.read_text(encoding="utf-8").replace("<wbr>", "") if page.exists() else ""
        return " ".join((said + err).split()), read_json(found) if found.exists() else None, text

    return run


# An affine start, and intensities that were matched.


@pytest.mark.release
@pytest.mark.parametrize("kind", OPTIONS)
def test_a_transform_is_judged_as_it_was_when_it_was_found(hearts, again, kind):
    out = hearts / kind
    found = read_json(out / "metrics.json")
    for command in ("report", "evaluate"):
        said, metrics, page = again(hearts, out / "transform.nii.gz", command=command)
        assert all(words in said for words in (*WORDS[kind], "as metrics.json says"))
        assert metrics["intensities_matched"] == found["intensities_matched"]
        assert metrics["brightness"] == found["brightness"]
        for key in ("level", "reasons"):
            assert metrics["verdict"][key] == found["verdict"][key]
        for key in REGULARITY | {"affine", "similarity"}:
            assert numbers(metrics[key]) == pytest.approx(numbers(found[key]), rel=1e-4, abs=1e-6), key
        if command == "report":
            assert (AFTER_START in page) == (found["affine"] is not None)
            assert ("here and in the differences" in page) == found["intensities_matched"]


@pytest.mark.release
def test_what_is_recorded_is_not_used_where_that_is_asked_for(hearts, again, tmp_path):
    """Then the transform is one of which nothing is known."""
    out = hearts / "both"
    shutil.copy(out / "transform.nii.gz", tmp_path / "alone.nii.gz")
    said, metrics, page = again(hearts, out / "transform.nii.gz", "--ignore-recorded")
    alone_said, alone, _ = again(hearts, tmp_path / "alone.nii.gz")
    assert not any(words in text for text in (said, alone_said) for words in ("metrics.json says", "as it was found"))
    assert metrics | {"method": ""} == alone | {"method": ""}
    assert [alone[key] for key in ("affine", "intensities_matched", "brightness")] == [None, False, None]
    assert AFTER_START not in page


@pytest.mark.parametrize(
    "change",
    [
        lambda metrics: "{",
        lambda metrics: "[1]",
        lambda metrics: json.dumps(metrics | {"brightness": {"gain": -1.0, "offset": 1.0}}),
        lambda metrics: json.dumps(metrics | {"files": {"fixed": "a.nii.gz", "moving": "b.nii.gz"}}),
    ],
)
def test_a_record_that_is_damaged_or_of_other_images_is_told_and_not_used(hearts, again, change):
    place = hearts / "both" / "metrics.json"
    place.write_text(change(read_json(place)))
    said, metrics, _ = again(hearts, hearts / "both" / "transform.nii.gz")
    assert f"{place} does not say how {place.parent / 'transform.nii.gz'} was found for these images" in said
    assert metrics["affine"] is None


def test_a_start_that_is_gone_is_told_in_one_line(hearts, again):
    (hearts / "both" / "affine.tfm").unlink()
    said, metrics, _ = again(hearts, hearts / "both" / "transform.nii.gz")
    assert (f"there is no {hearts / 'both' / 'affine.tfm'}" in said, metrics) == (True, None)


def test_whoever_kept_brightness_is_told_again_to_match_it(hearts, again):
    """Not to match histograms, which is for more than a factor."""
    found = read_json(hearts / "kept" / "metrics.json")
    advice = next(each for each in found["verdict"]["try"] if "--brightness match" in each)
    _, metrics, _ = again(hearts, hearts / "kept" / "transform.nii.gz", command="evaluate")
    assert f"vrnet register {advice}" in metrics["verdict"]["try"]


# The masks.


@pytest.mark.release
@pytest.mark.parametrize("command", ["report", "evaluate"])
def test_inside_masks_a_transform_is_measured_as_it_was_when_it_was_found(spoilt, again, tmp_path, command):
    """Whether they are given, or found beside it; fields are rounded in files, to less than tables show."""
    found = read_json(spoilt / "out" / "metrics.json")
    shutil.copy(spoilt / "out" / "transform.nii.gz", tmp_path / "alone.nii.gz")
    given = again(spoilt, tmp_path / "alone.nii.gz", *masks_of(spoilt), command=command)
    recalled = again(spoilt, spoilt / "out" / "transform.nii.gz", command=command)
    for _, metrics, page in (given, recalled):
        assert metrics["masks"] == found["masks"] == {"fixed": MASKS[0], "moving": MASKS[1]}
        assert metrics["verdict"] == found["verdict"] == {"level": "good", "reasons": [], "try": []}
        for key in sorted(OVERLAPS | REGULARITY | {"similarity"}):
            assert numbers(metrics[key]) == pytest.approx(numbers(found[key]), rel=1e-5, abs=0), key
        if command == "report":
            assert all(words in page for words in (*MASKS, "inside it the images were compared", "inside the masks"))
    paths = f"inside {spoilt / MASKS[0]} and {spoilt / MASKS[1]}"
    assert f"{paths}, as they were registered" in recalled[0]


@pytest.mark.release
def test_masks_that_are_recorded_are_ignored_where_that_is_asked_for_or_others_are_given(spoilt, again):
    """The registration is good inside its masks, and noise about it makes the whole images unlike."""
    transform = spoilt / "out" / "transform.nii.gz"
    said, metrics, _ = again(spoilt, transform, "--ignore-recorded")
    assert (metrics["verdict"]["level"], "masks" in metrics, MASKS[0] in said) == ("failed", False, False)
    _, metrics, _ = again(spoilt, transform, "--ignore-recorded", *masks_of(spoilt))
    assert metrics["masks"] == {"fixed": MASKS[0], "moving": MASKS[1]}
    _, metrics, _ = again(spoilt, transform, "--fixed-mask", spoilt / MASKS[0])
    assert metrics["masks"] == {"fixed": MASKS[0], "moving": None}


@pytest.mark.release
def test_masks_are_found_from_another_folder(spoilt, again, vrnet, monkeypatch, tmp_path):
    """Though they were given by a path from the folder of work."""
    monkeypatch.chdir(spoilt)
    pair = "fixed.nii.gz", "moving.nii.gz", "--moving-mask", MASKS[1]
    assert vrnet("register", *pair, "--method", "TV-L1", "--out", "out")[0] == 0
    monkeypatch.chdir(tmp_path)
    assert read_json(spoilt / "out" / "metrics.json")["mask_paths"] == {"fixed": None, "moving": str(spoilt / MASKS[1])}
    _, metrics, _ = again(spoilt, spoilt / "out" / "transform.nii.gz")
    assert metrics["masks"] == {"fixed": None, "moving": MASKS[1]}


def test_a_given_mask_that_is_missing_is_told_in_one_line(spoilt, again, tmp_path):
    transform, absent = spoilt / "out" / "transform.nii.gz", tmp_path / "absent.nii.gz"
    said, metrics, _ = again(spoilt, transform, "--moving-mask", absent)
    assert (said, metrics) == (f"vrnet: there is no {absent}: check its name", None)
    assert file_names(tmp_path) == {"spoilt"}


# An evaluation does not replace the record of a registration.


@pytest.mark.parametrize("method", ["both/transform.nii.gz", "identity"])
def test_an_evaluation_does_not_replace_the_record_of_a_registration(vrnet, hearts, method):
    record = hearts / "both" / "metrics.json"
    before = record.read_bytes()
    pair = "--fixed", hearts / "fixed.nii.gz", "--moving", hearts / "moving.nii.gz"
    name = hearts / method if "/" in method else method
    status, _, err = vrnet("evaluate", name, *pair, "--out", record)
    assert (status, "metrics.json is of the result in its folder" in err) == (2, True), err
    assert record.read_bytes() == before


@pytest.mark.release
def test_an_evaluation_replaces_its_own_earlier_one_but_not_the_measures_of_a_page(vrnet, hearts, again, tmp_path):
    again(hearts, hearts / "both" / "transform.nii.gz")
    pair = "--fixed", hearts / "fixed.nii.gz", "--moving", hearts / "moving.nii.gz"
    status, _, err = vrnet("evaluate", "identity", *pair, "--out", tmp_path / "page" / "metrics.json")
    assert (status, "metrics.json is of the result in its folder" in err) == (2, True), err
    shutil.copy(hearts / "both" / "transform.nii.gz", tmp_path / "transform.nii.gz")
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
