"""Good, look at it, or failed: what the evidence of a registration comes to, in words, with what to try."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Real
from numpy import ndarray
from torch import Tensor

from vrnet.errors import BadInput
from vrnet.evaluation.advice import Run, drawn_on, labels_as_images
from vrnet.evaluation.evidence import Evidence
from vrnet.evaluation.levels import WORDS, Level
from vrnet.evaluation.likeness import Range
from vrnet.evaluation.pair import dice_overlap, overlap, structure_evidence
from vrnet.evaluation.registered import RegisteredPair
from vrnet.evaluation.rules import CAUSES, FINDINGS, LEAST_VOXELS
from vrnet.evaluation.structure_rules import MAX_APART
from vrnet.fields import warp
from vrnet.images.affine import Affine
from vrnet.images.array_masks import mask_tensor
from vrnet.images.arrays import as_tensor, as_tensors, check_spacing, field_tensor, is_lost_in_single
from vrnet.images.compared import compared_voxels
from vrnet.images.grid import Grid
from vrnet.images.image import Image, as_labels, checked_numbers, label_maps
from vrnet.images.inputs import ImageLike, given_image
from vrnet.images.resample import place_image, place_labels
from vrnet.images.same_grid import check_same_grid
from vrnet.images.transform import Transform
from vrnet.wording import type_name

MAX_REASONS, MAX_ADVICE = 5, 3
"""Reasons that are given, causes and the worst findings first; things to try, the likeliest to help first."""

UNKNOWN = Run()


@dataclass(frozen=True)
class Verdict:
    """What a registration is worth."""

    level: Level
    reasons: tuple[str, ...] = ()
    """What is wrong, and how far, in sentences."""
    try_: tuple[str, ...] = ()
    """What may help, the likeliest first; arguments of `register_images` are named between backticks."""

    def __str__(self) -> str:
        """In lines: the level in words, the reasons, what to try."""
        return "\n".join([WORDS[self.level], *self.reasons, *(f"Try: {words}." for words in self.try_)])

    def as_json(self) -> dict[str, Any]:
        """What metrics.json holds."""
        return {"level": self.level, "reasons": list(self.reasons), "try": list(self.try_)}


def judge_evidence(evidence: Evidence, run: Run = UNKNOWN) -> Verdict:
    """The worst level that any finding has, with the causes, the worst findings, and what to try after such a run.

    Labels given as images are a reason to look, however well they fit. Where too few voxels are compared, what they
    show of the images says nothing."""
    has_enough = evidence.voxels >= LEAST_VOXELS
    telling = [rule for rule in FINDINGS if has_enough or not rule.compares_images]
    found = [rule for rule in telling if rule.level(evidence) != "good"]
    if not found and not run.label_maps:
        return Verdict("good")
    found.sort(key=lambda rule: (rule.level(evidence) != "failed", not rule.is_named_first))
    explaining = [rule for rule in found if rule.is_cause]
    causes = [rule for rule in CAUSES if found and has_enough and rule.concerns(run) and rule.level(evidence) != "good"]
    rules = [*explaining, *causes, *(rule for rule in found if not rule.is_cause)][:MAX_REASONS]
    blamed = [*explaining[:1], *causes[:1]] or rules
    known, to_try = replace(run, is_affine=evidence.is_affine), [drawn_on, *(a for rule in blamed for a in rule.to_try)]
    advice = unique(words for each in to_try if (words := each(known)) is not None)
    reasons = (*labels_as_images(run), *(rule.reason(evidence) for rule in rules))
    return Verdict(found[0].level(evidence) if found else "look", reasons[:MAX_REASONS], advice[:MAX_ADVICE])


def judge(
    fixed: ndarray | Tensor,
    moving: ndarray | Tensor,
    field: ndarray | Tensor,
    *,
    spacing: tuple[float, ...] | None = None,
    fixed_mask: ndarray | Tensor | None = None,
    moving_mask: ndarray | Tensor | None = None,
) -> Verdict:
    """What a field in voxels (d, *s), as `register` finds it, is worth for two images (*s) on one grid.

    Whoever found it, and whatever was minimised: the images are compared by local correlation and mutual information.
    `spacing` is the distance between voxels along each axis; without it voxels are cubes. With masks, nonzero inside,
    images are compared only where both are inside."""
    images = as_tensors(fixed, moving)
    check_spacing(spacing, images[0].dim())
    u = field_tensor(field, tuple(images[0].shape)).detach().cpu()
    I0, I1 = (image.detach().cpu() for image in images)
    I1w, grid = warp(I1[None, None], u[None])[0, 0], Grid.plain(tuple(I0.shape), spacing or (1.0,) * I0.dim())
    masks = [mask_on(grid, role, given, I0) for role, given in (("fixed", fixed_mask), ("moving", moving_mask))]
    compared = compared_voxels(masks[0], masks[1], grid, Transform.from_voxels(u.numpy(), grid))
    pair = RegisteredPair(I0.numpy(), I1.numpy(), I1w.numpy(), u.numpy(), grid, grid, compared=compared)
    return judge_evidence(pair.evidence(), Run(has_masks=compared is not None))


def mask_on(grid: Grid, name: str, given: object, image: Tensor) -> Image | None:
    """The mask of an array, as an image on a grid; None where all is inside; BadInput if that makes no sense."""
    inside = mask_tensor(name, given, image)
    return None if inside is None else Image(inside.numpy(), grid, f"the mask of {name}")


def judge_images(
    fixed: ImageLike,
    moving: ImageLike,
    transform: Transform,
    fixed_labels: ImageLike | None = None,
    moving_labels: ImageLike | None = None,
    *,
    fixed_mask: ImageLike | None = None,
    moving_mask: ImageLike | None = None,
    affine: Affine | None = None,
) -> Verdict:
    """What a transform, from fixed to moving, is worth for two images in the world.

    With the labels of both, the structures count too. Images are compared inside the masks, if there are any. Motion
    and folds are those beyond the `affine` start that the transform holds: that of `ImageRegistration.affine`."""
    check_type("transform", transform, Transform, "as that of register_images")
    I0, labels0, mask0 = given_images("fixed", fixed, fixed_labels, fixed_mask)
    I1, labels1, mask1 = given_images("moving", moving, moving_labels, moving_mask)
    if affine is not None:
        check_type("affine", affine, Affine, "as that of register_images")
        affine.checked(len(I0.grid.shape))
    grid, field = I0.grid, transform.on(I0.grid).in_voxels()
    images = I0.array, placed(I1, lambda I: place_image(I, grid)), placed(I1, lambda I: transform.apply(I, grid))
    compared, started = compared_voxels(mask0, mask1, grid, transform, affine), None
    if affine is not None:
        started = placed(I1, lambda I: place_image(I, grid, affine))
    pair = RegisteredPair(*images, field, grid, I1.grid, affine, compared, started)
    run = Run(has_start=affine is not None, has_masks=compared is not None, label_maps=label_maps(I0, I1))
    if labels0 is None or labels1 is None:
        return judge_evidence(pair.evidence(), run)
    maps = labels0.array, place_labels(labels1, grid).array, transform.apply_labels(labels1, grid).array
    measures = dice_overlap(*maps)
    if 1 - measures["dice"]["after"]["mean"] > MAX_APART:
        measures = overlap(*maps, spacing=grid.spacing, across=grid.across)
    return judge_evidence(pair.evidence(*structure_evidence(measures)), run)


def placed(image: Image, place: Callable[[Image], Image]) -> Real[ndarray, "*s"]:
    """What a function gives in single precision; in double, by way of [0, 1], where single would lose the image."""
    if not is_lost_in_single(as_tensor(image.array)):
        return place(image).array
    own = Range.of([image.array])
    return own.undo(place(image.with_array(own.apply(image.array))).array)


def given_images(name: str, image: object, labels: object, mask: object) -> tuple[Image, Image | None, Image | None]:
    """An image, its labels and its mask, as they were given; BadInput unless they fit, and show something."""
    shown = given_image(name, image)
    checked_numbers(shown.array, name)
    others = {f"{name}_labels": labels, f"{name}_mask": mask}
    found = {other: None if given is None else given_image(other, given) for other, given in others.items()}
    for other, one in found.items():
        if one is not None:
            check_same_grid(other, one.grid, name, shown.grid)
    if (inside := found[f"{name}_mask"]) is not None and not inside.array.any():
        raise BadInput(f"{name}_mask is empty: give a mask that is not 0 inside")
    drawn = found[f"{name}_labels"]
    return shown, None if drawn is None else as_labels(drawn), inside


def check_type(name: str, given: object, kind: type, example: str) -> None:
    """BadInput unless what is given is of a kind."""
    if not isinstance(given, kind):
        raise BadInput(f"{name} is {type_name(given)}: give a vrnet {kind.__name__}, {example}")


def unique(words: Iterable[str]) -> tuple[str, ...]:
    """Each once, in order."""
    return tuple(dict.fromkeys(words))
