import pytest
import torch

from vrnet.errors import BadInput
from vrnet.fields.calculus import compose
from vrnet.variational.linearize import Masks
from vrnet.variational.template import ThroughTemplate, recentre


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
    assert torch.equal(ThroughTemplate(T, w, solver).fields_to(images, (2.0,) * d), fields)
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
