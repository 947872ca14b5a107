"""A tracked cine, oriented as radiologists view it and cut to the part around the heart."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, sqrt
from typing import Any

import numpy as np
from jaxtyping import Float, Integer, Shaped
from numpy import ndarray

from vrnet.attributes import cached_property
from vrnet.evaluation.label_names import LabelNames
from vrnet.evaluation.strain import Strain
from vrnet.evaluation.strain_map import StrainMap, strain_map
from vrnet.evaluation.volumes import Volumes
from vrnet.evaluation.wall import HeartLabels
from vrnet.images.grid import Grid
from vrnet.report.colours import label_colours
from vrnet.report.page_data import edge_letters, span_with_margin
from vrnet.report.pair import turn_array, turn_grid, viewing_order
from vrnet.report.sheets import find_labels
from vrnet.report.slices import choose_slices

MAX_SLICES = 24
MAX_PIXELS = 12e6
"""Of all frames and slices together: a page of them stays below 15 MB."""
BOX_MARGIN = 0.4
"""Around the labels, as a part of their size: what else moves near the heart is seen too."""


@dataclass(frozen=True, eq=False)
class Film:
    """A tracked cine, ready to be shown: frames in the intensities of the file, fields in voxels.

    The point at x in the reference is at x + u(x) in frame t, u being fields[t]. The labels are those of the reference;
    `heart` says what they mean."""

    frames: Shaped[ndarray, "t *s"]
    fields: Float[ndarray, "t d *s"]
    grid: Grid
    reference: int = 0
    times_ms: tuple[float, ...] | None = None
    labels: Integer[ndarray, "*s"] | None = None
    heart: HeartLabels | None = None
    strain: Strain | None = None
    volumes: Volumes | None = None
    label_names: LabelNames = field(default_factory=dict)
    """What labels are called; parts of the heart that it lacks have names of their own."""
    no_strain: str | None = None
    """Why there is no strain, though there are labels."""
    doubt: str = ""
    """Why it may be no cine."""

    def __len__(self) -> int:
        """How many frames it has."""
        return len(self.frames)

    @cached_property
    def slices(self) -> "FilmSlices":
        """What is shown of it."""
        return slice_film(self)


@dataclass(frozen=True, eq=False)
class FilmSlices:
    """What is shown of a film: (t, w, h, n), across the picture, down it, and by slice; motion within slices alone."""

    frames: Shaped[ndarray, "t w h n"]
    motion: Float[ndarray, "t 2 w h n"]
    """In voxels."""
    labels: Integer[ndarray, "w h n"] | None
    heart: HeartLabels
    spacing: tuple[float, float]
    """Of voxels within slices, in mm."""
    numbers: list[int]
    """Of the slices in the cine, from 0."""
    depth: int
    """How many slices the cine has."""
    edges: Mapping[str, str]
    """The letters of what lies at each edge of a picture."""
    label_names: LabelNames = field(default_factory=dict)

    @cached_property
    def strain(self) -> StrainMap | None:
        """Green strain at the voxels of the wall; None without labels, or where no slice shows a ring of wall."""
        if self.labels is None:
            return None
        still = np.zeros_like(self.motion[:, :1])
        fields = np.concatenate([self.motion, still], 1)
        return strain_map(fields, self.labels, (*self.spacing, 1.0), across=2, heart=self.heart)

    @cached_property
    def structures(self) -> dict[int, tuple[str, str]]:
        """{label: (name, colour)} of the labels that are shown; a part of the heart has one colour in all films."""
        if self.labels is None:
            return {}
        found, parts = find_labels([self.labels]), (self.heart.rv, self.heart.wall, self.heart.lv)
        names = dict(zip(parts, ("right ventricle", "wall", "cavity"), strict=True)) | dict(self.label_names)
        order = [*parts, *(label for label in found if label not in parts)]
        colours = dict(zip(order, label_colours(list(range(len(order)))).values(), strict=True))
        return {label: (names.get(label, f"label {label}"), colours[label]) for label in found}

    @property
    def main(self) -> int:
        """The place of the slice that is shown first: in the middle of those with strain, or with labels, or of all."""
        if self.strain is not None:
            shown = np.unique(self.strain.index[2])
        elif self.labels is not None and self.labels.any():
            shown = np.flatnonzero(self.labels.any((0, 1)))
        else:
            shown = np.arange(len(self.numbers))
        return int(shown[len(shown) // 2])

    @property
    def block(self) -> int:
        """How many voxels across and down make one shown pixel, so that there are no more than MAX_PIXELS."""
        return ceil(sqrt(self.frames.size / MAX_PIXELS))


def slice_film(film: Film) -> FilmSlices:
    """The slices to show, oriented, and cut to the part around the labels where there are any."""
    whole = orient_film(film)
    numbers = choose_slices(whole.grid.shape[2] if len(whole.grid.shape) == 3 else 1, MAX_SLICES)
    frames, motion = (take(array, whole.grid, numbers) for array in (whole.frames, whole.fields[:, :2]))
    labels = None if whole.labels is None else take(whole.labels, whole.grid, numbers)
    box = (slice(None), slice(None)) if labels is None or not labels.any() else box_around_labels(labels)
    return FilmSlices(
        frames=frames[:, *box],
        motion=motion[:, :, *box],
        labels=None if labels is None else labels[box],
        heart=film.heart or HeartLabels(),
        spacing=(whole.grid.spacing[0], whole.grid.spacing[1]),
        numbers=numbers,
        depth=1 if len(whole.grid.shape) == 2 else whole.grid.shape[2],
        edges=edge_letters(film.grid),
        label_names=film.label_names,
    )


def orient_film(film: Film) -> Film:
    """The film as radiologists view it: `orient_for_viewing` of each frame."""
    if len(film.grid.shape) == 2:
        return film
    order, signs = viewing_order(film.grid)
    fields = turn_array(film.fields, order, signs)[:, list(order)] * np.reshape(signs, (3, 1, 1, 1))
    return replace(
        film,
        frames=turn_array(film.frames, order, signs),
        fields=fields,
        grid=turn_grid(film.grid, order, signs),
        labels=None if film.labels is None else turn_array(film.labels, order, signs),
    )


def take(array: Any, grid: Grid, numbers: list[int]) -> Any:
    """These slices along the last axis; a 2D image is one slice."""
    return array[..., None] if len(grid.shape) == 2 else array[..., numbers]


def box_around_labels(labels: Integer[ndarray, "w h n"]) -> tuple[slice, slice]:
    """The part of slices that holds every label, with a margin."""
    across, down = (span_with_margin(labels.any(axis=(other, 2)), BOX_MARGIN) for other in (1, 0))
    return slice(*across), slice(*down)
