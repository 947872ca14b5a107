"""What the labels of a cine's reference mean: which are the ventricles and the wall, and what may be wrong there."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Integer
from numpy import ndarray
from scipy import ndimage

from vrnet.cardiac.strain import NO_STRAIN, NO_WALL
from vrnet.cardiac.volumes import LEAST_VOXELS, open_wall_text, slices_first
from vrnet.cardiac.wall import HeartLabels
from vrnet.data.labels import SMALLEST_CAVITY, LabelNames, find_cavity, in_planes, label_in_cavity
from vrnet.errors import BadInput, percent, warn_of_input
from vrnet.images.grid import check_same_grid
from vrnet.images.image import Cine, Image, as_labels
from vrnet.images.io import ImageLike, given_image, grid_in_space
from vrnet.images.resample import place_labels
from vrnet.vocabulary import HEART

PARTS = {"RV": "rv", "Myo": "wall", "LV": "lv"}  # what parts of the heart are called by users, and in HeartLabels
KNOWN_NAMES = {"rv": "rv", "myo": "wall", "lv": "lv", "wall": "wall", "myocardium": "wall", "cavity": "lv"}
CAVITY = 3  # what the inside of the wall is labelled where a map has the wall alone
SMALLEST_CAVITY_OF_A_THREE = 0.25  # of a wall labelled 3, the cavity in ACDC: less is a papillary muscle left out of it
LEAST_INSIDE = 0.4  # of labels on another grid, to be taken for those of the cine
ROUNDING = 0.02  # of a volume, by voxels of another grid
OPEN_WALL = 1.2  # convex hulls of open arcs are so many times as large as these at least; that of a disc is not


def read_labels(
    given: ImageLike, cine: Cine, heart: HeartLabels | None, names: LabelNames
) -> tuple[Image, HeartLabels, LabelNames]:
    """A label map on the grid of the cine, which labels are the parts of the heart, and their names; warns of gaps."""
    labels = given_image("labels", given)
    if len(cine.grid.shape) == 2 and labels.grid.shape[2:] == (1,):  # one slice, saved as a stack with that header
        flat = grid_in_space(labels.grid, Path(labels.name))
        labels = replace(labels, array=labels.array[..., 0], grid=flat)
    if labels.array.ndim == len(cine.grid.shape) and labels.grid.shape != cine.grid.shape:
        labels = take_by_header(labels, cine)
    check_same_grid(labels.name, labels.grid, f"the frames of {cine.name}", cine.grid)
    labels = replace(as_labels(labels), grid=cine.grid)
    if not labels.array.any():
        raise BadInput(f"{labels.name} is 0 everywhere: give the label map of the reference frame")
    meaning = heart_of(names) if names else heart
    if meaning is None:
        labels, meaning = interpret_labels(labels)
    there = sorted(np.unique(labels.array[labels.array != 0]).tolist())
    if not {meaning.rv, meaning.wall, meaning.lv} & {*there}:
        said = f"{labels.name} has the labels {', '.join(map(str, there))}, and none of {shown(names_by_part(meaning))}"
        raise BadInput(f"{said}: say which is which by `label_names`, as in 1=RV,2=Myo,3=LV")
    if absent := {label: name for label, name in names.items() if label not in there}:
        warn_of_input(f"{labels.name} has no label {shown(absent)}")
    if meaning.wall not in there:
        said = f"{NO_STRAIN.format(reason=NO_WALL)}; the verdict looks neither at the wall nor for muscle in the cavity"
        warn_of_input(said)
    warn_of_exchanged_ventricles([labels], names or names_by_part(meaning))
    if slices := open_slices(labels, meaning):
        warn_of_input(f"{labels.name}: {open_wall_text(slices)}; to count it, label the cavity too")
    return labels, meaning, names


def take_by_header(labels: Image, cine: Cine) -> Image:
    """Labels of the same patient on another grid, such as of a cine that was not cropped, on the grid of the cine; as
    they are if less than half of them lies there."""
    placed = place_labels(as_labels(labels), cine.grid)
    sizes = [np.count_nonzero(each.array) * prod(each.grid.spacing) for each in (placed, labels)]
    if sizes[0] < LEAST_INSIDE * sizes[1] or not sizes[0]:
        return labels
    lost = max(0.0, 1 - sizes[0] / sizes[1])
    outside = f"; {percent(lost)} of them lies outside the cine" if lost > ROUNDING else ""
    warn_of_input(f"{labels.name} has another grid than {cine.name}, and is placed by the headers{outside}")
    return placed


def interpret_labels(labels: Image) -> tuple[Image, HeartLabels]:
    """The labels with what they mean, as in ACDC: a lone value is the wall, a lone 3 that encloses little the LV."""
    values = np.unique(labels.array[labels.array != 0])
    if len(values) > 1:
        return labels, HeartLabels()
    lone = int(values[0])
    inside = np.stack([find_cavity(plane) for plane in in_planes(labels.array != 0, labels)])
    least = SMALLEST_CAVITY_OF_A_THREE if lone == CAVITY else SMALLEST_CAVITY
    is_solid = bool(inside.sum() <= least * np.count_nonzero(labels.array))
    said = f"{labels.name} has one label, {lone}: it is taken for the"
    if is_solid and lone == CAVITY:
        warn_of_input(f"{said} cavity of the LV, since it encloses little")
        return labels, HeartLabels(rv=None, wall=None, lv=lone)
    cavity = CAVITY if lone != CAVITY else CAVITY + 1
    array = labels.array.astype(np.int32)
    if is_solid:
        disc = f'if it is the cavity, give `label_names="{lone}=LV"`'
        warn_of_input(f"{said} wall, but encloses next to nothing; {disc}")
    else:
        in_planes(array, labels)[inside] = cavity
        warn_of_input(f"{said} wall, and what it encloses is labelled {cavity}")
    return labels.with_array(array), HeartLabels(rv=None, wall=lone, lv=cavity)


def open_slices(labels: Image, heart: HeartLabels) -> tuple[int, ...]:
    """The slices whose wall is an open arc, as at the outflow, where the LV has no volume; none without any LV."""
    from scipy.spatial import ConvexHull, QhullError

    walls, cavities = (in_planes(labels.array == part, labels) for part in (heart.wall, heart.lv))
    found = []
    for k, (wall, cavity) in enumerate(zip(walls, cavities, strict=True) if cavities.any() else ()):
        if (cavity | find_cavity(wall)).sum() <= SMALLEST_CAVITY * wall.sum():
            with suppress(QhullError, ValueError):  # which are raised for a line, a few voxels, or none
                if ConvexHull(np.argwhere(wall)).volume > OPEN_WALL * wall.sum():
                    found.append(k)
    return tuple(found)


OF_MOTION = 0.35
"""How much labels that motion carries count beside those that the network finds in a frame: chosen on ten
validation patients of ACDC by Dice at end-systole. From .2 to .4 it is .850 to .848 with the network's labels at
end-diastole, and .862 to .863 with experts'; by motion alone .807 and .813."""


def reconcile(
    carried: Integer[ndarray, "t *s"], seen: Integer[ndarray, "t *s"], heart: HeartLabels,
    spacing: tuple[float, ...], across: int | None,
) -> Integer[ndarray, "t *s"]:  # fmt: skip
    """Between two estimates of every label map; the values of `seen` are those of ACDC."""
    known = np.zeros_like(carried)
    for name, part in PARTS.items():
        if (label := getattr(heart, part)) is not None:
            known[seen == HEART[name]] = label
    weights = OF_MOTION, 1 - OF_MOTION
    pairs = zip(carried, known, strict=True)
    return np.stack([mix_labels(pair, weights, 0, heart, spacing, across) for pair in pairs])


FADING = 0.13  # of a cycle, and two frames at least: so far from a corrected frame, others do not change with it


def correct_labels(
    labels: Integer[ndarray, "t *s"], frame: int, corrected: Integer[ndarray, "*s"], heart: HeartLabels,
    spacing: tuple[float, ...], across: int | None,
) -> Integer[ndarray, "t *s"]:  # fmt: skip
    """The label maps of all frames, one of which was corrected: its neighbours change too, the less the farther."""
    found, n = labels.copy(), len(labels)
    for t in range(n):
        weight = 1 - min((t - frame) % n, (frame - t) % n) / max(2, FADING * n)
        if weight > 0:
            maps, weights = (labels[t], corrected, labels[frame]), (1.0, weight, -weight)
            found[t] = mix_labels(maps, weights, int(weight > 0.5), heart, spacing, across)
    found[frame] = corrected
    return found


def mix_labels(
    maps: Sequence[Integer[ndarray, "*s"]], weights: Sequence[float], fallback: int, heart: HeartLabels,
    spacing: tuple[float, ...], across: int | None,
) -> Integer[ndarray, "*s"]:  # fmt: skip
    """Where Σ w φ < 0, φ being the signed distance from the border of the LV, of the LV with its wall, and of the RV
    within a slice of each map. What one map lacks in a slice, and other structures, are as in the map `fallback`."""
    out, edges = maps[0].copy(), tuple(h for axis, h in enumerate(spacing) if axis != across)

    def between(masks: list[Bool[ndarray, "h w"]]) -> Bool[ndarray, "h w"]:
        if not all(mask.any() for mask in masks):
            return masks[fallback]
        whole = np.any(masks, 0)
        there = [np.flatnonzero(whole.any(1 - axis)) for axis in (0, 1)]
        box = tuple(slice(max(0, at[0] - 1), at[-1] + 2) for at in there)  # beyond it, all distances are positive
        found = np.zeros_like(whole)
        found[box] = sum(w * signed_distance(mask[box], edges) for w, mask in zip(weights, masks, strict=True)) < 0
        return found

    stacks = [slices_first(each[None], across)[0] for each in (out, *maps)]
    for one, *known in zip(*stacks, strict=True):
        inside = {heart.rv: [heart.rv], heart.wall: [heart.wall, heart.lv], heart.lv: [heart.lv]}  # the LV on its wall
        parts = [
            (label, between([np.isin(each, [part for part in within if part is not None]) for each in known]))
            for label, within in inside.items()
            if label is not None
        ]
        one[np.isin(one, [label for label, _ in parts])] = 0
        is_free = one == 0
        for label, mask in parts:
            one[mask & is_free] = label
    return out


MIN_FIT = 2 / 3
"""Of the fit of labels to their frame to that of the frame that they fit best: in patients of ACDC .96 to 1 at
end-diastole and mostly above .76 at end-systole; if these two are exchanged, mostly below .66."""


def warn_of_wrong_frame(labels: Image, heart: HeartLabels, cine: Cine, frame: int) -> None:
    """Warn where the wall and the cavity are told apart much better by the brightness of another frame: η², the part of
    its variance that lies between the two, over all slices that show both."""
    across = cine.grid.across if len(cine.grid.shape) == 3 else None
    maps, frames = slices_first(labels.array[None], across)[0], slices_first(cine.frames, across)
    apart = total = np.zeros(len(cine))
    for k, known in enumerate(maps):
        parts = [frames[:, k][:, known == label].astype(float) for label in (heart.wall, heart.lv)]
        if all(part.shape[1] >= LEAST_VOXELS for part in parts):
            both = np.concatenate(parts, 1)
            middle = both.mean(1)
            apart = apart + sum(part.shape[1] * (part.mean(1) - middle) ** 2 for part in parts)
            total = total + np.square(both - middle[:, None]).sum(1)
    if not total.all():
        return
    fit = apart / total
    if fit[frame] < MIN_FIT * fit.max():
        best = f"frame {int(fit.argmax()) + 1} ({int(fit.argmax())} in files)"
        said = f"{labels.name} fits {best} better than frame {frame + 1}, whose labels it is said to be"
        warn_of_input(f"{said}: give the number of its frame by `frame`")


def signed_distance(mask: Bool[ndarray, "h w"], spacing: tuple[float, ...]) -> Float[ndarray, "h w"]:
    """From the border of a mask, in mm: negative inside."""
    outside, inside = (ndimage.distance_transform_edt(part, spacing) for part in (~mask, mask))
    return np.asarray(outside - inside)


def heart_of(names: LabelNames) -> HeartLabels:
    """Which labels are the parts of the heart, by what they are called; what is not named is not labelled."""
    parts = named_parts(names)
    found = dict(parts)
    if len(found) < len(parts):
        raise BadInput(f"the names of labels are {shown(names)}: a part of the heart is named twice; give each once")
    if not found:
        raise BadInput(f"the names of labels are {shown(names)}: name a part of the heart too, as in 1=RV,2=Myo,3=LV")
    return HeartLabels(found.get("rv"), found.get("wall"), found.get("lv"))


def named_parts(names: LabelNames) -> list[tuple[str, int]]:
    """The parts of the heart that names of labels name, and their labels."""
    return [(KNOWN_NAMES[name.casefold()], label) for label, name in names.items() if name.casefold() in KNOWN_NAMES]


def names_by_part(heart: HeartLabels) -> LabelNames:
    found = {getattr(heart, part): name for name, part in PARTS.items()}
    return {label: name for label, name in found.items() if label is not None}


def shown(names: LabelNames) -> str:
    """As they are given: 1=RV,2=Myo."""
    return ",".join(f"{label}={name}" for label, name in names.items())


def warn_of_exchanged_ventricles(maps: Sequence[Image], names: LabelNames) -> None:
    """Warn where the wall encloses what is called the RV, or where one map is numbered so and another is not."""
    found = named_parts(names)
    if sorted(part for part, _ in found) != sorted(PARTS.values()):
        return
    parts = dict(found)
    rv, lv = parts["rv"], parts["lv"]
    inside = [(each.name, label_in_cavity([each], parts["wall"], (lv, rv))) for each in maps]
    wrong, right = ([name for name, label in inside if label == one] for one in (rv, lv))
    if not wrong:
        return
    said = f"in {' and '.join(wrong)} the wall encloses label {rv}, taken for the RV"
    if right:
        warn_of_input(f"{said}, and in {' and '.join(right)} label {lv}, for the LV: number both maps alike")
    else:
        other = shown({{rv: lv, lv: rv}.get(label, label): name for label, name in names.items()})
        warn_of_input(f'{said}, and not {lv}, for the LV: if they are exchanged, give `label_names="{other}"`')
