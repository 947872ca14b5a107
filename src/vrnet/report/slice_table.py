"""The slices of a page one by one: overlap of the structures, likeness, folds and motion, and which slice is worst."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.evaluation.metrics import dice_by_slice, normalised_cross_correlation
from vrnet.report.colours import FOLD
from vrnet.report.measures import NO_VALUE, number
from vrnet.report.pair import Pair
from vrnet.report.slices import PageSlices, take_slices

MAX_STRUCTURES = 8
"""Structures that have a row of their own; of more, only the mean is shown."""


@dataclass(frozen=True)
class Cell:
    """A value as text, as a part of the height of a row, and to sort by; a dash and nothing where there is none."""

    text: str
    part: float | None
    value: float | None


@dataclass(frozen=True)
class Measure:
    """One measure of every slice."""

    name: str
    cells: list[Cell]
    colour: str = ""
    """That of its bars; none for the page's own."""
    in_strip: bool = True
    """Whether it is drawn, too, not only listed."""


@dataclass(frozen=True)
class SliceTable:
    """What is known of each slice that a page shows, in its order."""

    measures: list[Measure]
    worst: int | None
    """The place of the slice that most needs a look."""
    why: str
    """By what it is the worst."""


def slice_table(
    pair: Pair, slices: PageSlices, colours: Mapping[int, str], names: Mapping[str, str]
) -> SliceTable | None:
    """The measures of each slice of a pair, which is oriented for viewing; None for one slice alone.

    `colours` has those of the labels, `names` what the labels are called."""
    if len(slices.numbers) < 2:
        return None
    overlaps = {when: slice_dice(pair, f"{role}_labels", slices.numbers, [*colours])
                for when, role in (("before", "moving"), ("after", "warped"))}  # fmt: skip
    images = (take_slices(getattr(pair, name), slices.numbers) for name in ("fixed", "warped"))
    alike = np.array([normalised_cross_correlation(*pair_of) for pair_of in zip(*map(by_slice, images), strict=True)])
    mm = np.reshape(pair.grid.spacing, (3, 1, 1, 1))
    motion = np.linalg.norm(np.stack([take_slices(u, slices.numbers) for u in pair.field]) * mm, axis=0).mean((0, 1))
    measures = [] if overlaps["after"] is None else dice_measures(overlaps, colours, names)
    measures += [
        Measure("Correlation", cells(alike, 1.0), in_strip=not measures),
        Measure("Folded, strict (%)", cells(slices.folded_percent, max(slices.folded_percent.max(), 1.0)), FOLD),
        Measure("Mean motion (mm)", cells(motion, motion.max())),
    ]
    return SliceTable(measures, *find_worst(overlaps["after"], slices.folded_percent, alike))


def by_slice(stack: Float[ndarray, "w h n"]) -> Float[ndarray, "n w h"]:
    """One picture after another."""
    return np.moveaxis(stack, -1, 0)


def slice_dice(pair: Pair, name: str, numbers: list[int], labels: list[int]) -> Float[ndarray, "l n"] | None:
    """The Dice of each label in each slice, of fixed and another map; None without labels."""
    other = getattr(pair, name)
    if pair.fixed_labels is None or other is None or not labels:
        return None
    return dice_by_slice(take_slices(pair.fixed_labels, numbers), take_slices(other, numbers), labels, 2)


def dice_measures(
    overlaps: Mapping[str, Float[ndarray, "l n"] | None], colours: Mapping[int, str], names: Mapping[str, str]
) -> list[Measure]:
    """Dice after, of each structure unless they are many, and the mean of all, also before."""
    after, before = overlaps["after"], overlaps["before"]
    assert after is not None
    rows = zip(colours.items(), after, strict=True) if len(after) <= MAX_STRUCTURES else ()
    found = [Measure(f"Dice {names.get(str(k), str(k))}", cells(row, 1.0), colour) for (k, colour), row in rows]
    mean = [Measure("Dice, mean", cells(mean_of_rows(after), 1.0))] if len(after) > 1 else []
    earlier = (
        [] if before is None else [Measure("Dice, mean, before", cells(mean_of_rows(before), 1.0), in_strip=False)]
    )
    return [*found, *mean, *earlier]


def mean_of_rows(values: Float[ndarray, "l n"]) -> Float[ndarray, " n"]:
    """The mean of each column over what is not NaN; NaN where nothing is."""
    is_known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(is_known, values, 0.0).sum(0) / is_known.sum(0)


def cells(values: Float[ndarray, " n"], highest: float) -> list[Cell]:
    """Values as text and as parts of the highest."""
    return [
        Cell(NO_VALUE, None, None)
        if np.isnan(value)
        else Cell(number(value), round(min(1.0, max(0.0, value / (highest or 1.0))), 3), round(value, 6))
        for value in values.tolist()
    ]


def find_worst(
    dice: Float[ndarray, "l n"] | None, folded: Float[ndarray, " n"], alike: Float[ndarray, " n"]
) -> tuple[int | None, str]:
    """Where the structures overlap least; without labels, where most is folded, or else images are least alike."""
    if dice is not None and not np.isnan(dice).all():
        means = mean_of_rows(dice)
        k = int(np.nanargmin(means))
        return k, f"lowest mean Dice, {number(means[k])}"
    if folded.any():
        return int(np.argmax(folded)), f"most folded, {number(folded.max())} %"
    if np.isnan(alike).all():
        return None, ""
    return int(np.nanargmin(alike)), f"lowest correlation of fixed and warped, {number(float(np.nanmin(alike)))}"
