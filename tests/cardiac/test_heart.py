"""Two phases of a heart have volumes, ejection fractions and a mass, by labels or by a network; other things none."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import vrnet
from tests.cardiac.hearts import LV, MYO, ring
from tests.phantoms import phantom
from tests.skips import DATA
from vrnet import Grid, Image, register_images
from vrnet.cardiac.anatomy import has_heart_slice

ENDO, EPI, ENDO_ES = 16.0, 25.0, 12.0
SHAPE, SPACING = (144, 144), (0.625, 0.625, 8.0)


def rings(endo, slices=4):
    """A cylinder: a cavity of a radius in mm within a wall, and nothing in the first slice."""
    return np.stack([np.zeros(SHAPE, np.uint8), *[ring(SHAPE, SPACING[:2], endo, EPI)] * slices], -1)


def pair(fixed, moving, spacing=SPACING, **options):
    """Two label maps as a registered pair, which nothing moves."""
    grid = Grid.plain(fixed.shape, spacing)
    images = [Image(labels.astype(np.float32), grid) for labels in (fixed, moving)]
    maps = {"fixed_labels": Image(fixed, grid), "moving_labels": Image(moving, grid)}
    return register_images(*images, "identity", **(maps | options))


def test_volumes_are_those_of_cylinders_and_fractions_those_of_their_squared_radii():
    heart = pair(rings(ENDO), rings(ENDO_ES)).heart
    cylinder = np.pi * 4 * SPACING[2] / 1000
    assert_allclose(heart.sizes["LV"], (cylinder * ENDO**2, cylinder * ENDO_ES**2), rtol=0.01)
    assert_allclose(heart.fractions_percent["LV"], 100 * (1 - (ENDO_ES / ENDO) ** 2), atol=0.5)
    assert_allclose(heart.mass_g, 1.05 * cylinder * (EPI**2 - ENDO**2), rtol=0.01)
    assert heart.fractions_percent["RV"] == 0
    assert (heart.source, heart.level, heart.lv_slices) == ("given labels", None, (4, 4))
    assert heart.notes[0].endswith("of the LV 4 of 5 in fixed and 4 of 5 in moving")


def test_end_diastole_is_the_larger_cavity_whichever_image_that_is():
    maps = rings(ENDO), rings(ENDO_ES)
    first, second = (pair(*each).metrics()["heart"] for each in (maps, maps[::-1]))
    assert (first["end_diastole"], second["end_diastole"]) == ("fixed", "moving")
    assert first["ef_percent"] == second["ef_percent"]
    assert first["mass_g"] == second["mass_g"]
    assert first["lv_ml"]["fixed"] == second["lv_ml"]["moving"]


@pytest.mark.parametrize("is_stored_as_volume", [False, True])
def test_one_slice_has_areas_and_no_ejection_fraction(is_stored_as_volume):
    maps, spacing = [ring(SHAPE, SPACING[:2], endo, EPI) for endo in (ENDO, ENDO_ES)], SPACING[:2]
    if is_stored_as_volume:
        maps, spacing = [labels[..., None] for labels in maps], SPACING
    told = pair(*maps, spacing=spacing).metrics()["heart"]
    assert_allclose(told["lv_cm2"]["fixed"], np.pi * ENDO**2 / 100, rtol=0.01)
    assert_allclose(told["area_change_percent"]["LV"], 100 * (1 - (ENDO_ES / ENDO) ** 2), atol=0.5)
    assert not {"ef_percent", "mass_g", "lv_ml"} & told.keys()


def test_names_say_what_labels_are_and_what_is_not_labelled_has_no_number():
    maps = [np.where(labels == LV, 7, 0).astype(np.uint8) for labels in (rings(ENDO), rings(ENDO_ES))]
    assert pair(*maps).heart is None
    told = pair(*maps).metrics(label_names="7=LV")["heart"]
    assert told["ef_percent"]["LV"] > 0
    assert np.isnan([told["mass_g"], told["ef_percent"]["RV"], told["rv_ml"]["fixed"]]).all()


def test_labels_of_other_things_are_no_heart():
    boxes = np.zeros((40, 40, 8), np.uint8)
    for label in (1, 2, 3):
        boxes[10 * label : 10 * label + 8, 8:30, 2:6] = label
    assert pair(boxes, boxes[::-1].copy()).metrics().get("heart") is None
    assert pair(rings(ENDO), rings(ENDO_ES)).metrics(label_names="1=a,2=b,3=c").get("heart") is None


def test_what_lies_beyond_the_image_is_told():
    cut = rings(ENDO)[..., 1:]
    assert any("of fixed and moving: what lies beyond" in note for note in pair(cut, cut).heart.notes)
    open_wall = rings(ENDO)
    open_wall[:72, :, 2] = np.where(open_wall[:72, :, 2] == MYO, 0, open_wall[:72, :, 2])
    open_wall[..., 2][open_wall[..., 2] == LV] = 0
    assert any(note.startswith("fixed: in slice 3 the wall") for note in pair(open_wall, rings(ENDO)).heart.notes)


def test_arrays_have_volumes_where_their_spacing_is_known():
    maps = rings(ENDO), rings(ENDO_ES)
    images = [labels.astype(np.float32) for labels in maps]
    given = {"fixed_labels": maps[0], "moving_labels": maps[1]}
    in_mm = vrnet.register(*images, "identity", spacing=SPACING, slice_axis=2, **given)
    assert in_mm.heart.as_json() == pair(*maps).heart.as_json()
    assert vrnet.register(*images, "identity", slice_axis=2, **given).heart is None


def network_as(monkeypatch, levels, maps):
    """A segmenter that finds these maps, with these levels."""
    found = dict(zip(("fixed", "moving"), zip(levels, maps, strict=True), strict=True))

    def fake(image, **_):
        level, labels = found["fixed" if np.array_equal(image.array, maps[0]) else "moving"]
        numbers = dict.fromkeys(("rv", "across"), 1.0)
        confidence = np.full((1, labels.shape[-1]), 0.95)
        reasons = () if level == "good" else ("why",)
        return vrnet.Segmentation(image, labels, confidence, (), (), numbers, level, reasons)

    monkeypatch.setattr("vrnet.cardiac.anatomy.segment", fake)


@pytest.mark.parametrize(("levels", "expected"), [
    (("good", "good"), "good"), (("good", "look"), "look"), (("failed", "look"), "failed"),
])  # fmt: skip
def test_a_network_that_is_unsure_of_one_phase_is_unsure_of_both(monkeypatch, levels, expected):
    maps = rings(ENDO), rings(ENDO_ES)
    network_as(monkeypatch, levels, maps)
    result = pair(*maps, fixed_labels=None, moving_labels=None)
    assert "heart" not in result.metrics()  # nobody asked for it
    told = result.heart.as_json()
    assert (told["source"], told["level"]) == ("network", expected)
    assert ("ef_percent" in told) == (expected != "failed")
    assert bool(told["reasons"]) == (expected != "good")


def test_a_network_that_loses_the_base_of_one_phase_is_unsure(monkeypatch):
    shorter = rings(ENDO_ES)
    shorter[..., :3] = 0
    maps = rings(ENDO), shorter
    network_as(monkeypatch, ("good", "good"), maps)
    heart = pair(*maps, fixed_labels=None, moving_labels=None).heart
    assert (heart.level, heart.lv_slices) == ("look", (4, 2))
    assert "4 slices of fixed and 2 of moving" in heart.reasons[0]


def test_a_phantom_is_a_heart_and_noise_a_brain_or_a_blank_slice_is_none():
    patient = phantom(7, (80, 80), 3.6)
    assert has_heart_slice(Image(patient.fixed[0, 0].numpy(), Grid.plain((80, 80), patient.spacing)), "cpu")
    noise = np.random.default_rng(0).random((96, 96))
    disc = np.hypot(*(np.indices((128, 128)) - 63.5)) < 30
    blank = np.zeros((64, 64, 3))
    blank[..., 2] = np.arange(64)
    for array in (noise, disc.astype(float), blank):
        spacing = (1.8, 1.8, 10.0)[: array.ndim]
        assert not has_heart_slice(Image(array, Grid.plain(array.shape, spacing)), "cpu")


def test_the_default_of_slices_that_show_no_heart_is_the_solver_with_a_note():
    fixed, moving = np.random.default_rng(0).random((2, 48, 48, 2)).astype(np.float32)
    by_array = vrnet.register(fixed, moving, slice_axis=2, spacing=(1.8, 1.8, 10.0))
    grid = Grid.plain(fixed.shape, (1.8, 1.8, 10.0))
    for result in (by_array, register_images(Image(fixed, grid), Image(moving, grid))):
        assert (result.method, result.slice_axis) == ("Gaussian-LNCC", 2)
        assert "no short-axis heart" in result.metrics()["notes"][0]
    named = vrnet.register(fixed[..., 0], moving[..., 0], "short-axis")
    assert (named.method, named.notes) == ("short-axis", ())


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no real images at {DATA}")
def test_a_patient_has_the_ejection_fraction_of_the_masks_and_nearly_so_by_the_network():
    frames = [DATA / f"acdc/patient030/patient030_frame0{k}" for k in (1, 2)]
    images, masks = ([f"{frame}{end}.nii.gz" for frame in frames] for end in ("", "_gt"))
    by_masks = register_images(*images, "identity", fixed_labels=masks[0], moving_labels=masks[1]).heart
    by_network = register_images(*images, "identity").heart
    assert (by_masks.source, by_network.source, by_network.level) == ("given labels", "network", "good")
    assert_allclose(by_masks.fractions_percent["LV"], 74.6, atol=0.1)
    assert abs(by_network.fractions_percent["LV"] - by_masks.fractions_percent["LV"]) < 8
    assert_allclose(by_network.mass_g, by_masks.mass_g, rtol=0.1)
