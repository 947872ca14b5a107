"""Chains with a finder that is exact: pictures that are functions of x + constant, whose shift a mean tells."""

import pytest
import torch
from torch.testing import assert_close

from vrnet.fields.calculus import smooth
from vrnet.registration.cine import Link, Smoothing, go_round, next_link, start_by_warping

N, SHIFTS = 6, torch.tensor([0.0, 0.5, 1.25, 2.0, 1.5, 0.25])
SMOOTHING = Smoothing((2.0, 2.0), (0.5, 0.5))
INSIDE = (slice(None), slice(None), slice(8, -8))


def ramps(shifts=SHIFTS):
    """(t, 2, 1, 32, 10): frame k is the reference, moved by shifts[k] voxels along the first axis; two slices."""
    x = torch.arange(32.0).view(1, 1, 1, -1, 1) - shifts.view(-1, 1, 1, 1, 1)
    return (x * torch.tensor([1.0, 1.5]).view(1, 2, 1, 1, 1)).expand(-1, -1, -1, -1, 10).contiguous()


def find_shift(I0, I1):
    """The shift between two ramps, everywhere the same."""
    slope = (I0[:, :, 1:] - I0[:, :, :-1]).mean((1, 2, 3))
    shift = (I0[INSIDE] - I1[INSIDE]).mean((1, 2, 3)) / slope
    return torch.stack([shift, torch.zeros_like(shift)], 1)[..., None, None].expand(-1, -1, *I0.shape[2:]).contiguous()


def test_exact_registrations_give_the_exact_motion_and_close():
    found = go_round(start_by_warping(find_shift), ramps(), SMOOTHING)
    expected = SHIFTS.view(-1, 1, 1, 1).expand(-1, 2, 32, 10)
    assert_close(found.fields[:, :, 0], expected, atol=1e-4, rtol=0)
    assert_close(found.fields[:, :, 1], torch.zeros_like(expected))
    assert_close(torch.cat(found.closing), torch.zeros(4, 2, 32, 10), atol=1e-4, rtol=0)


def test_what_a_finder_sees_in_equal_images_does_not_add_up():
    """A finder that is always a tenth of a voxel off, in each slice another way."""
    off = torch.tensor([[0.1, -0.05], [0.0, 0.1]]).view(2, 2, 1, 1)

    def find(I0, I1):
        return find_shift(I0, I1) + off.repeat(len(I0) // 2, 1, 1, 1)

    frames = ramps()
    exact, biased = (go_round(start_by_warping(f), frames, SMOOTHING) for f in (find_shift, find))
    assert (biased.closing.forward - exact.closing.forward).abs().max() > 0.09
    found = go_round(start_by_warping(find, lambda: find(frames[0], frames[0])), frames, SMOOTHING)
    assert_close(found.fields, exact.fields, atol=1e-5, rtol=0)
    assert_close(found.closing, exact.closing, atol=1e-5, rtol=0)


def test_each_chain_counts_by_how_near_it_is_to_where_it_began():
    """A finder that adds a voxel at each step: chains are k and n − k voxels off, the blend 2 k (n − k) / n."""
    found = go_round(lambda I0, I1, start: start + 1, torch.zeros(N, 1, 1, 9, 9), SMOOTHING)
    k = torch.arange(N)
    assert_close(found.fields[:, 0, 0, 4, 4], 2 * k * (N - k) / N)
    assert_close(found.closing.forward, torch.full((1, 2, 9, 9), float(N)))


def test_a_turn_that_no_image_shows_is_forgotten_but_by_solvers():
    """A finder that adds a tenth of a voxel at each step: of 0.8 of each start, ½ is left in the end, and not 3."""
    frames = torch.zeros(30, 1, 1, 9, 9)
    network, solver = (
        go_round(lambda I0, I1, start: start + 0.1, frames, Smoothing.on((1.4, 1.4), is_solver)).closing.forward
        for is_solver in (False, True)
    )
    assert_close(network, torch.full_like(network, 0.5), atol=1e-2, rtol=0)
    assert_close(solver, torch.full_like(solver, 3.0), atol=1e-4, rtol=0)


def test_a_start_is_a_part_of_the_field_before_smoothed():
    """A finder that finds nothing leaves it, smoothed a little more."""
    before = Link(*torch.randn(2, 1, 2, 16, 16, generator=torch.Generator().manual_seed(0)))
    blank = torch.zeros(1, 1, 16, 16)
    link = next_link(lambda I0, I1, start: start, blank, blank, blank, before, Smoothing((1.5, 0.5), (0.0, 0.7), 0.8))
    assert_close(link.forward, 0.8 * smooth(smooth(before.forward, (1.5, 0.5)), (0.0, 0.7)))


class Kept(dict):
    """Links in memory, which stop after so many."""

    stop_after = 99

    def load(self, step):
        return self.get(step)

    def save(self, step, link):
        self[step] = link
        if len(self) == self.stop_after:
            raise KeyboardInterrupt


def test_a_chain_that_was_stopped_goes_on_to_the_same_end():
    whole, calls = go_round(start_by_warping(find_shift), ramps(), SMOOTHING), []

    def find(I0, I1):
        calls.append(1)
        return find_shift(I0, I1)

    kept = Kept()
    kept.stop_after = 4
    with pytest.raises(KeyboardInterrupt):
        go_round(start_by_warping(find), ramps(), SMOOTHING, kept)
    kept.stop_after = 99
    found = go_round(start_by_warping(find), ramps(), SMOOTHING, kept)
    assert len(calls) == N
    assert torch.equal(found.fields, whole.fields)
    assert torch.equal(found.closing.backward, whole.closing.backward)


def test_links_that_were_kept_come_to_the_device_of_the_frames():
    kept = Kept()
    kept.stop_after = 99
    go_round(start_by_warping(find_shift), ramps(), SMOOTHING, kept)
    found = go_round(start_by_warping(find_shift), ramps().to("meta"), SMOOTHING, kept)
    assert {u.device.type for u in (found.fields, *found.closing)} == {"meta"}
