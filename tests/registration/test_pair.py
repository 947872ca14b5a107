"""What a result says of itself in Python is what the commands write; what a notebook shows is safe and stands alone."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import ndimage

from tests.phantoms import cycle, phantom
from tests.registration.test_images import reorient
from vrnet import (
    BadInput,
    Cine,
    Grid,
    Image,
    PairResult,
    Transform,
    Verdict,
    judge,
    judge_images,
    register,
    register_images,
    track,
    write_image,
)
from vrnet.app.pair_files import metrics_of, phantom_pair
from vrnet.images.grid import Affine
from vrnet.images.resample import match_histogram
from vrnet.registration.intensity import Remap
from vrnet.report.figures import write_overview
from vrnet.report.pair import View
from vrnet.verdict.rules import run_of
from vrnet.vocabulary import RegistrationOptions

MASKS = "fixed_mask", "moving_mask"
METHOD = "Gaussian-L2(levels=1,warps=2)"
HOSTILE = "<img src=x onerror=alert('x')>\"&amp;\n$x^2$"
pytestmark = pytest.mark.usefixtures("as_users_run")


@pytest.fixture(scope="module")
def pair():
    return phantom_pair(phantom(7, (48, 40), 5.0))


@pytest.fixture(scope="module")
def larger_pair():
    return phantom_pair(phantom(3, (96, 96), 3.0))


@pytest.fixture(scope="module")
def result(pair):
    return register_images(pair.fixed, pair.moving, METHOD)


@pytest.fixture(scope="module")
def on_arrays(pair):
    return register(pair.fixed.array, pair.moving.array, METHOD, spacing=pair.fixed.grid.spacing)


def given(pair, transform, **how):
    """The pair with a transform from a file."""
    return PairResult(**vars(pair), transform=transform, warped=transform.apply(pair.moving, pair.fixed.grid), **how)


@pytest.mark.release
def test_metrics_are_those_that_the_command_writes(pair, tmp_path, vrnet):
    names = ("fixed", "moving", "fixed_labels", "moving_labels")
    files = [tmp_path / f"{name}.nii.gz" for name in names]
    for name, file in zip(names, files, strict=True):
        write_image(getattr(pair, name), file)
    status, *_ = vrnet(
        "register", *files[:2], "--out", tmp_path / "out", "--method", METHOD,
        "--fixed-labels", files[2], "--moving-labels", files[3], "--report",
    )  # fmt: skip
    assert status in (0, 3)
    written = json.loads((tmp_path / "out" / "metrics.json").read_text())
    result = register_images(*files[:2], METHOD)
    found = json.loads(json.dumps(result.metrics(files[2], pair.moving_labels.to_sitk())))
    assert list(found) == list(written)
    for name in {*found} - {"seconds", "verdict", "provenance", "files"}:
        assert found[name] == written[name], name
    assert found["verdict"]["level"] == written["verdict"]["level"]
    page = result.report(tmp_path / "page.html", files[2], files[3])
    assert abs(page.stat().st_size / (tmp_path / "out" / "report.html").stat().st_size - 1) < 0.02


def test_arrays_are_measured_as_images_on_the_plain_grid(pair, result, on_arrays):
    labels = pair.fixed_labels.array, pair.moving_labels.array
    by_images, by_arrays = result.metrics(pair.fixed_labels, pair.moving_labels), on_arrays.metrics(*labels)
    assert list(by_arrays) == list(by_images)
    assert by_arrays["dice"] == by_images["dice"]
    assert by_arrays["hausdorff_mm"] == by_images["hausdorff_mm"]
    assert by_arrays["similarity"] == pytest.approx(by_images["similarity"], rel=0.02)
    assert on_arrays.verdict == result.verdict
    of_tensors = register(*(torch.from_numpy(I.array) for I in (pair.fixed, pair.moving)), METHOD)
    assert of_tensors.metrics(*map(torch.from_numpy, labels))["dice"] == by_arrays["dice"]


@pytest.mark.release
def test_lengths_on_the_page_of_arrays_are_in_voxels_unless_a_spacing_is_given(pair, on_arrays, tmp_path):
    """Whatever is seen: in scripts, names may have millimetres in them."""
    labels = pair.fixed_labels.array, pair.moving_labels.array
    for found, unit in ((register(pair.fixed.array, pair.moving.array, METHOD), "voxels"), (on_arrays, "mm")):
        text = found.report(tmp_path / "page.html", *labels).read_text().split('<script type="module">')[0]
        assert f"Hausdorff distance, contours ({unit})" in text
        assert bool(re.search(r"\bmm\b", text)) == (unit == "mm")
        (title,) = (ax.get_title() for ax in found.show().axes if "displacement" in ax.get_title())
        assert title.endswith(f" {unit})")


def test_structures_are_called_by_their_names(pair, result):
    labels = pair.fixed_labels, pair.moving_labels
    assert result.metrics(*labels, "1=RV,2=Myo,3=LV")["label_names"] == {"1": "RV", "2": "Myo", "3": "LV"}
    assert result.metrics(*labels, {2: "wall"})["label_names"] == {"2": "wall"}
    legend = result.show(*labels, {2: "wall"}).axes[3].get_legend()
    assert "wall" in [text.get_text() for text in legend.get_texts()]


def test_labels_of_one_image_alone_are_carried_but_not_measured(pair, result):
    alone = result.with_labels(moving_labels=pair.moving_labels)
    assert "dice" not in alone.measures
    expected = result.transform.apply_labels(pair.moving_labels)
    assert np.array_equal(alone.warped_labels.array, expected.array)


def test_where_a_motion_leads_out_of_moving_nothing_is_compared():
    """An image whose background is bright, shifted: the rim that it lacks would count as black."""
    far = np.random.default_rng(0).uniform(900, 1000, (44, 30)).astype(np.float32)
    fixed, moving = (Image(part, Grid.plain((40, 30), (1.0, 1.0))) for part in (1000 - far[4:], far[:40]))
    shift = Transform.from_voxels(np.stack([np.full((40, 30), 4.0), np.zeros((40, 30))]), fixed.grid)
    found = PairResult(fixed=fixed, moving=moving, transform=shift, warped=shift.apply(moving)).metrics()["similarity"]
    assert found["ncc_after"] == pytest.approx(-1, abs=1e-4)
    assert found["mae_before"] == pytest.approx(np.abs(fixed.array - moving.array).mean(), rel=1e-5)


def test_moving_is_seen_in_the_intensities_that_were_matched(pair, result):
    """By the line, where there is one; by the histogram, where that was asked for."""
    line, by_histogram = Remap(2.0, 0.5), RegistrationOptions(match_intensities=True)
    assert_allclose(replace(result, remap=line).matched_moving.array, 2 * pair.moving.array + 0.5, rtol=1e-6)
    expected = match_histogram(pair.moving, pair.fixed).array
    assert_allclose(replace(result, remap=line, options=by_histogram).matched_moving.array, expected)
    assert result.matched_moving is pair.moving


def test_an_artefact_outside_the_masks_changes_neither_matching_nor_measures_nor_verdict(larger_pair):
    pair = larger_pair
    around = [
        Image(ndimage.binary_dilation(labels.array > 0, iterations=5), labels.grid)
        for labels in (pair.fixed_labels, pair.moving_labels)
    ]
    options = dict(zip(MASKS, around, strict=True)) | {"match_intensities": True}
    run = register_images(pair.fixed, pair.moving, "TV-L1", **options)
    spoilt = (
        image.with_array(np.where(mask.array, image.array, 50).astype(np.float32))
        for image, mask in zip((pair.fixed, pair.moving), around, strict=True)
    )
    plain, other = run.metrics(), replace(run, **dict(zip(("fixed", "moving"), spoilt, strict=True))).metrics()
    assert plain["similarity"] == other["similarity"]
    assert plain["verdict"] == other["verdict"] == {"level": "good", "reasons": [], "try": []}


def test_a_structure_that_gets_worse_is_called_by_its_name(larger_pair):
    """The RV of moving lies as that of fixed, so that the motion, which is right, takes it away."""
    pair = larger_pair
    rest = np.where(pair.moving_labels.array == 1, 0, pair.moving_labels.array)
    labels = pair.moving_labels.with_array(np.where(pair.fixed_labels.array == 1, 1, rest))
    motion = Transform.from_voxels(pair.true_motion, pair.fixed.grid)
    assert given(pair, motion).verdict.level == "good"
    verdict = given(replace(pair, moving_labels=labels), motion).verdict
    assert (verdict.level, "less than before: RV, Dice " in verdict.reasons[0]) == ("look", True)


def test_after_a_far_affine_start_what_is_shown_is_the_deformation_beyond_it(larger_pair, tmp_path):
    """Moving put 300 mm away: by SciPy, moving as it is shown becomes warped through the motion that is shown."""
    pair = larger_pair
    away = replace(pair.moving.grid, origin=tuple(x + 300.0 for x in pair.moving.grid.origin))
    labels, moving = Image(pair.moving_labels.array, away), Image(pair.moving.array, away)
    affine = Affine("rigid", np.eye(2), np.full(2, 300.0), np.zeros(2))
    run = register_images(pair.fixed, moving, "TV-L1", affine=affine).with_labels(pair.fixed_labels, labels)
    view = View.of(run)
    assert np.abs(run.transform.in_voxels()).min() > 80 > 20 > np.abs(view.field).max() > 1
    assert_allclose(view.moving, pair.moving.array, atol=1e-4)
    assert_allclose(view.moving_labels, pair.moving_labels.array)
    ends = np.indices(view.grid.shape) + view.field
    expected = ndimage.map_coordinates(view.moving, ends, order=1, mode="nearest")
    inside = (slice(12, -12),) * 2
    assert_allclose(view.warped[inside], expected[inside], atol=1e-3)
    assert run.measures["dice"]["before"]["mean"] == 0  # as the headers place them
    assert "beyond the affine start" in run.report(tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.release
def test_measures_do_not_depend_on_how_the_images_are_stored():
    order, flips = [2, 0, 1], (True, False, True)
    heart, grid = phantom(5, (24, 22, 20), 5.0), Grid.plain((24, 22, 20), (5.0, 5.0, 15.0))
    parts = heart.fixed, heart.moving, heart.fixed_labels, heart.moving_labels
    images = [Image(part[0, 0].numpy(), grid) for part in parts]
    found = []
    for fixed, moving, *labels in (images, [reorient(image, order, flips) for image in images]):
        metrics = register_images(fixed, moving, "Gaussian-L2(lam=0.5)", folds="keep").metrics(*labels)
        measured = ("similarity", "dice", "hausdorff_mm", "surface_hausdorff_mm", "folding_strict_percent")
        found.append({name: metrics[name] for name in measured})
    assert found[0]["folding_strict_percent"] > 1
    assert flatten(found[1]) == pytest.approx(flatten(found[0]), rel=1e-5)


def flatten(metrics, above=""):
    """{"dice.before.1": 0.5, ...}"""
    parts = [
        flatten(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
        for key, value in metrics.items()
    ]
    return {key: value for part in parts for key, value in part.items()}


# The verdict.


@pytest.mark.release
def test_arrays_are_judged_inside_masks_as_their_registration_is():
    """A heart in noise is good inside masks, and failed without them."""
    heart, rng = phantom(3, (96, 96), 2.0), np.random.default_rng(0)
    masks = [
        ndimage.binary_dilation(labels[0, 0].numpy() > 0, iterations=4)
        for labels in (heart.fixed_labels, heart.moving_labels)
    ]
    images = [
        np.where(mask, image[0, 0].numpy(), rng.random((96, 96))).astype(np.float32)
        for mask, image in zip(masks, (heart.fixed, heart.moving), strict=True)
    ]
    for given in ({"fixed_mask": masks[0]}, {"moving_mask": masks[1]}, dict(zip(MASKS, masks, strict=True))):
        found = register(*images, "TV-L1", spacing=(2.0, 2.0), **given)
        assert judge(*images, found.field, spacing=(2.0, 2.0), **given) == found.verdict == Verdict("good")
        tensors = {name: torch.from_numpy(mask) for name, mask in given.items()}
        assert judge(*map(torch.from_numpy, images), found.field, spacing=(2.0, 2.0), **tensors).level == "good"
        assert judge(*images, found.field, spacing=(2.0, 2.0)).level == "failed"


@pytest.mark.release
def test_the_verdict_is_that_of_judge_images_also_of_a_stack_with_masks_and_an_affine_start(pair, result):
    expected = judge_images(pair.fixed, pair.moving, result.transform)
    assert isinstance(result.verdict, Verdict)
    assert (result.verdict.level, result.verdict.reasons) == (expected.level, expected.reasons)
    heart, grid = phantom(5, (24, 22, 20), 5.0), Grid.plain((24, 22, 20), (5.0, 5.0, 15.0))
    parts = heart.fixed, heart.moving, heart.fixed_labels, heart.moving_labels
    fixed, moving, *labels = (Image(part[0, 0].numpy(), grid) for part in parts)
    masks = (image.with_array((image.array > 0.05).astype(np.uint8)) for image in (fixed, moving))
    affine = Affine("rigid", np.eye(3), np.array([0.0, 0.0, 2.0]), np.zeros(3))
    options = dict(zip(MASKS, masks, strict=True)) | {"affine": affine}
    run = register_images(fixed, moving, "TV-L1", **options)
    metrics, verdict = run.metrics(*labels), judge_images(fixed, moving, run.transform, *labels, **options)
    assert metrics["folding_strict_percent"] == 0
    assert (verdict.level, [*verdict.reasons]) == (metrics["verdict"]["level"], metrics["verdict"]["reasons"])


def test_advice_is_in_the_words_of_python_and_in_files_in_those_of_the_command(pair, larger_pair):
    mirrored = pair.moving.with_array(np.roll(pair.moving.array[::-1], 12, 0))
    failed = register_images(pair.fixed, mirrored, METHOD)
    assert failed.verdict.level != "good"
    assert failed.verdict.try_
    assert not any("--" in advice for advice in failed.verdict.try_)
    heart = larger_pair
    bright = heart.moving.with_array(2 * heart.moving.array + 100)
    verdict = metrics_of(register_images(heart.fixed, bright, "TV-L1", brightness="keep"))["verdict"]
    assert (verdict["level"], "--brightness match" in verdict["try"]) == ("look", True)


def test_nothing_is_advised_that_was_done_or_is_recorded(pair, result):
    still = np.eye(2), np.zeros(2), np.zeros(2)
    matched = RegistrationOptions(match_intensities=True)
    run = run_of(given(pair, result.transform, affine=Affine("affine", *still), options=matched))
    assert (run.method, run.affine, run.is_matched) == ("", "affine", True)
    kept = RegistrationOptions(brightness="keep")
    run = run_of(replace(result, affine=Affine("rigid", *still), options=kept))
    assert (run.method, run.affine, run.is_brightness_kept) == (result.method, "rigid", True)
    assert not run_of(result).has_masks
    folded = np.random.default_rng(0).normal(size=(2, *pair.fixed.array.shape)).astype(np.float32)
    for folds in ("keep", "repair"):
        found = replace(register(pair.fixed.array, pair.moving.array, METHOD, folds=folds), field=folded)
        assert found.metrics()["options"]["folds"] == folds
        assert ('`folds="repair"`' in found.verdict.try_) == (folds == "keep")


# What is refused.


def test_labels_are_on_the_grid_of_their_image(pair, result, on_arrays):
    with pytest.raises(BadInput, match="label maps on their grid"):
        on_arrays.metrics(np.zeros((3, 3), int), pair.moving_labels.array)
    for labels in (pair.fixed_labels, "labels.nii.gz", pair.fixed_labels.array.tolist()):
        with pytest.raises(BadInput, match=r"fixed_labels are a .*: give an array or a tensor"):
            on_arrays.metrics(labels, pair.moving_labels.array)
    with pytest.raises(BadInput, match=r"^fixed_labels is not on the grid of"):
        result.metrics(Image(np.ones((3, 3), int), Grid.plain((3, 3), (1.0, 1.0))), pair.moving_labels)


def test_images_are_no_labels(pair, result, on_arrays):
    """Whole numbers, as scanners give them, and others; of arrays too."""
    whole = pair.moving.with_array((500 * pair.moving.array).astype(np.int16))
    for image, words in ((whole, "numbers that change from voxel to voxel"), (pair.moving, "not whole num")):
        with pytest.raises(BadInput, match=f"moving.* holds .*{words}.*: it is an image, not a label map; give"):
            result.metrics(pair.fixed_labels, image)
        with pytest.raises(BadInput, match=f"moving_labels holds .*{words}.*: it is an image, not a label map; give"):
            on_arrays.metrics(pair.fixed_labels.array, image.array)


# What a notebook shows.


class Elements(HTMLParser):
    """The elements of a text, with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def check_card(html):
    """Only elements that do nothing, and pictures that are in the text itself."""
    elements = Elements(html).found
    allowed = {"div", "p", "b", "ul", "li", "figure", "figcaption", "img", "table", "tr", "td"}
    assert {tag for tag, _ in elements} <= allowed
    assert {name for _, attributes in elements for name in attributes} <= {"style", "src", "alt"}
    assert all(a["src"].startswith("data:image/png;base64,") for tag, a in elements if tag == "img")
    assert "url(" not in html


@pytest.mark.release
def test_figures_and_cards_show_themselves_and_tell_the_verdict(pair, result, on_arrays):
    for shown in (result, result.transform, pair.fixed, on_arrays):
        assert shown.show()._repr_png_().startswith(b"\x89PNG")
        check_card(shown._repr_html_())
    assert len(result.show(pair.fixed_labels, pair.moving_labels).axes) > len(result.show().axes)
    words = {"good": "good", "look": "look at it", "failed": "failed"}[result.verdict.level]
    assert any(words in text for text in Elements(result._repr_html_()).texts)


@pytest.mark.parametrize("is_opposite", [False, True])
def test_pictures_of_opposite_contrasts_have_no_differences(pair, tmp_path, monkeypatch, is_opposite):
    """In Python, and in what the command draws."""
    moving = pair.moving.with_array(1 - pair.moving.array) if is_opposite else pair.moving
    found, drawn = register_images(pair.fixed, moving, "identity"), []
    monkeypatch.setattr("vrnet.report.figures.save", lambda figure, path: drawn.append(figure))
    write_overview(tmp_path / "overview.png", found)
    for figure in (found.show(), *drawn):
        titles = [ax.get_title() for ax in figure.axes]
        assert sum("in turns" in title for title in titles) == 2 * is_opposite
        assert sum("− fixed|" in title for title in titles) == 2 * (not is_opposite)
    assert len(drawn) == 1


@pytest.mark.release
def test_names_never_become_code_in_a_notebook():
    """Those of images and cines: whatever a file is called, its card shows the name as it is."""
    beat = cycle(0, (40, 40), (4.5, 4.5), frames=3)
    grid = Grid.plain((40, 40), beat.spacing)
    cine = Cine(beat.frames.numpy(), grid, beat.times_ms, HOSTILE)
    tracked = track(cine, METHOD, labels=Image(beat.labels.numpy(), grid, HOSTILE))
    for shown in (cine, cine.image(0), tracked):
        html = shown._repr_html_()
        check_card(html)
        assert "alert('x')" in "".join(Elements(html).texts)
        assert shown.show()._repr_png_().startswith(b"\x89PNG")


def test_volumes_are_shown_too():
    shape = (24, 20, 12)
    image = Image(np.random.default_rng(0).random(shape).astype(np.float32), Grid.plain(shape, (2.0, 2.0, 4.0)))
    u = np.zeros((3, *shape), np.float32)
    u[0, :, :, 7] = 2.0
    for shown in (image, Transform.from_voxels(u, image.grid)):
        check_card(shown._repr_html_())
        assert len(shown.show().axes) >= 3
    assert "slice 8" in Transform.from_voxels(u, image.grid).show().get_suptitle()
