import numpy as np
import pytest
import torch

from vrnet.registration.masks import inpaint

SIZES = {2: (40, 33), 3: (24, 20, 17)}


@pytest.fixture
def ball(d):
    """Which voxels are within a ball that reaches no border."""
    x = np.indices(SIZES[d]) - np.reshape(SIZES[d], (-1, *[1] * d)) / 2
    return torch.from_numpy(np.linalg.norm(x, axis=0) < 7)


def test_inside_nothing_changes(d, random, ball):
    I = random(*SIZES[d])
    assert torch.equal(inpaint(I, ball)[ball], I[ball])


def test_nothing_of_the_outside_is_left(d, random, ball):
    I, other = random(*SIZES[d]), 1e6 * random(*SIZES[d])
    assert torch.equal(inpaint(I, ball), inpaint(torch.where(ball, I, other), ball))


def test_values_outside_are_means_of_values_inside(d, random, ball):
    I = random(*SIZES[d])
    filled = inpaint(I, ball)
    assert I[ball].min() - 1e-6 <= filled.min()
    assert filled.max() <= I[ball].max() + 1e-6


def test_an_even_image_stays_even(d, ball):
    even = torch.full(SIZES[d], 3.5)
    torch.testing.assert_close(inpaint(torch.where(ball, even, -9.0), ball), even)


def test_the_image_goes_on_smoothly_across_the_border_of_the_mask(d, smooth_image, ball):
    """Steps between neighbours are less than twice as long across the border as inside."""
    filled = inpaint(smooth_image(SIZES[d], 3)[0, 0], ball)
    for axis in range(d):
        step, n = torch.diff(filled, dim=axis).abs(), SIZES[d][axis]
        near, far = ball.narrow(axis, 0, n - 1), ball.narrow(axis, 1, n - 1)
        assert step[near != far].max() < 2 * step[near & far].max()


def test_in_a_stack_of_thick_slices_what_is_missing_comes_from_its_own_slice():
    slices = torch.arange(6.0).expand(32, 32, 6).clone()
    inside = torch.ones_like(slices, dtype=torch.bool)
    inside[10:16, 10:16] = False
    torch.testing.assert_close(inpaint(slices, inside, (1.5, 1.5, 10.0)), slices)


def test_a_single_voxel_is_enough(d):
    inside = torch.zeros(SIZES[d], dtype=torch.bool)
    inside[(3,) * d] = True
    I = torch.where(inside, 2.0, -7.0)
    torch.testing.assert_close(inpaint(I, inside), torch.full(SIZES[d], 2.0))
