"""Results of a tracking that makes no mistake: of phantoms, whose motion is known."""

from dataclasses import replace

import numpy as np

from vrnet import Cine, Grid, Image
from vrnet.cardiac.cine import CineResult
from vrnet.cardiac.wall import HeartLabels

CLOSED = {"forward": 0.1, "backward": 0.1}


def exact_result(beat, grid=None):
    """The true motion of a beat, with the labels of its first frame; slices were tracked one by one."""
    grid = grid or Grid.plain(tuple(beat.labels.shape), beat.spacing)
    cine, fields = Cine(beat.frames.numpy(), grid, beat.times_ms, "a/heart.nii.gz"), beat.fields.numpy()
    axis = 2 if beat.labels.dim() == 3 else None
    labels = Image(beat.labels.numpy(), grid)
    return CineResult(cine, 0, fields, CLOSED, axis, "truth", reference_labels=labels, heart=HeartLabels())


def without_labels(result):
    return replace(result, reference_labels=None, heart=None)


def with_labels_of(result, *values, heart=None, label=None):
    """The same with these labels of the reference alone, all of which have another value if that is given."""
    kept = np.isin(result.reference_labels.array, values)
    array = np.where(kept, result.reference_labels.array if label is None else label, 0)
    return replace(result, reference_labels=result.reference_labels.with_array(array), heart=heart or result.heart)
