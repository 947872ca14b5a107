"""Strain of motions whose strain is known, in every order of axes; of phantoms, whose strain is exact."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.interpolate import CubicSpline, RectBivariateSpline

from tests.cardiac.hearts import MYO, SPACING, contracted_towards, moved_by, phantom_stack, ring, stack, turned
from tests.phantoms import cycle
from vrnet.cardiac.strain import (
    MEASURES,
    Strain,
    green_strain,
    keep_wall_area,
    moved_contours,
    strain,
    strain_map,
    wall_voxels,
)
from vrnet.cardiac.wall import Insertions, LeftOut, anterior_direction, find_rings
from vrnet.errors import BadInput
from vrnet.images.grid import Grid
from vrnet.report.cine import peak_table

SLICE = (1.25, 1.25)
NAMES = [measure.name for measure in MEASURES]
SEGMENTS = [f"segment {k}" for k in range(1, 17)]
shapes = pytest.mark.parametrize("heart", [(ring(), SLICE), (stack(), SPACING)], ids=["slice", "stack"])


def at_once(found):
    """The global strain of the only frame, by every measure."""
    return dict(zip(NAMES, found.percent[0, :, 0].tolist(), strict=True))


@shapes
def test_a_rotation_strains_nothing(heart):
    labels, spacing = heart
    found = strain(moved_by(turned(0.4), labels.shape, spacing, (20.0, 51.0)), labels, spacing)
    assert_allclose(found.percent[~np.isnan(found.percent)], 0, atol=1e-3)


@shapes
def test_a_uniform_contraction_has_the_strain_of_its_factor(heart):
    """By 10 %: E = (.9² − 1)/2 = −9.5 %, and every length is 10 % shorter."""
    labels, spacing = heart
    found = at_once(strain(moved_by(0.9 * np.eye(2), labels.shape, spacing, (30.0, 31.0)), labels, spacing))
    assert list(found.values()) == pytest.approx([-9.5] * 4 + [-10] * 4, abs=1e-3)


@shapes
def test_a_wall_that_would_grow_keeps_its_area_and_its_inner_contour(heart):
    """All is stretched by a tenth, and so the wall by 21 %: it keeps 4 %. A wall that shrinks is as it was."""
    labels, spacing = heart
    across = 2 if labels.ndim == 3 else None
    middle = np.argwhere(labels == MYO).mean(0)[:2] * spacing[:2]
    u = np.concatenate([moved_by(f * np.eye(2), labels.shape, spacing, middle) for f in (1.0, 1.1, 0.9)])
    kept = keep_wall_area(u, labels, spacing, across, MYO)
    assert all(areas / areas[0] == pytest.approx([1, 1.21, 0.81], abs=1e-6) for areas in kept.area_mm2.values())
    assert_array_equal(kept.fields[[0, 2]], u[[0, 2]])
    again = keep_wall_area(kept.fields, labels, spacing, across, MYO)
    assert all(areas / areas[0] == pytest.approx([1, 1.04, 0.81], abs=0.01) for areas in again.area_mm2.values())
    before, after = (strain(fields, labels, spacing, across=across) for fields in (u, kept.fields))
    inner = [found.curve("endocardial_length") for found in (before, after)]
    assert_allclose(*inner, atol=0.3)
    assert after.curve("wall_thickness")[1] < before.curve("wall_thickness")[1] - 10


def test_pixels_that_are_no_squares_are_measured_in_millimetres():
    labels, spacing = ring(shape=(100, 60), spacing=(0.9, 1.5)), (0.9, 1.5)
    found = strain(moved_by(0.9 * np.array(turned(0.3)), labels.shape, spacing), labels, spacing)
    assert [*at_once(found).values()] == pytest.approx([-9.5] * 4 + [-10] * 4, abs=1e-3)


def test_a_ring_that_keeps_its_area_thickens_as_it_narrows():
    """r'² = r² − c keeps areas: contours and thickness have formulas, E its integral over the ring."""
    shape, endo, epi, c = (120, 120), 20.0, 30.0, 150.0
    x = (np.indices(shape) - 59.5) * 0.8
    r = np.hypot(*x)
    u = (np.sqrt(np.maximum(r**2 - c, 0.3 * r**2)) / np.maximum(r, 1e-6) - 1) * x / 0.8
    found = at_once(strain(u[None], ring(shape, (0.8, 0.8), endo, epi), (0.8, 0.8)))
    moved = [np.sqrt(radius**2 - c) for radius in (endo, 25.0, epi)]
    lengths = [100 * (after / before - 1) for after, before in zip(moved, (endo, 25.0, epi), strict=True)]
    mean = -100 * c * np.log(epi / endo) / (epi**2 - endo**2)
    assert found["green_circumferential"] == pytest.approx(mean, abs=0.1)
    assert found["midwall_length"] == pytest.approx(lengths[1], abs=0.1)
    assert found["endocardial_length"] == pytest.approx(lengths[0], abs=0.2)
    assert found["epicardial_length"] == pytest.approx(lengths[2], abs=0.1)
    assert found["wall_thickness"] == pytest.approx(100 * (25 / moved[1] - 1), abs=0.3)


DIRECTIONS = {7: -90, 8: -150, 9: 150, 10: 90, 11: 30, 12: -30}
"""The middle of each mid-ventricular segment of the drawn ring: the RV at 180 degrees, the front at -90."""
LAYOUTS = [(order, flips) for order in permutations(range(3)) for flips in product((False, True), repeat=3)][::5]
"""Ten of the 48: every order of the axes, and each time other axes run the other way."""


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("segment", [7, 9])
def test_segments_are_where_they_should_be_in_every_order_of_axes(segment):
    """The part that contracts is found in its segment, however the array is stored."""
    labels = np.repeat(ring()[..., None], 1, -1)
    u = contracted_towards(np.radians(DIRECTIONS[segment]), labels.shape, SPACING)[0]
    for order, flips in LAYOUTS:
        axes = [i for i, flipped in enumerate(flips) if flipped]
        grid = Grid.plain(labels.shape, SPACING).reordered(order).flipped(axes)
        field = np.stack([u[axis].transpose(order) * (-1 if flips[i] else 1) for i, axis in enumerate(order)])
        stored = np.flip(field, [1 + axis for axis in axes])[None]
        found = strain(stored, np.flip(labels.transpose(order), axes), grid.spacing, anterior=anterior_direction(grid))
        by_segment = [found.curve("green_circumferential", name)[0] for name in SEGMENTS]
        assert np.nanargmin(by_segment) + 1 == segment, (order, flips)


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_smaller_rings_are_the_apex(is_reversed):
    """Only the last slice moves, towards the septum: segment 14."""
    labels = stack(6)
    u = contracted_towards(np.pi, labels.shape, SPACING)
    u[..., :5] = 0
    if is_reversed:
        labels, u = labels[..., ::-1], u[..., ::-1]
    found = strain(u, labels, SPACING)
    assert found.slices == tuple(range(6))[:: -1 if is_reversed else 1]
    assert np.argmin([found.curve("green_circumferential", name)[0] for name in SEGMENTS]) + 1 == 14
    assert found.curve("green_circumferential", "basal")[0] == pytest.approx(0, abs=1e-9)
    assert found.curve("green_circumferential", "apical")[0] < -0.5


def test_without_the_right_ventricle_there_are_no_segments_unless_insertions_are_given():
    labels = ring()
    labels[labels == 1] = 0
    u = moved_by(0.9 * np.eye(2), labels.shape, SLICE)
    alone, given = strain(u, labels, SLICE), strain(u, labels, SLICE, insertions=Insertions(-120.0, 120.0))
    assert alone.regions == ("global", "basal", "mid", "apical")
    assert alone.insertions is None
    assert given.regions[4:] == tuple(SEGMENTS)
    assert given.curve("green_radial", "segment 9")[0] == pytest.approx(-9.5, abs=1e-3)


def test_slices_without_a_closed_ring_are_left_out_by_name():
    labels = stack(6)
    labels[..., 0] = 0
    labels[20:60, 36:, 1] = 0
    labels[..., 2][labels[..., 2] == 3] = MYO
    labels[..., 3] = ring(endo=2.5, epi=20.0)
    found = strain(np.zeros((1, 3, *labels.shape)), labels, SPACING)
    assert found.slices == (4, 5)
    assert found.left_out == (
        LeftOut(0, "no wall is labelled"),
        LeftOut(1, "the wall is not a closed ring"),
        LeftOut(2, "the wall is not a closed ring"),
        LeftOut(3, "the cavity inside the wall is smaller than 30 mm²"),
    )


@pytest.mark.parametrize(
    ("slices", "spacing_mm", "said"),
    [
        (4, 8.0, "thirds of the slices that strain is of: these 4 cover 32 mm, less than a ventricle"),
        (4, 10.0, None),
        (1, 8.0, "The level of the one slice is not known"),
    ],
)
def test_levels_are_doubted_where_slices_cover_less_than_a_ventricle(slices, spacing_mm, said):
    labels = np.stack([ring()] * slices, -1)
    found = strain(np.zeros((1, 3, *labels.shape)), labels, (1.25, 1.25, spacing_mm), across=2)
    assert (found.doubt_about_levels is None) if said is None else (said in found.doubt_about_levels)
    (note,) = [note for note in peak_table(found)["notes"] if "evel" in note] or [None]
    assert note == (f"{found.doubt_about_levels}." if said else None)


def test_peaks_are_the_lowest_of_shortening_and_the_highest_of_thickening():
    labels = ring()
    u = np.concatenate([moved_by(s * np.eye(2), labels.shape, SLICE) for s in (1.0, 0.95, 0.9, 1.05)])
    found = strain(u, labels, SLICE, times_ms=(0.0, 30.0, 60.0, 90.0))
    peak = found.peak("midwall_length")
    assert (peak.percent, peak.frame, peak.time_ms) == (pytest.approx(-10, abs=1e-3), 2, 60.0)
    assert found.peak("wall_thickness").frame == 3
    assert found.peak("wall_thickness", "segment 1") is None
    assert strain(u, labels, SLICE).peak("midwall_length").time_ms is None


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("fields", "labels", "message"),
    [
        (np.zeros((1, 2, 8, 8)), ring(), "fields of shape"),
        (np.zeros((1, 2, 72, 72)), np.zeros((72, 72), np.uint8), "the wall of the left ventricle is not labelled"),
        (np.zeros((1, 4, 4, 4, 4, 4)), np.zeros((4, 4, 4, 4), np.uint8), "2 or 3 axes"),
        (np.zeros((1, 2, 72, 72)), np.tri(72, dtype=np.uint8) * 2, "no slice has a closed ring of wall, label 2"),
    ],
)
def test_what_cannot_be_measured_is_refused(fields, labels, message):
    with pytest.raises(BadInput, match=message):
        strain(fields, labels, SLICE)


@pytest.mark.release
@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("heart", [("dilated",), ("infarct",), ("normal", True)], ids=str)
def test_exact_fields_have_the_exact_strain(heart):
    """Of phantoms, within .3 points at every frame, by every measure; Green's within .1."""
    c = phantom_stack(*heart)
    found, exact = strain(c.fields.numpy(), c.labels.numpy(), c.spacing), c.strain
    used = list(found.slices)
    for name, truth in (("green_circumferential", exact.circumferential), ("green_radial", exact.radial)):
        assert_allclose(found.curve(name), truth[..., used].flatten(1).nanmean(1), atol=0.1)
    middle = exact.midwall_mm[:, used].sum(1)
    measured = {
        "endocardial_length": exact.endo_mm[:, used].sum(1),
        "midwall_length": middle,
        "epicardial_length": exact.epi_mm[:, used].sum(1),
        "wall_thickness": exact.wall_mm2[:, used].sum(1) / middle,
    }
    for name, truth in measured.items():
        assert_allclose(found.curve(name), 100 * (truth / truth[0] - 1), atol=0.3)


@pytest.mark.usefixtures("as_users_run")
def test_the_segments_of_an_infarct_contract_least():
    c = cycle(3, pathology="infarct", frames=3)
    found = strain(c.fields.numpy(), c.labels.numpy(), c.spacing)
    by_segment = [found.curve("green_circumferential", name)[1] for name in SEGMENTS[6:12]]
    assert set(np.argsort(by_segment)[-2:] + 7) == {7, 8}


def test_a_curve_that_there_is_not_names_those_that_there_are():
    found = strain(np.zeros((1, 2, *ring().shape)), ring(), (1.0, 1.0))
    for words in (("circumferential",), ("green_radial", "septum")):
        with pytest.raises(BadInput, match=rf'no strain "{words[-1]}": choose one of g.*, '):
            found.curve(*words)


# Splines through fields, against SciPy's, and against functions whose derivative is known.


@pytest.fixture
def rings():
    return find_rings(ring()[..., None] == MYO, SLICE)[0]


@pytest.fixture
def motion():
    """Two frames of a smooth motion within and across slices, in mm."""
    x, y = (np.indices((72, 72)) - 35.5) / 12
    waves = [[np.sin(x + k) * np.cos(y - c) for c in range(3)] for k in range(2)]
    return np.array(waves)[..., None]


def test_strain_has_the_slopes_of_scipys_cubic_spline(motion, rings):
    """½(|e + ∂u/∂e|² − 1) away from the centre."""
    voxels = wall_voxels(rings, SLICE)
    at = np.arange(72)
    slopes = (CubicSpline(at, motion, axis=2 + axis).derivative()(at)[:, :, *voxels.index] / 1.25 for axis in (0, 1))
    stretched = sum(slope * e for slope, e in zip(slopes, voxels.away, strict=True))
    stretched[:, :2] += voxels.away
    assert_allclose(green_strain(motion, voxels, SLICE)[0], 50 * ((stretched**2).sum(1) - 1), atol=1e-3)


def test_shear_across_slices_counts_as_length(rings):
    """u = (0, 0, a x): |e + ∂u/∂e|² = 1 + a² cos², which is a²/2 on average over all directions."""
    u = np.zeros((1, 3, 72, 72, 1))
    u[0, 2, ..., 0] = 0.2 * np.arange(72)[:, None] * 1.25
    E = green_strain(u, wall_voxels(rings, SLICE), SLICE)
    assert_allclose(E.mean(-1)[:, 0], 50 * 0.04 / 2, rtol=0.01)


def test_contours_go_where_a_spline_surface_says(rings, motion):
    points = moved_contours(motion, rings, SLICE)
    still = rings[0].contours()
    assert_allclose(np.moveaxis(points[0, :2, :, 0], 0, -1), still)
    for t in range(2):
        for c in range(3):
            surface = RectBivariateSpline(np.arange(72), np.arange(72), motion[t, c, ..., 0])
            moved = surface.ev(*(still[..., i] / 1.25 for i in range(2)))
            before = still[..., c] if c < 2 else 0
            assert_allclose(points[1 + t, c, :, 0], before + moved, atol=1e-5)


# Strain as a picture.

MAPPED, EDGES = (64, 60, 3), (1.5, 1.25, 8.0)


@pytest.fixture
def rings_and_a_disc():
    """A ring of wall in the first two slices, a full disc in the third."""
    x, y = (h * (np.arange(n) - n / 2) for n, h in zip(MAPPED[:2], EDGES[:2], strict=True))
    radius = np.hypot(x[:, None], y)
    disc = np.where(radius < 25, 2, 0)
    ring = np.where(radius < 16, 3, disc)
    return np.stack([ring, ring, disc], -1)


def test_the_strain_of_a_linear_motion_is_that_of_its_matrix(rings_and_a_disc):
    """½(|Fe|² − 1) for F = I + A, e away from the centre and around it."""
    A = np.array([[-0.1, 0.05], [0.02, 0.08]])
    x = np.stack(np.meshgrid(*(np.arange(n) for n in MAPPED), indexing="ij")).astype(float)
    middle = np.array([MAPPED[0] / 2, MAPPED[1] / 2])
    offset = np.moveaxis(x[:2], 0, -1) - middle
    mm = offset * EDGES[:2]
    u = np.zeros((1, 3, *MAPPED))
    u[0, :2] = np.moveaxis(mm @ A.T / EDGES[:2], -1, 0)
    found = strain_map(u, rings_and_a_disc, EDGES, across=2)
    at = (found.index[:2].T - middle) * EDGES[:2]
    away = at / np.linalg.norm(at, axis=1, keepdims=True)
    around = np.stack([-away[:, 1], away[:, 0]], 1)
    for values, e in ((found.radial, away), (found.circumferential, around)):
        expected = 50 * (np.square(e @ (np.eye(2) + A).T).sum(1) - 1)
        assert_allclose(values[0], expected, atol=0.6)  # the centre is that of the cavity's voxels


def test_its_mean_is_the_global_strain(rings_and_a_disc):
    u = np.random.default_rng(0).normal(0, 0.3, (2, 3, *MAPPED))
    u[:, 2] = 0
    found, whole = strain_map(u, rings_and_a_disc, EDGES), strain(u, rings_and_a_disc, EDGES)
    assert_allclose(found.circumferential.mean(1), whole.curve("green_circumferential"), rtol=1e-6)
    assert_allclose(found.radial.mean(1), whole.curve("green_radial"), rtol=1e-6)
    inside = np.zeros(MAPPED, bool)
    inside[tuple(found.index)] = True
    assert (inside == (rings_and_a_disc == 2) * [True, True, False]).all()
    assert strain_map(u, np.minimum(rings_and_a_disc, 1), EDGES) is None


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1)])
def test_twist_is_the_known_turn_of_the_apex_against_the_base_however_axes_run(order):
    """Slices that turn as wholes, by 2 degrees each: positive where the apex turns counterclockwise seen thence."""
    n, slices, spacing = 48, 5, (1.5, 1.5, 8.0)
    x, y = np.mgrid[:n, :n] * 1.5 - 35.0
    labels = np.zeros((n, n, slices), np.uint8)
    fields = np.zeros((3, 3, n, n, slices))
    for k in range(slices):  # the apex, where rings are smaller, has the highest number
        radius = np.hypot(x, y)
        labels[..., k] = np.where(radius < 14 - k, 3, np.where(radius < 24 - k, 2, 0))
        for t in range(3):
            turn = t * np.radians(2.0 * k)
            c, s = np.cos(turn), np.sin(turn)
            fields[t, 0, ..., k] = (c * x - s * y - x) / 1.5
            fields[t, 1, ..., k] = (s * x + c * y - y) / 1.5
    back = np.argsort(order)
    parts = [fields[:, [*order]].transpose(0, 1, *(2 + axis for axis in order)), labels.transpose(order)]
    odd = order == (1, 0, 2)
    found = strain(*parts, tuple(spacing[axis] for axis in order), across=int(back[2]), is_mirrored=odd)
    assert_allclose(np.sort(found.rotation_deg[:, 2]), [0.0, 4.0, 8.0, 12.0, 16.0], atol=0.02)
    assert_allclose(found.twist_deg, [0.0, 8.0, 16.0], atol=0.02)  # the third axis leads from base to apex
    assert found.twist["torsion_degrees_per_cm"] == pytest.approx(16.0 / 3.2, abs=0.01)
    mirrored = strain(fields[..., ::-1], labels[..., ::-1], spacing, across=2, is_mirrored=True)
    assert_allclose(mirrored.twist_deg, found.twist_deg, atol=0.02)


def test_strain_rates_and_dyssynchrony_are_those_of_a_known_curve():
    times = tuple(np.arange(20) * 50.0)
    curve = -10 * (1 - np.cos(2 * np.pi * np.arange(20) / 20))  # of one second: its slope is 20 π % per second at most
    late = np.roll(curve, 2)
    names = ("global", "segment 1", "segment 2")
    percent = np.stack([np.tile(c, (8, 1)) for c in (curve, curve, late)])
    known = Strain(percent, names, times, (0,), (), None, np.zeros((2, 3, 24, 20)), percent[:1], np.zeros((1, 20)))
    assert known.strain_rates["shortening"] == pytest.approx(-20 * np.pi, rel=0.02)
    assert known.strain_rates["lengthening"] == pytest.approx(20 * np.pi, rel=0.02)
    assert known.dyssynchrony == pytest.approx(50.0)  # 0 and 100 ms
    assert replace(known, times_ms=None).strain_rates is None
    assert replace(known, times_ms=None).dyssynchrony == pytest.approx(1.0)
    assert known.twist is None
