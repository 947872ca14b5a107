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

from vrnet import (
    BadInput,
    Cine,
    Grid,
    Image,
    Transform,
    Verdict,
    judge,
    judge_images,
    register,
    register_images,
    track,
    write_image,
)
from vrnet.app.pair import describe_run, measure_transform, write_report_files
from vrnet.app.register import phantom_pair
from vrnet.phantom import phantom
from vrnet.phantom.cycle import cycle

MASKS = "fixed_mask", "moving_mask"
METHOD = "Gaussian-L2(levels=1,warps=2)"
HOSTILE = "<img src=x onerror=alert('x')>\"&amp;\n$x^2$"
pytestmark = pytest.mark.usefixtures("as_users_run")


@pytest.fixture(scope="module")
def pair():
    return phantom_pair(phantom(7, (48, 40), 5.0))


@pytest.fixture(scope="module")
def result(pair):
    return register_images(pair.fixed, pair.moving, METHOD)


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


def test_arrays_are_measured_as_images_on_the_plain_grid(pair, result):
    labels = pair.fixed_labels.array, pair.moving_labels.array
    on_arrays = register(pair.fixed.array, pair.moving.array, METHOD, spacing=pair.fixed.grid.spacing)
    by_images, by_arrays = result.metrics(pair.fixed_labels, pair.moving_labels), on_arrays.metrics(*labels)
    assert list(by_arrays) == list(by_images)
    assert by_arrays["dice"] == by_images["dice"]
    assert by_arrays["hausdorff_mm"] == by_images["hausdorff_mm"]
    assert by_arrays["similarity"] == pytest.approx(by_images["similarity"], rel=0.02)
    assert on_arrays.verdict == result.verdict
    of_tensors = register(*(torch.from_numpy(I.array) for I in (pair.fixed, pair.moving)), METHOD)
    assert of_tensors.metrics(*map(torch.from_numpy, labels))["dice"] == by_arrays["dice"]


def test_lengths_on_the_page_of_arrays_are_in_voxels_unless_a_spacing_is_given(pair, tmp_path):
    """Whatever is seen: in scripts, names may have millimetres in them."""
    images, labels = (pair.fixed.array, pair.moving.array), (pair.fixed_labels.array, pair.moving_labels.array)
    for spacing, unit in ((None, "voxels"), (pair.fixed.grid.spacing, "mm")):
        found = register(*images, METHOD, spacing=spacing)
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


def test_masks_of_arrays_count_in_what_is_measured(pair):
    inside = np.zeros(pair.fixed.array.shape, np.uint8)
    inside[10:30, 10:30] = 1
    found = register(pair.fixed.array, pair.moving.array, METHOD, fixed_mask=inside).metrics()
    difference = np.abs(pair.fixed.array - pair.moving.array)[inside != 0].mean()
    assert_allclose(found["similarity"]["mae_before"], difference, rtol=1e-5)
    assert found["masks"]["fixed"] == "the mask of fixed"


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


def test_the_verdict_is_that_of_judge_images(pair, result):
    expected = judge_images(pair.fixed, pair.moving, result.transform)
    assert isinstance(result.verdict, Verdict)
    assert (result.verdict.level, result.verdict.reasons) == (expected.level, expected.reasons)


def test_advice_is_given_in_the_words_of_python(pair):
    mirrored = pair.moving.with_array(np.roll(pair.moving.array[::-1], 12, 0))
    verdict = register_images(pair.fixed, mirrored, METHOD).verdict
    assert verdict.level != "good"
    assert verdict.try_
    assert not any("--" in advice for advice in verdict.try_)


def test_what_arrays_were_registered_with_is_known_to_what_is_said_of_them(pair):
    """Folds that were kept are advised to be repaired, and only these; metrics tell what was asked for."""
    images = pair.fixed.array, pair.moving.array
    folded = np.random.default_rng(0).normal(size=(2, *images[0].shape)).astype(np.float32)
    for folds in ("keep", "repair"):
        result = replace(register(*images, METHOD, folds=folds), field=folded)
        assert result.metrics()["options"]["folds"] == folds
        assert ('`folds="repair"`' in result.verdict.try_) == (folds == "keep")


def test_labels_are_on_the_grid_of_their_image(pair, result):
    on_arrays = register(pair.fixed.array, pair.moving.array, METHOD)
    with pytest.raises(BadInput, match="label maps on their grid"):
        on_arrays.metrics(np.zeros((3, 3), int), pair.moving_labels.array)
    for given in (pair.fixed_labels, "labels.nii.gz", pair.fixed_labels.array.tolist()):
        with pytest.raises(BadInput, match=r"fixed_labels are a .*: give an array or a tensor"):
            on_arrays.metrics(given, pair.moving_labels.array)
    with pytest.raises(BadInput, match=r"^fixed_labels is not on the grid of"):
        result.metrics(Image(np.ones((3, 3), int), Grid.plain((3, 3), (1.0, 1.0))), pair.moving_labels)


def test_images_are_no_labels(pair, result):
    """Whole numbers, as scanners give them, and others; of arrays too."""
    on_arrays = register(pair.fixed.array, pair.moving.array, METHOD)
    whole = pair.moving.with_array((500 * pair.moving.array).astype(np.int16))
    for image, words in ((whole, "different numbers that change from voxel to voxel"), (pair.moving, "not whole num")):
        with pytest.raises(BadInput, match=f"moving.* holds .*{words}.*: it is an image, not a label map; give"):
            result.metrics(pair.fixed_labels, image)
        with pytest.raises(BadInput, match=f"moving_labels holds .*{words}.*: it is an image, not a label map; give"):
            on_arrays.metrics(pair.fixed_labels.array, image.array)


def test_a_page_has_a_name_of_a_page(result, tmp_path):
    with pytest.raises(BadInput, match=r"\.html"):
        result.report(tmp_path / "page.pdf")


def test_figures_show_themselves_in_a_notebook(pair, result):
    on_arrays = register(pair.fixed.array, pair.moving.array, METHOD)
    for shown in (result, result.transform, pair.fixed, on_arrays):
        assert shown.show()._repr_png_().startswith(b"\x89PNG")
    assert len(result.show(pair.fixed_labels, pair.moving_labels).axes) > len(result.show().axes)


@pytest.mark.parametrize("is_opposite", [False, True])
def test_pictures_of_opposite_contrasts_have_no_differences(pair, tmp_path, monkeypatch, is_opposite):
    """In Python, and in what the command draws."""
    moving = pair.moving.with_array(1 - pair.moving.array) if is_opposite else pair.moving
    found, drawn = register_images(pair.fixed, moving, "identity"), []
    monkeypatch.setattr("vrnet.app.pair.save", lambda figure, path: drawn.append(figure))
    given = replace(pair, moving=moving)
    write_report_files(measure_transform(given, found.transform, found), tmp_path, [], describe_run(given, found))
    for figure in (found.show(), *drawn):
        titles = [ax.get_title() for ax in figure.axes]
        assert sum("in turns" in title for title in titles) == 2 * is_opposite
        assert sum("− fixed|" in title for title in titles) == 2 * (not is_opposite)
    assert len(drawn) == 1


def test_cards_stand_alone_and_tell_the_verdict(pair, result):
    for shown in (result, result.transform, pair.fixed, register(pair.fixed.array, pair.moving.array, METHOD)):
        check_card(shown._repr_html_())
    words = {"good": "good", "look": "look at it", "failed": "failed"}[result.verdict.level]
    assert any(words in text for text in Elements(result._repr_html_()).texts)


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
    assert "slice 8" in Transform.from_voxels(u, image.grid)._repr_html_()
