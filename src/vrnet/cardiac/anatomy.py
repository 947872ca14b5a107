"""Where the ventricles are in a short-axis image: a network says how likely, anatomy what can be, and both how sure.

S(x) = argmax_k p_k(x), each slice by itself; then in every slice at most one cavity of the LV, near that of its
neighbours, inside one ring of wall, with the RV beside it. A slice that the network is unsure of gets no labels."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf, isfinite
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import SimpleITK as sitk
import torch
from jaxtyping import Bool, Float, Integer, Shaped
from nibabel.spatialimages import SpatialImage
from numpy import ndarray
from scipy import ndimage
from torch import Tensor

from vrnet.cardiac.volumes import Volumes, volumes
from vrnet.data.labels import fill_holes
from vrnet.devices import find_device, threads_for
from vrnet.errors import BadInput, Progress, check_progress
from vrnet.files import is_folder
from vrnet.images.grid import Grid
from vrnet.images.image import Cine, Image, check_spacing, rescale_jointly
from vrnet.images.io import CineLike, ImageLike, given_cine, given_image, read_voxels, write_frames, write_image
from vrnet.methods.names import ANATOMY, load_bundled
from vrnet.methods.weights import Trained, load_method
from vrnet.registration.channels import FIELD_MM, Anatomy
from vrnet.registration.masks import Box, heart_box
from vrnet.vocabulary import HEART, DeviceChoice

RV, WALL, LV = HEART["RV"], HEART["Myo"], HEART["LV"]
LABEL_OF_CHANNEL = np.array([0, *HEART.values()], np.uint8)
"""Networks of hearts are trained with the structures in this order."""
Level = Literal["good", "look", "failed"]

# Frames as the network sees them: (t, k, h, w), axes in the order of the world's and running as these do.


@dataclass(frozen=True)
class Planes:
    """How the axes of frames on a grid become slices of two axes each, and back."""

    grid: Grid

    @property
    def ordered(self) -> Grid:
        return self.grid.reordered(self.grid.order)

    @property
    def across(self) -> int | None:
        """The axis of the ordered grid that slices lie across; None of a picture."""
        return self.ordered.across if len(self.grid.shape) == 3 else None

    @property
    def spacing(self) -> tuple[float, ...]:
        """Of pixels, in mm."""
        return tuple(h for axis, h in enumerate(self.ordered.spacing) if axis != self.across)

    def split(self, frames: Shaped[ndarray, "t *s"]) -> Shaped[ndarray, "t k h w"]:
        turned = frames.transpose(0, *(1 + axis for axis in self.grid.order))
        turned = np.flip(turned, [1 + axis for axis in self.ordered.backward])
        return turned[:, None] if self.across is None else np.moveaxis(turned, 1 + self.across, 1)

    def join(self, planes: Shaped[ndarray, "t k h w"]) -> Shaped[ndarray, "t *s"]:
        turned = planes[:, 0] if self.across is None else np.moveaxis(planes, 1, 1 + self.across)
        turned = np.flip(turned, [1 + axis for axis in self.ordered.backward])
        return np.ascontiguousarray(turned.transpose(0, *(1 + np.argsort(self.grid.order))))

    def number(self, k: int) -> int:
        """The place in the array of the k-th slice."""
        is_flipped = self.across in self.ordered.backward
        return self.ordered.shape[self.across or 0] - 1 - k if is_flipped else k


# What a network sees in a slice.

MIN_SMOOTHED_FRAMES = 8
"""Cines of fewer frames have too long a step between them to be smoothed over time."""


class Seen(NamedTuple):
    """What the network finds in all slices."""

    labels: Integer[ndarray, "t k h w"]
    probability: Float[ndarray, "t k h w"]  # of the label; in half precision
    agreement: Float[ndarray, "t k"]  # of what it finds upright and turned upside down


def look(
    planes: Float[Tensor, "t k h w"], spacing: tuple[float, ...], anatomy: Anatomy, tell: Progress, box: Box | None
) -> Seen:
    """The likeliest structure at every voxel, in a box if there is one, by the mean over a slice and itself turned by
    180 degrees; of a cine every other frame is turned, and the mean is over a frame and its neighbours in the cycle."""
    t, k, *shape = planes.shape
    opposite = box and tuple(slice(n - part.stop, n - part.start) for n, part in zip(shape, box, strict=True))
    labels, probability, agreement = np.zeros((t, k, *shape), np.uint8), np.zeros((t, k, *shape), np.float16), []
    for number in range(k):
        upright = planes[:, number, None]
        turned, is_cine = upright.flip(2, 3), t >= MIN_SMOOTHED_FRAMES
        every, other = (slice(0, None, 2), slice(1, None, 2)) if is_cine else (slice(None), slice(None))
        p = anatomy.probabilities(upright[every], spacing, box).cpu()
        q = anatomy.probabilities(turned[other], spacing, opposite).flip(2, 3).cpu()
        if is_cine:
            frames = p.new_empty(t, *p.shape[1:])
            frames[every], frames[other] = p, q
            p, q = frames, (frames.roll(1, 0) + frames.roll(-1, 0)) / 2
        agreement.append(overlap(p[:, 1:], q[:, 1:]).numpy())
        likeliest = ((p + q) / 2).max(1)
        labels[:, number] = LABEL_OF_CHANNEL[likeliest.indices.numpy()]
        probability[:, number] = likeliest.values.numpy()
        tell((number + 1) / k)
    return Seen(labels, probability, np.stack(agreement, 1))


def overlap(p: Float[Tensor, "n c h w"], q: Float[Tensor, "n c h w"]) -> Float[Tensor, " n"]:
    """2 Σ p q / Σ (p² + q²): 1 where both are the same, 0 where what one finds the other does not."""
    total = (p.square() + q.square()).flatten(1).sum(1)
    return 2 * (p * q).flatten(1).sum(1) / total.clamp(min=1e-6)


# What anatomy allows.

MAX_SHIFT_MM = 25.0
"""The middle of the LV is at most so far from that in the next slice."""
MAX_GAP_MM = 6.0
"""Between the RV and what it lies beside."""
MAX_HOLE_MM2 = 60.0
"""A larger hole is not filled: nobody knows what is in it."""
SMALLEST_MM2 = 25.0
"""A smaller cavity or wall is no finding."""
PART_OF_RV = 0.25
"""A part of the RV beside the heart that is smaller than this part of the largest is an island."""
WITHIN_NEIGHBOUR = 0.5
"""Where no LV is seen, as above the base, the RV must lie to this part where it lies in the next slice."""
Mask = Bool[ndarray, "h w"]


def clean(labels: Integer[ndarray, "t k h w"], spacing: tuple[float, ...]) -> Integer[ndarray, "t k h w"]:
    """In every slice one cavity of the LV in one ring of wall, and the RV beside it."""
    is_heart = labels >= WALL
    centres = find_centres(is_heart.mean(0) >= 0.5, (labels == LV).mean(0) >= 0.5, spacing)
    out = np.zeros_like(labels)
    if centres is None:
        return out
    for t, frame in enumerate(labels):
        for k, found in enumerate(frame):
            out[t, k] = clean_slice(found, centres[k], spacing)
        has_heart = (out[t] >= WALL).any((1, 2))
        for k in np.flatnonzero(~has_heart):
            beside = [out[t, n] == RV for n in (k - 1, k + 1) if 0 <= n < len(frame) and has_heart[n]]
            near = np.any(beside, 0) if beside else np.zeros(frame.shape[1:], bool)
            parts = split_parts(frame[k] == RV)
            for part in parts[:1]:
                if near[part].sum() >= WITHIN_NEIGHBOUR * part.sum():
                    out[t, k][part] = RV
    return out


def find_centres(
    heart: Bool[ndarray, "k h w"], cavity: Bool[ndarray, "k h w"], spacing: tuple[float, ...]
) -> Float[ndarray, "k 2"] | None:
    """The middle of the LV in each slice, in mm, from the slice with the largest closed cavity outwards; a slice
    without one has that of its neighbour. None where no slice shows a cavity with a wall."""
    candidates: list[list[tuple[float, Float[ndarray, " 2"]]]] = []
    for k, mask in enumerate(heart):
        parts = split_parts(mask)
        candidates.append([(size_of_closed(cavity[k] & part, part), middle(part, spacing)) for part in parts])
    sizes = [max((size for size, _ in each), default=0.0) for each in candidates]
    if max(sizes, default=0.0) == 0:
        return None
    first = int(np.argmax(sizes))
    centres = np.empty((len(heart), 2))
    centres[first] = max(candidates[first], key=lambda each: each[0])[1]
    for way in (range(first + 1, len(heart)), range(first - 1, -1, -1)):
        here = centres[first]
        for k in way:
            near = [at for _, at in candidates[k] if np.linalg.norm(at - here) <= MAX_SHIFT_MM]
            here = min(near, key=lambda at: float(np.linalg.norm(at - here)), default=here)
            centres[k] = here
    return centres


def size_of_closed(cavity: Mask, heart: Mask) -> float:
    """The size of a cavity, in pixels, times the square of the part of its border that is wall."""
    return float(cavity.sum() * closed_part(cavity, heart & ~cavity) ** 2)


def closed_part(cavity: Mask, wall: Mask) -> float:
    """The part of the border of a cavity that is wall; 0 without a cavity."""
    rim = ndimage.binary_dilation(cavity) & ~cavity
    return float((rim & wall).sum() / max(rim.sum(), 1))


def clean_slice(
    labels: Integer[ndarray, "h w"], centre: Float[ndarray, " 2"], spacing: tuple[float, ...]
) -> Integer[ndarray, "h w"]:
    """The LV nearest to a place, in mm, and the RV beside it; nothing where no LV is near."""
    pixel, out = spacing[0] * spacing[1], np.zeros_like(labels)
    hearts = [part for part in split_parts(labels >= WALL)
              if np.linalg.norm(middle(part, spacing) - centre) <= MAX_SHIFT_MM]  # fmt: skip
    if not hearts or hearts[0].sum() * pixel < SMALLEST_MM2:
        return out
    heart = hearts[0]
    cavities = split_parts((labels == LV) & heart, diagonal=False)
    cavity = fill_holes(cavities[0][None])[0] if cavities else np.zeros_like(heart)
    heart = split_parts(((labels == WALL) & heart) | cavity)[0]
    holes = fill_holes(heart[None])[0] & ~heart
    for hole in split_parts(holes):
        if hole.sum() * pixel <= MAX_HOLE_MM2:
            heart |= hole
    out[heart] = WALL
    out[cavity] = LV
    parts = split_parts(labels == RV)
    away = ndimage.distance_transform_edt(~heart, spacing)
    beside = [part & ~heart for part in parts if away[part].min() <= MAX_GAP_MM]
    for part in beside:
        if part.sum() >= PART_OF_RV * beside[0].sum() and part.sum() * pixel >= SMALLEST_MM2:
            out[part] = RV
    return out


def split_parts(mask: Mask, diagonal: bool = True) -> list[Mask]:
    """The connected parts of a mask, the largest first; also by corners if so asked."""
    parts, _ = ndimage.label(mask, np.ones((3, 3)) if diagonal else None)
    sizes = np.bincount(parts.ravel())[1:]
    return [parts == 1 + n for n in np.argsort(-sizes, kind="stable")]


def middle(mask: Mask, spacing: tuple[float, ...]) -> Float[ndarray, " 2"]:
    return np.argwhere(mask).mean(0) * spacing


# How sure that is. All numbers are of whole slices, (t, k), and NaN where nothing was found.

BLOOD_PERCENTILE = 75
"""Of the cavity: papillary muscles fill more than half of some."""


@dataclass(frozen=True)
class SliceEvidence:
    """What tells a short-axis slice of a heart from others."""

    confidence: Float[ndarray, "t k"]
    """Mean probability of the labels, times the agreement with what is found in the same slice turned."""
    closed: Float[ndarray, "t k"]
    """The part of the border of the cavity that is wall."""
    contrast: Float[ndarray, "t k"]
    """How much brighter the blood in the cavity is than the wall, in a range of 1."""
    roundness: Float[ndarray, "t k"]
    """The shorter axis of the cavity with its wall, as a part of the longer one."""
    cavity_mm2: Float[ndarray, "t k"]
    heart_mm2: Float[ndarray, "t k"]
    """Of the cavity and the wall of the LV."""
    has_rv: Bool[ndarray, "t k"]


def measure(
    labels: Integer[ndarray, "t k h w"], seen: Seen, planes: Float[ndarray, "t k h w"], spacing: tuple[float, ...]
) -> SliceEvidence:
    shape, pixel = labels.shape[:2], spacing[0] * spacing[1]
    confidence, closed, contrast, roundness = np.full((4, *shape), np.nan)
    for at in np.ndindex(shape):
        wall, cavity, found = labels[at] == WALL, labels[at] == LV, labels[at] > 0
        if not found.any():
            continue
        confidence[at] = seen.probability[at][found].mean(dtype=np.float64) * seen.agreement[at]
        if not cavity.any():
            continue
        closed[at] = closed_part(cavity, wall)
        if wall.any():
            contrast[at] = np.percentile(planes[at][cavity], BLOOD_PERCENTILE) - np.median(planes[at][wall])
        spread = np.linalg.eigvalsh(np.cov((np.argwhere(cavity | wall) * spacing).T) + 1e-3 * np.eye(2))
        roundness[at] = float(np.sqrt(spread[0] / spread[1]))
    cavity_mm2, heart_mm2 = ((labels >= least).sum((2, 3)) * pixel for least in (LV, WALL))
    return SliceEvidence(confidence, closed, contrast, roundness, cavity_mm2, heart_mm2, (labels == RV).any((2, 3)))


UNSURE = 0.8
"""A slice of less confidence gets no labels. All limits were chosen on 34 stacks of patients of ACDC to train and to
validate on, which have a mean confidence of 0.90 at least, and on images of no hearts; this one by Dice."""
NO_HEART = "No short-axis heart was found."
TRY = (
    "give short-axis images of balanced cine MR, whose blood is bright; no other views or organs",
    "check the spacing in the header: it must be in mm",
)


@dataclass(frozen=True)
class Rule:
    """A number of the whole image, of which less is worse, with its limits and what to say below them."""

    name: str
    look: float
    failed: float
    words: str


RULES = (
    Rule("confidence", 0.88, 0.83, "The network is not sure: mean confidence {value:.2f} of 1."),
    Rule("closed", 0.9, 0.75, "The wall does not close around the cavity: {value:.0%} of the cavity's border is wall."),
    Rule("contrast", 0.1, 0.0, "Blood is hardly brighter than muscle: by {value:.2f} of the image's range."),
    Rule("roundness", 0.7, 0.5, "The left ventricle is not round: its axes are as {value:.2f} to 1."),
    Rule("rv", 0.4, -inf, "The right ventricle is seen beside {value:.0%} of the left one only."),
    Rule("sure", 0.75, 0.4, "Slices that the network is unsure of got no labels: {missing:.0%} of what it found."),
    Rule("size", 1.0, 0.9, "The size is not that of a heart: the left ventricle is {across:.0f} mm across."),
    Rule("slices", 1.0, -inf, "A single slice of the stack shows a heart."),
    Rule("frames", 1.0, 0.8, "In {lost:.0%} of the frames no left ventricle was found."),
)  # fmt: skip
ACROSS_MM = 30.0, 105.0
"""The least and the largest diameter of the LV with its wall, in the slice where it is largest."""


def summarise(evidence: SliceEvidence, kept: Bool[ndarray, "t k"]) -> dict[str, float]:
    """The numbers that rules look at: means over what was found, larger slices counting more."""
    heart = evidence.heart_mm2

    def mean(values: Shaped[ndarray, "t k"], weights: Float[ndarray, "t k"]) -> float:
        known = np.isfinite(values.astype(float)) & (weights > 0)
        return float(np.average(values[known], weights=weights[known])) if known.any() else 0.0

    labelled = np.where(kept, heart, 0.0)
    across = float(2 * np.sqrt(labelled.max() / np.pi))
    found, shown = (heart > 0).any(0).sum(), (labelled > 0).any(0)
    return {
        "confidence": mean(evidence.confidence, labelled),
        "closed": mean(evidence.closed, labelled),
        "contrast": mean(evidence.contrast, labelled),
        "roundness": mean(evidence.roundness, labelled),
        "rv": mean(evidence.has_rv, labelled),
        "sure": float(labelled.sum() / heart.sum()) if found else 0.0,
        "size": min(across / ACROSS_MM[0], ACROSS_MM[1] / max(across, 1e-6)),
        "across": across,
        "frames": float((np.where(kept, evidence.cavity_mm2, 0) > 0).any(1).mean()),
        "slices": 1.0 if shown.sum() > 1 or heart.shape[1] == 1 else 0.0,
    }


def judge(numbers: dict[str, float]) -> tuple[Level, tuple[str, ...]]:
    """The level, and the reasons for it, the gravest first."""
    if not numbers["across"]:
        return "failed", (NO_HEART,)
    said = numbers | {"missing": 1 - numbers["sure"], "lost": 1 - numbers["frames"]}
    broken = [rule for rule in RULES if numbers[rule.name] < rule.look]
    grave = [rule for rule in broken if numbers[rule.name] < rule.failed]
    broken = grave + [rule for rule in broken if rule not in grave]
    reasons = (rule.words.format(value=numbers[rule.name], **said).replace("%", " %") for rule in broken)
    return "failed" if grave else "look" if broken else "good", tuple(reasons)


# The result.


@dataclass(frozen=True, repr=False, eq=False)
class Segmentation:
    """The ventricles and the wall in an image or a cine: 1 RV, 2 wall of the LV, 3 its cavity, as in ACDC."""

    image: Image | Cine
    labels: Integer[ndarray, "..."]
    """On the grid of the image; of a cine, (t, *s)."""
    confidence: Float[ndarray, "t k"]
    """Of every frame and slice, as counted in the array, from 0 to 1; NaN where nothing was found."""
    unsure: tuple[int, ...]
    """Slices, counted as in the array, that got no labels in some frame, since the network is unsure of them."""
    open: tuple[int, ...]
    """Slices in which the wall does not close around the cavity in the frame of the largest LV, as at the outflow."""
    numbers: dict[str, float]
    """What the level follows from."""
    level: Level
    """good: no sign of failure; look: check it before you use it; failed: do not use it."""
    reasons: tuple[str, ...] = ()
    model: str = ANATOMY

    def __repr__(self) -> str:
        return f"Segmentation({self.image}, {self.level})"

    @property
    def grid(self) -> Grid:
        return self.image.grid

    @property
    def frames(self) -> Integer[ndarray, "t *s"]:
        """The label map of every frame; of an image, of one."""
        return self.labels if isinstance(self.image, Cine) else self.labels[None]

    @cached_property
    def volumes(self) -> Volumes:
        """Volumes of every frame, in ml; a picture counts as 1 mm thick. The reference is end-diastole."""
        found = volumes(self.frames, self.grid.spacing)
        return replace(found, reference=int(found.lv_ml.argmax()))

    @property
    def end_diastole(self) -> int:
        """The frame of the largest LV, from 0."""
        return self.volumes.reference

    @property
    def end_systole(self) -> int:
        """The frame of the smallest LV, from 0."""
        return int(self.volumes.lv_ml.argmin())

    @property
    def ejection_fractions_percent(self) -> dict[str, float]:
        """{ventricle: 100 (largest − smallest) / largest volume} of a cine; empty of an image, and without
        what is not found in every frame."""
        curves = {"LV": self.volumes.lv_ml, "RV": self.volumes.rv_ml} if isinstance(self.image, Cine) else {}
        found = self.volumes.ejection_fractions_percent
        return {name: found[name] for name, curve in curves.items() if curve.all()}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the labels on the image's own grid, four axes of a cine, in the format of the file's ending."""
        if isinstance(self.image, Cine):
            write_frames(self.labels, self.grid, self.image.times_ms, path)
        else:
            write_image(self.image.with_array(self.labels), path)

    def report(self, path: str | PathLike[str]) -> Path:
        """Write a page with outlines and volumes, in a file that ends in .html; returns its path."""
        from vrnet.report.segmentation import write_page

        return write_page(self, Path(path))

    def verdict(self) -> dict[str, Any]:
        """The level, the reasons, and what to try."""
        return {"level": self.level, "reasons": list(self.reasons), "try": list(TRY if self.level == "failed" else ())}


def segment(
    image: ImageLike | CineLike | Shaped[ndarray, "..."] | Tensor,
    *, spacing: tuple[float, ...] | None = None,
    weights: str | PathLike[str] | Trained | None = None, device: DeviceChoice = "auto",
    progress: Progress | None = None,
) -> Segmentation:  # fmt: skip
    """Find the ventricles in short-axis cine MR: a slice, a stack or a cine, or its file, or an image of SimpleITK or
    nibabel; or an array of two axes (a slice) or three (a stack), with the `spacing` of its axes in mm.

    Slices lie across the axis of widest spacing, and each is seen by itself. A cine's frames share one scaling of
    intensities. Nothing is found where the network is unsure: look at `level` and `reasons` before you use it."""
    check_progress(progress)
    given = read_given(image, spacing)
    array = given.frames if isinstance(given, Cine) else given.array[None]
    check_shows_something(given.name, array)
    model = load_segmenter(weights)
    box = find_box(given, model, device) if isinstance(given, Cine) else None
    return find_ventricles(given, model, device, box, progress or (lambda part: None))


def find_box(cine: Cine, model: Trained, device: DeviceChoice) -> Box | None:
    """The part of each slice, with its axes as the world's, in which the heart of a cine is and moves, by two frames of
    it; None where no heart is found in these."""
    if len(cine) < MIN_SMOOTHED_FRAMES or cine.grid.is_volume:
        return None
    planes = Planes(cine.grid)
    found = find_ventricles(replace(cine, frames=cine.frames[:: ceil(len(cine) / 2)], times_ms=None), model, device)
    return None if found.level == "failed" else heart_box(planes.split(found.frames) > 0, planes.spacing)


def find_ventricles(
    given: Image | Cine, model: Trained, device: DeviceChoice, box: Box | None = None,
    progress: Progress = lambda part: None,
) -> Segmentation:  # fmt: skip
    """What `segment` finds, within a box of each slice."""
    array = given.frames if isinstance(given, Cine) else given.array[None]
    planes, (scaled,) = Planes(given.grid), rescale_jointly(torch.from_numpy(array.astype(np.float64)))
    split = planes.split(scaled.numpy())
    I = torch.from_numpy(np.ascontiguousarray(split)).to(find_device(device))
    with torch.inference_mode(), threads_for(True, I[0, 0].numel()):
        seen = look(I, planes.spacing, Anatomy(model, FIELD_MM), progress, box)
    labels = clean(seen.labels, planes.spacing)
    evidence = measure(labels, seen, split, planes.spacing)
    known = np.isfinite(evidence.confidence)  # the mean over a cine: no slice comes and goes by chance
    means = np.where(known, evidence.confidence, 0).sum(0) / np.maximum(known.sum(0), 1)
    kept = known & (means >= UNSURE)
    labels[~kept] = 0
    numbers = summarise(evidence, kept)
    level, reasons = judge(numbers)
    order = [planes.number(k) for k in range(labels.shape[1])]
    back = np.argsort(order)
    joined = planes.join(labels)
    largest = int((labels == LV).sum((1, 2, 3)).argmax())
    is_open = kept[largest] & (evidence.closed[largest] < RULES[1].look)
    return Segmentation(
        given, joined if isinstance(given, Cine) else joined[0], evidence.confidence[:, back],
        tuple(sorted(order[k] for k in np.flatnonzero((np.isfinite(evidence.confidence) & ~kept).any(0)))),
        tuple(sorted(order[k] for k in np.flatnonzero(is_open))), numbers, level, reasons, str(model),
    )  # fmt: skip


def has_heart_slice(image: Image, device: DeviceChoice) -> bool:
    """Whether the middle slice of an image, or one half-way from it to an end, shows an LV with an RV beside it. The RV
    tells hearts from hippocampi and slices of brains, which are round too."""
    planes = Planes(image.grid)
    stack = planes.split(image.array[None])[0]
    for k in dict.fromkeys(len(stack) * part // 4 for part in (2, 1, 3)):
        with suppress(BadInput):  # of an empty slice
            found = segment(stack[k], spacing=planes.spacing, device=device)
            if found.level != "failed" and found.numbers["rv"]:
                return True
    return False


def sizes(found: Segmentation) -> list[tuple[str, dict[str, str]]]:
    """How large the parts are, as people read it: [("End-diastole, frame 1", {"LV": "143 ml"})]; a picture has areas,
    an image one entry, and what was not found is left out."""
    volumes, is_flat = found.volumes, len(found.grid.shape) == 2
    phases = {"Volumes" if not is_flat else "Areas": 0}
    if isinstance(found.image, Cine):
        phases = {}
        for name, k in (("End-diastole", found.end_diastole), ("End-systole", found.end_systole)):
            phases[f"{name}, frame {k + 1} of {len(found.frames)}"] = k
    curves = {"LV": volumes.lv_ml, "RV": volumes.rv_ml, "wall": volumes.wall_ml}
    rows = []
    for when, k in phases.items():
        parts = {
            name: f"{10 * ml[k]:.1f} cm²" if is_flat else f"{ml[k]:.1f} ml" for name, ml in curves.items() if ml[k]
        }
        rows += [(when, parts)] if parts else []
    return rows


def read_given(given: Any, spacing: tuple[float, ...] | None = None) -> Image | Cine:
    """The image or cine that was given, in whatever form."""
    if isinstance(given, (np.ndarray, Tensor)):
        array = np.asarray(given.detach().cpu() if isinstance(given, Tensor) else given)
        if array.ndim not in (2, 3):
            raise BadInput(f"the image has {array.ndim} axes: give a slice or a stack, and a cine as vrnet.Cine")
        check_spacing(spacing, array.ndim)
        if spacing is None:
            raise BadInput("an array has no spacing: give `spacing` in mm, one number per axis")
        return Image(array, Grid.plain(array.shape, tuple(map(float, spacing))))
    if spacing is not None:
        raise BadInput("the spacing of an image is that of its header: leave `spacing` out")
    if isinstance(given, Cine):
        return given
    axes = 3
    if isinstance(given, sitk.Image):
        axes = len([n for n in given.GetSize() if n > 1 or len(given.GetSize()) < 4])
    elif isinstance(given, SpatialImage):
        axes = len(given.shape) if given.shape[3:] != (1,) else 3
    elif isinstance(given, (str, PathLike)):
        return read_file(Path(given))
    return given_cine(given) if axes > 3 else given_image("the image", given)


def read_file(path: Path) -> Image | Cine:
    """The image of a file or a folder; the cine, where it has a fourth axis or several frames."""
    if is_folder(path):
        try:
            return given_image("the image", path)
        except BadInput:
            return given_cine(path)
    voxels = read_voxels(path, with_voxels=False)
    is_cine = voxels.is_sequence or (len(voxels.grid.shape) > 3 and voxels.grid.shape[3] > 1)
    return given_cine(path) if is_cine else given_image("the image", path)


def check_shows_something(name: str, array: Shaped[ndarray, "..."]) -> None:
    """BadInput unless an image has numbers that differ."""
    if array.size == 0 or array.dtype.kind not in "iufb":
        raise BadInput(f"{name} is {array.shape} of {array.dtype}: give an image of real numbers")
    low, high = float(array.min()), float(array.max())
    if not (isfinite(low) and isfinite(high)):
        raise BadInput(f"{name} contains NaN or infinite values: replace them first (numpy.nan_to_num)")
    if low == high:
        raise BadInput(f"{name} is constant ({low:g}): there is nothing to segment")


def load_segmenter(weights: str | PathLike[str] | Trained | None = None) -> Trained:
    """The model in the box, or another one, or that of its file of weights."""
    found = load_method(weights) if isinstance(weights, (str, PathLike)) else weights or load_bundled(ANATOMY)
    if not found.is_segmenter or found.card.dimension != 2:
        raise BadInput(f"{found.file} holds {found}: give the weights of a Segmenter in 2D")
    return found
