"""Inside masks, a transform is judged again as it was when it was found."""

import json
import shutil

import numpy as np
import pytest
from scipy import ndimage

from tests.app.outputs import OVERLAPS, file_names, read_json
from vrnet import Grid, Image, write_image
from vrnet.app.pair import Conditions, masks_beside, run_of
from vrnet.phantom import phantom

GRID = Grid.plain((96, 96), (2.0, 2.0))
MEASURES = OVERLAPS | {"similarity", "folding_percent", "folding_strict_percent", "jacobian_gradient"}
MASKS = "fixed_mask.nii.gz", "moving_mask.nii.gz"


@pytest.fixture(scope="session")
def spoilt(tmp_path_factory):
    """A folder with a heart in noise: images, labels, and masks that leave the noise out."""
    folder, heart, rng = tmp_path_factory.mktemp("spoilt"), phantom(3, GRID.shape, 2.0), np.random.default_rng(0)
    for role in ("fixed", "moving"):
        image, labels = (getattr(heart, name)[0, 0].numpy() for name in (role, f"{role}_labels"))
        mask = ndimage.binary_dilation(labels > 0, iterations=4)
        noisy = np.where(mask, image, rng.random(GRID.shape)).astype(np.float32)
        for name, array in ((role, noisy), (f"{role}_labels", labels), (f"{role}_mask", mask.astype(np.uint8))):
            write_image(Image(array, GRID), folder / f"{name}.nii.gz")
    return folder


@pytest.fixture
def masked(vrnet, spoilt, tmp_path):
    """masked("TV-L1") gives the folder of images, and that of their registration inside masks, with labels."""
    data = tmp_path / "data"
    shutil.copytree(spoilt, data)

    def run(method="TV-L1"):
        words = "--method", method, "--out", tmp_path / "out", *masks_of(data), *labels_of(data)
        assert vrnet("register", data / "fixed.nii.gz", data / "moving.nii.gz", *words)[0] in (0, 3)
        return data, tmp_path / "out"

    return run


def masks_of(data):
    return "--fixed-mask", data / MASKS[0], "--moving-mask", data / MASKS[1]


def labels_of(data):
    return "--fixed-labels", data / "fixed_labels.nii.gz", "--moving-labels", data / "moving_labels.nii.gz"


@pytest.fixture
def report(vrnet, tmp_path):
    """report(transform, data, "--ignore-masks") gives (status, all that is printed in one line, metrics)."""

    def run(transform, data, *words, command="report"):
        out = tmp_path / ("page" if command == "report" else "m.json")
        pair = "--fixed", data / "fixed.nii.gz", "--moving", data / "moving.nii.gz"
        status, said, err = vrnet(command, transform, *pair, *labels_of(data), "--out", out, *words)
        found = out / "metrics.json" if command == "report" else out
        return status, " ".join((said + err).split()), read_json(found) if found.exists() else None

    return run


@pytest.mark.parametrize("command", ["report", "evaluate"])
@pytest.mark.parametrize(("method", "rel"), [("identity", 0), ("TV-L1", 1e-5)])
def test_inside_masks_a_transform_is_measured_as_it_was_when_it_was_found(
    masked, report, tmp_path, method, rel, command
):
    """Of no motion to the last bit; other fields are rounded in files, to less than tables show."""
    data, out = masked(method)
    shutil.copy(out / "transform.nii.gz", tmp_path / "alone.nii.gz")
    found = read_json(out / "metrics.json")
    _, _, again = report(tmp_path / "alone.nii.gz", data, *masks_of(data), command=command)
    assert again["masks"] == found["masks"]
    assert (again["verdict"]["level"], again["verdict"]["reasons"]) == (
        found["verdict"]["level"],
        found["verdict"]["reasons"],
    )
    for key in sorted(MEASURES):
        assert flat(again[key]) == pytest.approx(flat(found[key]), rel=rel, abs=0), key


def flat(measure):
    """The numbers of a measure."""
    return [number for part in measure.values() for number in flat(part)] if isinstance(measure, dict) else [measure]


def test_the_masks_of_a_registration_are_used_unless_they_are_to_be_ignored(masked, report, tmp_path):
    """The registration is good inside its masks, and noise about it makes the whole images unlike."""
    data, out = masked()
    verdict = read_json(out / "metrics.json")["verdict"]
    status, said, metrics = report(out / "transform.nii.gz", data)
    assert (status, metrics["verdict"]) == (0, verdict)
    assert verdict["level"] == "good"
    assert f"inside {data / MASKS[0]} and {data / MASKS[1]}, as {out / 'metrics.json'} names them" in said
    page = (tmp_path / "page" / "report.html").read_text(encoding="utf-8").replace("<wbr>", "")
    assert all(words in page for words in (*MASKS, "inside it the images were compared", "inside the masks"))
    status, said, metrics = report(out / "transform.nii.gz", data, "--ignore-masks")
    assert (status, metrics["verdict"]["level"], "masks" in metrics) == (3, "failed", False)
    assert MASKS[0] not in said


def test_masks_that_are_given_are_used_where_what_is_recorded_is_not(masked, report):
    data, out = masked()
    _, said, metrics = report(out / "transform.nii.gz", data, "--ignore-recorded")
    assert "masks" not in metrics
    assert MASKS[0] not in said
    _, _, metrics = report(out / "transform.nii.gz", data, "--ignore-recorded", *masks_of(data))
    assert metrics["masks"] == {"fixed": MASKS[0], "moving": MASKS[1]}


def test_one_mask_that_is_given_stands_for_both_that_are_recorded(masked, report):
    data, out = masked()
    _, said, metrics = report(out / "transform.nii.gz", data, "--fixed-mask", data / MASKS[0])
    assert metrics["masks"] == {"fixed": MASKS[0], "moving": None}
    assert MASKS[1] not in said


def test_masks_are_found_from_another_folder(masked, report, vrnet, monkeypatch, tmp_path):
    """Though they were given by a path from the folder of work."""
    data, out = masked()
    monkeypatch.chdir(data)
    pair = "fixed.nii.gz", "moving.nii.gz", "--moving-mask", MASKS[1]
    assert vrnet("register", *pair, "--method", "TV-L1", "--out", out)[0] == 0
    monkeypatch.chdir(tmp_path)
    assert read_json(out / "metrics.json")["mask_paths"] == {"fixed": None, "moving": str(data / MASKS[1])}
    assert report(out / "transform.nii.gz", data)[2]["masks"] == {"fixed": None, "moving": MASKS[1]}


def test_a_recorded_mask_that_is_gone_is_told_and_no_part_of_the_masks_is_used(masked, report):
    data, out = masked()
    (data / MASKS[1]).unlink()
    _, said, metrics = report(out / "transform.nii.gz", data)
    assert f"masks that are no longer there: {data / MASKS[1]}. The whole images are compared" in said
    assert "masks" not in metrics


def test_masks_of_other_images_are_told_and_not_used(masked, report):
    data, out = masked()
    metrics = read_json(out / "metrics.json")
    (out / "metrics.json").write_text(json.dumps(metrics | {"files": {"fixed": "a.nii.gz", "moving": "b.nii.gz"}}))
    _, said, metrics = report(out / "transform.nii.gz", data)
    assert "names masks, but of a.nii.gz and b.nii.gz: they are not used" in said
    assert "masks" not in metrics


def test_a_given_mask_that_is_missing_is_told_in_one_line(masked, report, tmp_path):
    data, out = masked()
    status, said, metrics = report(out / "transform.nii.gz", data, "--moving-mask", tmp_path / "absent.nii.gz")
    assert (status, metrics) == (2, None)
    assert said == f"vrnet: there is no {tmp_path / 'absent.nii.gz'}: check its name"
    assert file_names(tmp_path) == {"data", "out"}


def test_of_a_transform_from_a_file_it_is_known_whether_there_are_masks():
    """So nobody who gave them is advised to."""
    assert run_of(None, {"masks": {"fixed": "m.nii.gz", "moving": None}}, Conditions()).has_masks
    assert not run_of(None, {}, Conditions()).has_masks


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1]",
        "{}",
        '{"mask_paths": null}',
        '{"mask_paths": {"fixed": 3}, "files": {"fixed": "a", "moving": "b"}}',
        '{"mask_paths": {"fixed": "m.nii.gz"}}',
        '{"mask_paths": {"fixed": null, "moving": null}, "files": {"fixed": "a", "moving": "b"}}',
    ],
)
def test_a_file_that_names_no_masks_is_no_obstacle(tmp_path, content):
    (tmp_path / "metrics.json").write_text(content)
    assert masks_beside(tmp_path / "transform.nii.gz", tmp_path / "a", tmp_path / "b") == (None, None)
