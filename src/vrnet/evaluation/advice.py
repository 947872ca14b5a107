"""What may help a registration, given how it was run: nothing that was done already, nothing that cannot be done.

Arguments are named between backticks, as Python has them; the commands show them as their options."""

from collections.abc import Callable
from dataclasses import dataclass

from vrnet.errors import BadInput
from vrnet.methods.boxed import SHORT_AXIS_CINE
from vrnet.methods.names import parameters, parse, with_parameters
from vrnet.methods.parameters import value_in

TRACKERS = "TV-L1", "Gaussian-LNCC"
"""Methods that need no training, one of each kind: of brightness, and of structure."""


@dataclass(frozen=True)
class Run:
    """How a registration was run, as far as that is known."""

    method: str = ""
    """Its name, with every changed parameter; empty if nobody knows."""
    dimension: int = 3
    """That of what was registered: 2 for slices, each by itself."""
    has_affine: bool = False
    """Whether an affine start, with scaling and shear, was found."""
    is_matched: bool = False
    """Whether moving was given the histogram of fixed."""
    has_masks: bool = False
    is_repaired: bool = False
    """Whether folds were repaired."""


Advice = Callable[[Run], str | None]
"""What to try after a run; None where it was done."""


def same_patient(run: Run) -> str:
    return "check that both images show the same part of the same patient, the same way round"


def labels(run: Run) -> str:
    return "check that both label maps use the same numbers"


def other_contrast(run: Run) -> str:
    """Methods that compare structure; after one of them, the other."""
    left = [name for name in ("Remap", "MIND") if name not in run.method] or ["LNCC"]
    words = "which compare structure" if len(left) > 1 else "which compares structure"
    return f"`method=Gaussian-{left[0]}`{''.join(f' or Gaussian-{name}' for name in left[1:])}, {words}, not brightness"


def other_brightness(run: Run) -> str | None:
    """The method that compares structure of one contrast, unless it, or one that minds still less, was run."""
    if compares_structure(run):
        return None
    return "`method=Gaussian-LNCC`, which compares structure, not brightness"


def match(run: Run) -> str | None:
    return None if run.is_matched or compares_structure(run) else "`match_intensities`"


def compares_structure(run: Run) -> bool:
    """Whether the method that was run does not mind that one image is brighter."""
    return any(name in run.method for name in ("LNCC", "MIND", "NMI", "Remap"))


def affine(run: Run) -> str | None:
    return None if run.has_affine else "`affine=affine`, if one image is turned, scaled or far away"


def headers(run: Run) -> str:
    return "check where the headers put the images" + ("" if run.has_affine else ", or give `affine=affine`")


def masks(run: Run) -> str | None:
    return None if run.has_masks else "`fixed_mask` and `moving_mask`, if only a part of the images corresponds"


def no_folds(run: Run) -> str | None:
    return None if run.is_repaired else "`folds=repair`"


def smoother(run: Run) -> str:
    return f"a smoother field: {stronger(run, 2.0, 'more', 'Gaussian-LNCC')}"


def freer(run: Run) -> str:
    return f"a freer field: {stronger(run, 0.5, 'less', 'TV-L1')}"


def stronger(run: Run, factor: float, change: str, other: str) -> str:
    """The method that was run with λ times a factor; another one, if it has no λ. Where nobody knows what was run, that
    may be any tool, with settings of its own."""
    if not run.method:
        return f"{change} smoothing by the tool that found it, or `method={other}`"
    return f'`method="{with_lam(run, factor) or other}"`'


def tracker_of_hearts(run: Run) -> str | None:
    """The model in the box that tracks slices, unless it was run."""
    is_done = run.dimension != 2 or run.method == SHORT_AXIS_CINE
    return None if is_done else f"`method={SHORT_AXIS_CINE}`, the model of hearts in the box"


def other_tracker(run: Run) -> str:
    """The model that tracks hearts; after it, and of volumes, methods that track in another way than the one that was
    run."""
    return tracker_of_hearts(run) or ", or ".join(
        f"`method={name}`" for name in TRACKERS if not run.method.startswith(name)
    )


def with_lam(run: Run, factor: float) -> str | None:
    """The name of the method that was run with λ times a factor; None if it has no λ."""
    try:
        method = parse(run.method)
    except BadInput:  # a file of weights, or a method of the user's own
        return None
    lam = next((value_in(each.value, run.dimension) for each in parameters(method) if each.name == "lam"), None)
    return None if lam is None else str(with_parameters(method, {"lam": float(f"{factor * lam:.3g}")}))
