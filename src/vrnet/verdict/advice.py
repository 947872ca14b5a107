"""What may help a registration, given how it was run: nothing that was done already, nothing that cannot be done.

Arguments are named between backticks, as Python has them; the commands show them as their options."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vrnet.errors import BadInput
from vrnet.methods.names import SHORT_AXIS_CINE, parameters, parse, with_parameters, without_average
from vrnet.methods.parameters import value_in

TRACKERS = "Gaussian-LNCC", "TV-L1"  # of volumes, in the order to try them: by structure, and by intensities


@dataclass(frozen=True)
class Run:
    """How a registration was run, as far as that is known."""

    method: str = ""  # its name, with every changed parameter; empty if nobody knows
    dimension: int = 3  # that of what was registered: 2 for slices, each by itself
    is_stack: bool = False  # whether several slices were registered, each by itself
    affine: str = "none"  # which start there was, as the option of this name has it
    compares_structure: bool = False  # whether the method accepts that one image is brighter
    is_matched: bool = False  # whether moving was given the histogram of fixed
    is_brightness_kept: bool = False  # whether images that are not equally bright were to be compared as they are
    has_masks: bool = False
    is_repaired: bool = False  # whether folds were repaired
    label_maps: tuple[str, ...] = ()  # which of the images, fixed and moving, are evidently label maps
    is_affine: bool = False  # whether the field, beyond an affine start, is that of an affine map


Advice = str | Callable[[Run], str | None]  # what to try, always or after a certain run; None where it was done
MAX_REASONS, MAX_ADVICE = 5, 3  # that a verdict gives: causes and the worst findings first, the likeliest to help first


def advice_after(run: Run, given: Iterable[Advice]) -> tuple[str, ...]:
    """What to try after a run: each advice once, in order."""
    said = (advice if isinstance(advice, str) else advice(run) for advice in given)
    return tuple(dict.fromkeys(words for words in said if words is not None))


def unless(is_done: Callable[[Run], bool], words: str) -> Callable[[Run], str | None]:
    """What to try after a run that did not do it."""
    return lambda run: None if is_done(run) else words


# Of a pair of images.

SAME_PATIENT = "check that both images show the same part of the same patient, the same way round"
LABELS = "check that both label maps use the same numbers, and that each belongs to its own image"
OTHER_BRIGHTNESS = '`method="Gaussian-LNCC"`, which compares structure, not brightness'
WAY_ROUND = (
    "check in the headers, or by eye, which way round each image lies: an affine start turns, but does not mirror"
)
MORE_VOXELS = "a larger mask, or none; where the images themselves are so small, look at them"
LOOK_AT_SLICES = "look at these slices: one may be of another moment of breathing or of the cycle, or have an artefact"
affine = unless(lambda run: run.affine == "affine", '`affine="affine"`, if one image is turned or far away')
rigid = unless(lambda run: run.affine != "none", '`affine="rigid"`, if one image is turned or far away')
masks = unless(lambda run: run.has_masks, "`fixed_mask` and `moving_mask`, if only a part of the images corresponds")
artefact = unless(lambda run: run.has_masks, "`fixed_mask` or `moving_mask`, without the bright part")
no_folds = unless(lambda run: run.is_repaired, '`folds="repair"`')


def other_contrast(run: Run) -> str:
    """Methods that compare structure; after one of them, the other."""
    left = [name for name in ("Remap", "MIND") if name not in run.method] or ["LNCC"]
    words = "which compare structure" if len(left) > 1 else "which compares structure"
    others = "".join(f" or Gaussian-{name}" for name in left[1:])
    return f'`method="Gaussian-{left[0]}"`{others}, {words}, not brightness'


def match(run: Run) -> str | None:
    if run.is_matched:
        return None
    return '`brightness="match"`' if run.is_brightness_kept else "`match_intensities=True`"


def headers(run: Run) -> str:
    return "check where the headers put the images" + ("" if run.affine == "affine" else ', or give `affine="affine"`')


def smoother(run: Run) -> str:
    """An affine map is as smooth as can be: one from a file may go the other way, or be along other axes."""
    if run.is_affine and not run.method:
        return "check the transform: it should take points of fixed to moving, in mm along the axes of ITK (LPS)"
    return f"a smoother field: {with_lam(run, 2.0) or another(run, 'more', 'Gaussian-LNCC')}"


def freer(run: Run) -> str | None:
    """Who asked for a rigid or affine map alone has it."""
    return None if run.method == "identity" else f"a freer field: {with_lam(run, 0.5) or another(run, 'less', 'TV-L1')}"


def another(run: Run, change: str, method: str) -> str:
    """Another method, for one without λ; if nobody knows what was run, it may be any tool, with its own settings."""
    named = f'`method="{method}"`'
    return named if run.method else f"{change} smoothing by the tool that found it, or {named}"


def with_lam(run: Run, factor: float) -> str | None:
    """The method that was run with λ times a factor; None if it has no λ."""
    try:
        method = parse(run.method)
    except BadInput:  # a file of weights, or a method of the user's own
        return None
    lam = next((value_in(each.value, run.dimension) for each in parameters(method) if each.name == "lam"), None)
    return None if lam is None else f'`method="{with_parameters(method, {"lam": float(f"{factor * lam:.3g}")})}"`'


# Of a tracked cine.

CHECK_FRAMES = "look at these frames, and leave out those that show something else, or another position"
WHOLE_CYCLE = "check that the cine is one whole beat, in the order of time, and that its patient lay still"
REFERENCE_LABELS = "check that the labels belong to the reference `frame`"
FROM_DIASTOLE = "give the labels of end-diastole, and its `frame`: strain is measured from there"
outer_slices = unless(
    lambda run: not run.is_stack, "leave the first and the last slices out of the labels: the heart moves through them"
)
WITHOUT_SLICE = "look at that slice; if its outlines are off, leave it out of the labels, and so of volumes and strain"


def other_tracker(run: Run) -> str | None:
    """The method that tracks best, and after it what is left: no advice leads back to a method that was left."""
    if run.dimension == 2:
        model = f'`method="{SHORT_AXIS_CINE}"`, the model of hearts in the box'
        return None if without_average(run.method) == SHORT_AXIS_CINE else model
    tried = next((k for k, name in enumerate(TRACKERS) if run.method.startswith(name)), -1)
    return ", or ".join(f'`method="{name}"`' for name in TRACKERS[tried + 1 :]) or None


def stiffer(run: Run) -> str | None:
    """The method that was run with twice its λ, where it has one."""
    method = with_lam(run, 2.0)
    return None if method is None else f"a smoother field: {method}"
