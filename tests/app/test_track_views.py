"""Pictures of a tracked cine show the reference, and beside it the frame where most has happened."""

import numpy as np
import pytest

from vrnet import Cine, Grid, Image
from vrnet.app.cine import Tracking, shown_frame, shown_pair, tracking_card, tracking_figure
from vrnet.cardiac.wall import HeartLabels
from vrnet.phantom.cycle import cycle
from vrnet.registration.cine import TrackedFrames

GRID = Grid.plain((48, 44, 2), (3.5, 3.5, 10.0))
FRAMES, JUMP = 6, 4


@pytest.fixture(scope="module")
def beat():
    return cycle(2, GRID.shape, GRID.spacing, frames=FRAMES)


@pytest.fixture(scope="module")
def tracked(beat):
    """The motion of a heart; in one frame, the whole picture has moved besides."""
    fields = beat.fields.numpy().copy()
    fields[JUMP, 0] += 3.0
    found = TrackedFrames(fields, np.zeros((2, 3, *GRID.shape)), "truth", None, "cpu", 2, (None,) * FRAMES, 1.0)
    cine = Cine(beat.frames.numpy(), GRID, beat.times_ms, "heart.nii.gz")
    return Tracking(cine, 0, found, Image(beat.labels.numpy(), GRID), HeartLabels())


def test_with_labels_the_frame_of_the_smallest_cavity_is_shown_and_else_the_farthest(beat, tracked):
    smallest = int(beat.volumes.lv_ml.argmin())
    assert smallest not in (0, JUMP)
    assert shown_frame(tracked) == smallest
    assert shown_frame(Tracking(tracked.cine, 0, tracked.found)) == JUMP
    wall = Image(np.where(beat.labels.numpy() == 2, 2, 0), GRID)
    assert shown_frame(Tracking(tracked.cine, 0, tracked.found, wall, HeartLabels())) == JUMP, "no cavity is labelled"


def test_figure_card_and_thumbnail_show_the_same_frame_counted_from_1(tracked):
    k = shown_frame(tracked)
    assert (shown_pair(tracked).moving == tracked.cine.frames[k]).all()
    titles = [ax.get_title() for ax in tracking_figure(tracked).axes]
    assert titles[:2] == [f"frame 1 of {FRAMES} (reference)", f"frame {k + 1} of {FRAMES}"]
    assert tracking_card(tracked).caption == f"Frame {k + 1} of {FRAMES}, as it has moved from frame 1."
