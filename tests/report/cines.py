"""Films whose motion is known."""

from dataclasses import replace

import numpy as np

from vrnet.cardiac.strain import strain
from vrnet.cardiac.volumes import volumes
from vrnet.cardiac.wall import HeartLabels
from vrnet.images.grid import Grid
from vrnet.phantom.cycle import cycle
from vrnet.report.cine import Film, Tracked

SHAPE, SPACING = (72, 64, 3), (2.4, 2.4, 10.0)
TRACKED = Tracked({"forward": 0.12, "backward": 0.34}, 0.0, {"closure error": "how far <b>round</b>"})


def beating_film(frames=6):
    """A stack with its true motion, an RV, and so with segments."""
    beat = cycle(2, SHAPE, SPACING, frames=frames)
    labels, fields = beat.labels.numpy(), beat.fields.numpy()
    return Film(
        beat.frames.numpy(), fields, Grid.plain(SHAPE, SPACING), 0, beat.times_ms, labels, HeartLabels(),
        strain(fields, labels, SPACING, across=2, times_ms=beat.times_ms), volumes(beat.frame_labels.numpy(), SPACING),
    )  # fmt: skip


def without_rv(film):
    """The same with the wall and the cavity alone, frames without times: no segments."""
    labels = np.where(film.labels == 1, 0, film.labels)
    measured = strain(film.fields, labels, SPACING, across=2)
    return replace(film, labels=labels, strain=measured, volumes=volumes(labels[None].repeat(len(film), 0), SPACING),
                   times_ms=None)  # fmt: skip


def wall_alone(film):
    """The same with the wall as the only label: volumes, but of no ventricle."""
    labels, heart = np.where(film.labels == 2, 2, 0), HeartLabels(rv=None, lv=None)
    measured = volumes(labels[None].repeat(len(film), 0), SPACING, heart=heart)
    return replace(film, labels=labels, heart=heart, strain=strain(film.fields, labels, SPACING, across=2, heart=heart),
                   volumes=measured)  # fmt: skip


def without_labels(film):
    return replace(film, labels=None, heart=None, strain=None, volumes=None)
