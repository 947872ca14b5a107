"""What a reader is told of the images and the field, beside the verdict."""

from collections.abc import Mapping
from typing import Any

from vrnet.app.endings import as_options
from vrnet.app.image_pair import ImagePair, name_of
from vrnet.images.affine import Affine
from vrnet.images.image import segment_count
from vrnet.images.resample import coverage
from vrnet.registration.brightness import Remap
from vrnet.registration.folds import Repair

MAX_TURN_DEGREES = 90.0
"""An affine start that turns by more is told: a mirrored image may be behind it."""
FULL_COVERAGE_PERCENT, HALF_COVERAGE_PERCENT = 99.0, 50.0
"""Below the one, the reader is told which part of fixed moving covers; below the other, what may help."""


def notes_on(
    pair: ImagePair, metrics: Mapping[str, Any], affine: Affine | None = None, command: str = "register"
) -> list[str]:
    """What a reader should know of the images and the field, beside the verdict; options are those of a command."""
    notes = []
    covered = 100 * coverage(pair.moving.grid, pair.fixed.grid, affine).mean()
    if covered < FULL_COVERAGE_PERCENT:
        start, is_little = as_options('`affine="rigid"`', command), covered < HALF_COVERAGE_PERCENT
        advice = f" If that is the headers' fault, try {start}." if is_little and affine is None else ""
        after = "" if affine is None else f", after the {affine.kind} start"
        notes.append(
            f"{name_of(pair.moving)} covers {covered:.0f} % of {name_of(pair.fixed)}{after}: elsewhere nothing was "
            f"registered.{advice}"
        )
    if affine is not None and affine.summary()["rotation_deg"] > MAX_TURN_DEGREES:
        notes.append(
            f"The affine start turns {name_of(pair.moving)} by {affine.summary()['rotation_deg']:.0f}°. If it is not "
            "upside down or back to front, check the headers: an affine start does not mirror, and fits the left side "
            "of a mirrored image to the right."
        )
    if metrics["repair"] is not None and not (repair := Repair(**metrics["repair"])).is_slight:
        notes.append(f"{repair}. (--folds keep leaves the field as it was.)")
    if metrics["brightness"] is not None:
        notes.append(brightness_note(pair, Remap(**metrics["brightness"]), command))
    for role, image in (("fixed", pair.fixed), ("moving", pair.moving)):
        if count := segment_count(image):
            notes.append(
                f"{name_of(image)} holds {count} whole numbers only. If they are labels, give them as --{role}-labels, "
                "and register the image that they were drawn on."
            )
    if (pair.fixed_labels is None) != (pair.moving_labels is None):
        notes.append("Labels of one image alone cannot be measured: give both for Dice and distances.")
    if pair.are_names_told_by_files:
        notes.append(f"Structures are {pair.naming}. (--label-names says otherwise.)")
    return notes


def unmatched_notes(pair: ImagePair, remap: Remap | None) -> list[str]:
    """What a reader should know of differences of intensities, where one image is plainly brighter."""
    if remap is None:
        return []
    fixed, moving = name_of(pair.fixed), name_of(pair.moving)
    return [
        f"{moving} and {fixed} are not equally bright: {moving} would be as bright as {fixed} with its intensities as "
        f"{remap}. Nothing says that the transform was found so, and differences are measured as the images are: they "
        "show brightness, not motion alone."
    ]


def brightness_note(pair: ImagePair, remap: Remap, command: str) -> str:
    """What was done about images of which one is plainly brighter, and how to have it otherwise."""
    switch = as_options('`brightness="keep"`', command)
    return (
        f"{name_of(pair.moving)} and {name_of(pair.fixed)} are not equally bright: they were compared, and differences "
        f"are measured, with the intensities of {name_of(pair.moving)} as {remap}. The warped image keeps its own. "
        f"({switch} compares them as they are.)"
    )
