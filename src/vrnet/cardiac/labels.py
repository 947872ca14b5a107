"""Which labels are the parts of the heart, by what they are called; and whether LV and RV seem to be exchanged."""

from collections.abc import Sequence

import numpy as np

from vrnet.cardiac.wall import HeartLabels
from vrnet.data.labels import LabelNames, label_in_cavity
from vrnet.errors import BadInput, warn_of_input
from vrnet.images.image import Image

PARTS = {"RV": "rv", "Myo": "wall", "LV": "lv"}
"""What parts of the heart are called in names of labels, and in HeartLabels."""
ALSO_CALLED = {"wall": "wall", "myocardium": "wall", "cavity": "lv"}
"""Other names that people give, as pages do."""


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
    known = {name.casefold(): part for name, part in PARTS.items()} | ALSO_CALLED
    return [(known[name.casefold()], label) for label, name in names.items() if name.casefold() in known]


def names_of(heart: HeartLabels, labels: Image) -> LabelNames:
    """What the labels that are there are called, by which are the parts of the heart."""
    there = set(np.unique(labels.array).tolist())
    return {label: name for label, name in names_by_part(heart).items() if label in there}


def names_by_part(heart: HeartLabels) -> LabelNames:
    """What the labels of the parts of the heart are called."""
    found = {getattr(heart, part): name for name, part in PARTS.items()}
    return {label: name for label, name in found.items() if label is not None}


def shown(names: LabelNames) -> str:
    """As they are given: 1=RV,2=Myo."""
    return ",".join(f"{label}={name}" for label, name in names.items())


def warn_of_exchanged_ventricles(maps: Sequence[Image], names: LabelNames) -> None:
    """Warn where the wall encloses what is called the RV, as in files that count the LV as 1; and where one map is
    numbered so, and another is not. Names that do not say which is the wall, the LV and the RV are of no such heart."""
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
