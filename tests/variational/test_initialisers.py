import pytest
import torch
from benchmarks.template import fields_to

from vrnet.errors import BadInput
from vrnet.fields.calculus import compose, warp, zeros
from vrnet.variational.contrast import learn_curves
from vrnet.variational.initialisers import (
    CoarseToFine,
    RelearnContrast,
    ThroughTemplate,
    coarser_shape,
    coarser_spacing,
    recentre,
)
from vrnet.variational.linearize import Masks


def test_coarser_halves_only_axes_with_enough_voxels():
    assert coarser_shape((160, 161, 9)) == (80, 81, 9)
    assert coarser_shape((31, 32)) == (31, 16)


def test_coarser_leaves_thick_slices_alone_until_voxels_are_as_wide():
    assert coarser_shape((128, 128, 40), (1.0, 1.0, 3.0)) == (64, 64, 40)
    assert coarser_shape((64, 64, 40), (2.0, 2.0, 3.0)) == (32, 32, 20)
    assert coarser_shape((64, 64, 20), (2.0, 2.0, 1.0)) == (32, 32, 20), "a short axis cannot be halved, however fine"


def test_the_unit_of_the_spacing_does_not_matter():
    assert (
        coarser_shape((64, 64, 64), (1.0, 2.0, 1.2)) == coarser_shape((64, 64, 64), (10.0, 20.0, 12.0)) == (32, 64, 32)
    )


def test_a_coarser_grid_keeps_the_extent():
    assert coarser_spacing((1.0, 2.0), (41, 9), (21, 9)) == (2.0, 2.0)
    assert coarser_spacing(None, (41, 9), (21, 9)) == (2.0, 1.0)


def test_a_level_brings_the_coarse_field_back_in_fine_voxels(d, random):
    shape = (33,) * d
    level = CoarseToFine(lambda I0, I1, spacing, masks: zeros(I0) + 1.5)
    u = level(random(1, 1, *shape), random(1, 1, *shape))
    torch.testing.assert_close(u, torch.full((1, d, *shape), 3.0, dtype=torch.float64))


def test_below_the_coarsest_level_there_is_no_motion(d, random):
    def never(I0, I1, spacing):
        raise AssertionError("no coarser level exists")

    I = random(1, 1, *(16,) * d)
    assert not CoarseToFine(never)(I, I).any()


def test_each_round_shows_both_contrasts_as_the_field_of_the_last_teaches_them(d, h, smooth_image):
    I0, I1, inside = (smooth_image((12,) * d, 1.0, seed) for seed in range(3))
    masks, seen = Masks(inside, inside), []

    def solve(A0, A1, spacing, given):
        assert spacing == h
        assert given is masks
        seen.append((A0, A1))
        return zeros(I0) + len(seen)

    u = RelearnContrast(solve, rounds=3)(I0, I1, h, masks)
    assert torch.equal(u, zeros(I0) + 3)
    for k, shown in enumerate(seen):
        v = zeros(I0) + k
        expected = learn_curves(I0, warp(I1, v), h, masks.weight(v)).apply(I0, I1)
        torch.testing.assert_close(shown, expected)
    assert len(seen) == 3


# Through a template.


class Recorder:
    """A solver that finds a field of its own for each pair, and keeps what it was given."""

    def __init__(self, fields):
        self.fields = fields

    def __call__(self, d, device):
        def solve(I0, I1, spacing=None, masks=None):
            self.seen = I0, I1, spacing, masks
            return self.fields

        return solve


@pytest.fixture
def pair(random, d):
    """(a template, its weight, fixed, moving, two fields)."""
    shape = (8, 7, 6)[:d]
    T, w, I0, I1 = (random(1, 1, *shape).float() for _ in range(4))
    return T, w.abs(), I0, I1, 0.3 * random(2, d, *shape).float()


def test_two_images_meet_on_the_template(pair, d):
    T, w, I0, I1, fields = pair
    solver = Recorder(fields)
    found = ThroughTemplate(T, w, solver)(I0, I1, (2.0,) * d)
    assert torch.equal(found, compose(fields[1:], fields[:1]))
    from_, to, spacing, masks = solver.seen
    assert torch.equal(from_, torch.cat([I0, T]))
    assert torch.equal(to, torch.cat([T, I1]))
    assert spacing == (2.0,) * d
    assert torch.equal(masks.fixed, torch.cat([torch.ones_like(w), w]))
    assert torch.equal(masks.moving, torch.cat([w, torch.ones_like(w)]))


def test_masks_of_the_images_count_beside_the_weight_of_the_template(pair):
    T, w, I0, I1, fields = pair
    solver, inside = Recorder(fields), Masks(torch.rand_like(I0), torch.rand_like(I1))
    ThroughTemplate(T, w, solver)(I0, I1, None, inside)
    masks = solver.seen[-1]
    assert torch.equal(masks.fixed, torch.cat([inside.fixed, w]))
    assert torch.equal(masks.moving, torch.cat([w, inside.moving]))


def test_fields_to_images_start_on_the_template_and_heed_its_weight(pair, d):
    T, w, I0, I1, fields = pair
    solver, images = Recorder(fields), torch.cat([I0, I1])
    assert torch.equal(fields_to(ThroughTemplate(T, w, solver), images, (2.0,) * d), fields)
    from_, to, spacing, masks = solver.seen
    assert torch.equal(from_, torch.cat([T, T]))
    assert torch.equal(to, images)
    assert spacing == (2.0,) * d
    assert torch.equal(masks.fixed, torch.cat([w, w]))
    assert torch.equal(masks.moving, torch.ones_like(images))


def test_a_template_has_no_parameters_and_keeps_only_itself(pair):
    T, w, *_, fields = pair
    model = ThroughTemplate(T, w, Recorder(fields))
    assert not [*model.parameters()]
    assert set(model.state_dict()) == {"image", "weight"}


def test_on_a_grid_of_another_shape_it_keeps_its_centre():
    I = torch.arange(5.0).view(1, 1, 5, 1).expand(1, 1, 5, 3)
    assert recentre(I, (3, 3))[0, 0, :, 0].tolist() == [1, 2, 3]
    assert recentre(I, (9, 3))[0, 0, :, 0].tolist() == [0, 0, 0, 1, 2, 3, 4, 4, 4]
    assert recentre(I, (9, 3), beyond=7.0)[0, 0, :, 0].tolist() == [7, 7, 0, 1, 2, 3, 4, 7, 7]
    assert recentre(I, (3, 5), beyond=7.0)[0, 0].tolist() == [[7, k, k, k, 7] for k in (1, 2, 3)]
    assert torch.equal(recentre(recentre(I, (8, 6)), (5, 3)), I)


def test_beyond_the_template_nothing_counts(pair, d):
    T, w, *_, fields = pair
    wide = torch.zeros(1, 1, *(n + 4 for n in T.shape[2:]))
    seen, counts = ThroughTemplate(T, w, Recorder(fields)).on_grid(wide)
    inside = (slice(None),) * 2 + (slice(2, -2),) * d
    assert torch.equal(seen[inside], T)
    assert torch.equal(counts[inside], w)
    counts[inside] = 0
    assert not counts.any()


def test_an_image_far_larger_than_the_template_is_refused(pair, d):
    T, w, *_, fields = pair
    model = ThroughTemplate(T, w, Recorder(fields))
    larger = torch.zeros(1, 1, 2 * T.shape[2], *T.shape[3:])
    model.on_grid(larger)
    with pytest.raises(BadInput, match="cut them to what it shows"):
        model.on_grid(torch.cat([larger, larger[:, :, :1]], dim=2))
