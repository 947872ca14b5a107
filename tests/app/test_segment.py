"""`vrnet segment`: what it writes and says."""

import re

import nibabel
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.cardiac.hearts import LV, stack
from tests.cardiac.test_anatomy import GRID, drawn, fake
from tests.models import saved
from vrnet import Image, read_image, write_image
from vrnet.images.io import write_frames


@pytest.fixture
def segment(vrnet, tmp_path, monkeypatch):
    """segment("--report") segments a drawn heart, or what stands in image.nii.gz, by a network that knows it."""
    monkeypatch.setattr("vrnet.cardiac.anatomy.load_segmenter", lambda weights=None: fake())
    write_image(Image(drawn(stack(4)), GRID), tmp_path / "image.nii.gz")

    def run(*words, out="labels.nii.gz"):
        return vrnet("segment", tmp_path / "image.nii.gz", "--out", tmp_path / out, *words)

    return run


def test_labels_of_a_stack_are_written_with_their_volumes(segment, tmp_path):
    status, out, err = segment("--report")
    assert status == 0, err
    found = read_image(tmp_path / "labels.nii.gz")
    assert_array_equal(found.array, stack(4))
    assert found.grid.matches(GRID)
    volume = (stack(4) == LV).sum() * np.prod(GRID.spacing) / 1000
    assert f"Volumes: LV {volume:.1f} ml, RV " in out
    assert re.search(r"Verdict: good\nWrote labels\.nii\.gz, labels\.html in ", out)
    page = (tmp_path / "labels.html").read_text()
    assert "image.nii.gz" in page
    assert page.count("data:image/png") == 1
    assert f"{volume:.1f} ml" in page


def test_a_cine_has_its_ejection_fraction(segment, tmp_path):
    frames = np.stack([stack(2), np.where(stack(2) == LV, 2, stack(2)), stack(2)])
    frames[1][30:42, 30:42] = LV
    write_frames(drawn(frames), GRID.__class__.plain((72, 72, 2), GRID.spacing), None, tmp_path / "image.nii.gz")
    status, out, err = segment("--report", out="labels.nii")
    assert status == 0, err
    assert nibabel.load(tmp_path / "labels.nii").shape == (72, 72, 2, 3)
    lv = (frames == LV).sum((1, 2, 3))
    assert f"Ejection fraction of the LV: {100 * (1 - lv[1] / lv[0]):.1f} %" in out
    assert "End-systole, frame 2 of 3: LV " in out
    assert (tmp_path / "labels.html").read_text().count("data:image/png") == 3


def test_a_picture_has_areas(segment, tmp_path):
    write_image(Image(drawn(stack(1)[..., 0]), GRID.__class__.plain((72, 72), (1.25, 1.25))), tmp_path / "image.nii.gz")
    status, out, err = segment("--report")
    assert status == 0, err
    assert f"Areas: LV {(stack(1) == LV).sum() * 1.25**2 / 100:.1f} cm²" in out


def test_what_is_no_heart_ends_with_status_3_and_an_empty_map(segment, tmp_path):
    without_wall = np.where(stack(4) == LV, LV, 0)
    write_image(Image(drawn(without_wall), GRID), tmp_path / "image.nii.gz")
    status, out, _ = segment("--report")
    assert status == 3
    assert "Verdict: failed" in out
    assert "Try: " in out
    assert not read_image(tmp_path / "labels.nii.gz").array.any()


def test_wrong_input_is_one_line_and_nothing_is_written(segment, vrnet, tmp_path):
    for words, said in (
        (("--out", tmp_path / "labels.txt"), "no ending that can be written"),
        (("--out", tmp_path / "image.nii.gz"), "is an input"),
    ):
        status, _, err = vrnet("segment", tmp_path / "image.nii.gz", *words)
        assert (status, err.count("\n")) == (2, 1)
        assert said in err
    write_image(Image(np.ones((9, 9)), GRID.__class__.plain((9, 9), (1.8, 1.8))), tmp_path / "image.nii.gz")
    status, _, err = segment()
    assert (status, "nothing to segment" in err, (tmp_path / "labels.nii.gz").exists()) == (2, True, False)


def test_segmenters_are_refused_where_methods_are_asked_for(vrnet, files, tmp_path):
    weights = saved(tmp_path, "Segmenter-w1")
    pair = files / "fixed.nii.gz", files / "moving.nii.gz"
    for words in (("--method", "anatomy"), ("--weights", weights)):
        status, _, err = vrnet("register", *pair, "--out", tmp_path / "out", *words)
        assert status == 2
        assert "vrnet segment IMAGE --out LABELS" in err
    assert not (tmp_path / "out").exists()
    status, _, err = vrnet("methods", "anatomy")
    assert (status, "vrnet segment" in err) == (2, True)
    status, out, _ = vrnet("methods")
    assert status == 0
    assert "anatomy" not in out
