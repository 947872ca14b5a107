"""Names parse and print: "TV-L1(lam=0.15)" is a method, and str(method) is "TV-L1(lam=0.15)". What a person asks for is
a `MethodSpec`, which comes to a method: parse_method("default").load().resolve(2, spacing=(1.8, 1.8))"""

import platform
import re
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product
from os import PathLike
from pathlib import Path
from typing import cast

import torch
from torch import nn

from vrnet.devices import CPU
from vrnet.errors import BadInput, UnfitMachine, did_you_mean, type_name
from vrnet.files import exists, sha256
from vrnet.methods import parameters as by_name
from vrnet.methods import weights as files
from vrnet.methods.external import FFD, Demons, SyN, is_installed
from vrnet.methods.method import AVERAGED, Averaged, Card, Method, Query, Scaling, Task, Trainable, made_by_fields
from vrnet.methods.parameters import Parameter, assignments, split_name
from vrnet.methods.solvers import preset
from vrnet.methods.vrnet import PAPER, REGISTERS_NOTHING, RCNet, Siamese, VoxelMorph
from vrnet.methods.weights import Trained, load_method, parse_learned
from vrnet.provenance import versions
from vrnet.variational.cascade import Initializer, Spacing, no_motion
from vrnet.variational.data_terms import DATA_TERMS
from vrnet.variational.regularizers import REGULARIZERS

FOLDER = Path(__file__).parents[1] / "weights"
SHORT_AXIS, SHORT_AXIS_CINE = "short-axis", "short-axis-cine"
BUNDLED = {
    SHORT_AXIS: "learned, in the box: VR-Net for short-axis cine MR, ED and ES of a heart, in 2D",
    SHORT_AXIS_CINE: "learned, in the box: VR-Net for the frames of short-axis cine MR, in 2D; the default of "
                     "`vrnet track`",
    "hippocampus": "learned, in the box: VR-Net for T1 images cut to the hippocampus, of two people, in 3D",
    "hippocampus-template": "in the box: through a template of 140 T1 images cut to the hippocampus, made without "
                            "labels, in 3D",
}  # fmt: skip
"""Every model in the box that registers: its name, and a line on what it is."""
ANATOMY = "anatomy"
SEGMENTERS = {ANATOMY: "learned, in the box: finds RV, wall and LV in short-axis cine MR, in 2D"}
# Those of the weights in the box, which are those of the images that they were made from.
LICENCES = dict.fromkeys((SHORT_AXIS, SHORT_AXIS_CINE, ANATOMY), "CC BY-NC-SA 4.0, non-commercial")
LICENCES |= dict.fromkeys(("hippocampus", "hippocampus-template"), "CC BY-SA 4.0")


def is_bundled(name: str) -> bool:
    return name.casefold() in BUNDLED


def bundled_file(name: str) -> Path:
    return FOLDER / f"{name.casefold().replace('-', '_')}.safetensors"


@cache
def load_bundled(name: str) -> Trained:
    """The model of a name, in whatever case, read when it is first asked for; all who ask share it."""
    own = name.casefold()
    return load_method(bundled_file(own), name=own) if name == own else load_bundled(own)


# What is used where no method is named: a model of hearts where it can be right, the iterative solver elsewhere.

SOLVER = preset("Gaussian", "LNCC")  # best of the solvers on hippocampi of validation, and as good as any on hearts
MODELS: dict[Task, str] = {"pair": SHORT_AXIS, "cine": SHORT_AXIS_CINE}
"""For slices. The first brings labels together best; the second strains tissue most nearly as phantoms do."""


@dataclass(frozen=True)
class Default(Method):
    """A method that is chosen once the images are known; the chosen method has a name of its own."""

    summary = (
        "where none is named: short-axis for 2D images and slices of hearts in short axis, of 0.6 to 5.4 mm a pixel "
        f"(short-axis-cine where they are tracked), {SOLVER} for the rest"
    )

    def __str__(self) -> str:
        return "default"

    def resolve(self, d: int, spacing: Spacing, images: Task = "pair", shows_heart: Query | None = None) -> Method:
        """The method for images of d dimensions; a spacing far from the model's, or no heart, leaves the solver."""
        if d != 2:
            return SOLVER
        model = load_bundled(MODELS[images])
        is_near = spacing is None or files.is_in_reach(model.card.spacing_mm, spacing, files.MAX_SPACING_RATIO)
        return model if is_near and (shows_heart is None or shows_heart()) else SOLVER

    def build(self, d: int, device: torch.device = CPU) -> Initializer:
        return self.resolve(d, None).build(d, device)


@dataclass(frozen=True)
class Identity(Method):
    """u = 0: the row that others are measured against."""

    summary = "no registration: what there was before"

    def __str__(self) -> str:
        return "identity"

    def build(self, d: int, device: torch.device = CPU) -> Initializer:
        return no_motion


METHODS: list[Method] = [FFD(), Demons(), SyN(), Identity(), Default()]
EXAMPLES = (
    *PAPER, *(replace(method, denoiser=letter) for letter in ("C", "D") for method in PAPER),
    VoxelMorph(), Siamese(), RCNet(),
)  # fmt: skip
"""Learned methods whose names may have been meant."""


def all_methods() -> list[Method]:
    """Every method that can register as it is, but for the bundled models."""
    return [*(preset(*terms) for terms in product(REGULARIZERS, DATA_TERMS)), *METHODS]


def names() -> dict[str, str]:
    """The name of every method that needs no weights, with a line on what it is."""
    return BUNDLED | {str(method): method.summary for method in all_methods()}


def parse(name: str) -> Method:
    """The method of that name, with the parameters in brackets; a learned one has weights only if it is bundled."""
    alone = without_average(name)
    if alone != name:
        return Averaged(parse(alone))
    base, given = split_name(name)
    if (found := find_base(base)) is not None:
        return with_parameters(found, given)
    if base.endswith(files.SUFFIX):
        told = "give a file of weights to vrnet.load_method, by --weights or, in training, by `start_from`"
    else:
        choice = f"choose one of {', '.join(names())} or, with weights, {', '.join(files.FAMILIES)}"
        told = did_you_mean(base, (*map(str, (*all_methods(), *EXAMPLES)), *BUNDLED)) or choice
    raise BadInput(f'no method is called "{base}": {told}')


def without_average(name: str) -> str:
    """The name of a method without the word that it is averaged, however often it has that."""
    return re.sub(rf"({re.escape(AVERAGED)})+\Z", "", name, flags=re.IGNORECASE)


def kind_of(name: str) -> str | None:
    """What a bundled model is, as the paper's shorthand says it; None of a name that says that itself."""
    alone = without_average(name)
    return load_bundled(alone).card.method if is_bundled(alone) else None


def find_base(name: str) -> Method | None:
    """The method of a name without brackets, if there is one; BadInput where it cannot be, as VoxelMorph-w0."""
    if name.casefold() in SEGMENTERS:
        raise BadInput(f"{name.casefold()} {REGISTERS_NOTHING}")
    if is_bundled(name):
        return load_bundled(name)
    return {str(method).casefold(): method for method in all_methods()}.get(name.casefold()) or parse_learned(name)


def parameters(method: Method) -> list[Parameter]:
    """What can be set of a method, with its value and what it means; averaging sets nothing more."""
    if isinstance(method, Averaged):
        return parameters(method.method)
    return by_name.parameters(method, method.fixed_parameters)


def with_parameters(method: Method, given: dict[str, object]) -> Method:
    """The method with other values of its parameters; BadInput if there is no such parameter, or no such value."""
    if isinstance(method, Averaged):
        return Averaged(with_parameters(method.method, given))
    return by_name.with_parameters(method, given, method.fixed_parameters)


def read_settings(settings: Iterable[str]) -> dict[str, object]:
    """{"lam": 0.15} of texts such as lam=0.15; of a parameter that is set twice, the last value."""
    return {key: value for text in settings for key, value in assignments(text).items()}


def missing_package(method: Method) -> str | None:
    return None if method.package is None or is_installed(method.package) else method.package


# A method as it is asked for: what a process needs to know to load it, and no model, which other processes would be
# sent again and again.


@dataclass(frozen=True)
class MethodSpec:
    """A name with what may come with it, or a method of the caller's own."""

    name: str
    weights: Path | None = None  # a file of weights, of the method of this name unless that is `default`
    settings: tuple[str, ...] = ()  # parameters, as lam=0.15
    average: bool = False
    images: Task = "pair"
    weights_sha256: str | None = None  # of the file of weights, or a bundled one, if all must load the same; see `pin`
    given: Method | None = None  # a method of the caller's own, which has no name that parses

    def load(self) -> Method:
        """The method, its model read once per process; UnfitMachine if its weights are not those pinned."""
        return load_once(self) if self.given is None else self.given

    def pin(self) -> "MethodSpec":
        """For other processes, with the digest of its weights: one that starts late, or elsewhere, refuses others."""
        return replace(self, weights_sha256=self.digest())

    def digest(self) -> str | None:
        """The SHA-256 of the weights, as they are now; None if there are none, or they cannot be read."""
        if self.weights is None:
            base = split_name(without_average(self.name))[0].casefold()
            model = MODELS[self.images] if base == "default" else base
            return sha256(bundled_file(model)) if model in BUNDLED else None
        return sha256(self.weights) if exists(self.weights) else None


def parse_method(
    method: object, weights: Path | None = None, settings: Iterable[str] = (), average: bool = False,
    images: Task = "pair",
) -> MethodSpec:  # fmt: skip
    """What is asked for: a name, `default` and a file of weights, or a method; BadInput if it cannot register."""
    if isinstance(method, str):
        spec = MethodSpec(method, weights and weights.absolute(), tuple(settings), average, images)
        load_once.cache_clear()  # the file may be another since it was last asked for
        spec.load()
        return spec
    found = with_weights(method)
    is_plain = average and not isinstance(found, Averaged)
    return MethodSpec(str(found), images=images, given=Averaged(found) if is_plain else found)


@lru_cache(maxsize=1)
def load_once(spec: MethodSpec) -> Method:
    """The method of a spec; UnfitMachine if its weights are others here than those that are pinned."""
    if spec.weights_sha256 is not None and spec.weights_sha256 != spec.digest():
        which = spec.weights or f"the model for {spec.name} that comes with vrnet"
        seen = f"the file of weights that this run began with, as {platform.node()} sees it"
        raise UnfitMachine(f"{which} is not {seen}: put that back, install the same vrnet everywhere, or start again")
    alone, given = without_average(spec.name), read_settings(spec.settings)
    is_default = alone.casefold() == "default"
    if spec.weights is not None:
        found: Method = load_method(spec.weights)
        if not is_default and str(parse(alone)) != str(found):
            raise BadInput(f"{spec.weights} holds {found}, not {alone}: leave out the name, or give other weights")
    elif given and is_default:
        raise BadInput(f'parameters are those of a method: name it too, such as `method="{SOLVER}"`, used for volumes')
    else:
        found = with_weights(parse(alone))
    found = with_parameters(found, given)
    return Averaged(found) if spec.average or alone != spec.name else found


def with_weights(method: object) -> Method:
    """The method, if it can register as it is; else BadInput."""
    if not hasattr(method, "build") or not hasattr(method, "is_trainable"):
        raise BadInput(f"method is {type_name(method)}: give a name such as TV-L1, or vrnet.parse(name)")
    if method.is_trainable:
        way = "which vrnet train writes: give vrnet.load_method(FILE), or on the command line --weights FILE"
        raise BadInput(f"{method} is learned and needs weights, {way}. Models in the box: {', '.join(BUNDLED)}")
    return cast(Method, method)


def parse_trainable(name: str, settings: Iterable[str] = ()) -> Trainable:
    """The learned method of a name, with its settings; BadInput if there is nothing to train."""
    alone = without_average(name)
    if is_bundled(alone):
        method = load_bundled(alone).card.method
        if files.template_shape(method):
            raise BadInput(f"{alone} has nothing to learn: benchmarks/template.py makes others")
        raise BadInput(f'{alone} is trained already: to fine-tune it, train {method} with `start_from="{alone}"`')
    if alone != name:
        raise BadInput(f"networks are averaged in use, not in training: train {alone}")
    found = with_parameters(parse(name), read_settings(settings))
    if not found.is_trainable:
        raise BadInput(f"{name} has nothing to learn: train R-L1-3x2, VoxelMorph, 3xRC-Net or the like")
    return cast(Trainable, found)


def network(
    name: str | None = None, dimension: int | None = None, *, weights: str | PathLike[str] | None = None
) -> nn.Module:
    """The network of a name, such as D-L2-3x1-w16, with first weights drawn by torch's generator; or that of a file of
    weights; or a bundled model, such as short-axis. Without a dimension it is of 2, and a bundled model of its own.

    It is a module: `net(fixed, moving)` takes batches (b, 1, *s) of images in [0, 1], of any size, and gives the field
    (b, d, *s) in voxels: `vrnet.fields.warp(moving, field)` is like fixed. It does not look at the spacing; one with
    weights expects images at that of its card (`vrnet.load_method`). Each call gives a network of its own."""
    if weights is not None:
        found, card = files.load_weights(Path(weights))
        if name is not None and str(parse_trainable(name)) != card.method:
            raise BadInput(f"{weights} holds {card.method}, not {name}: leave out the name, or give other weights")
        return found
    if name is None:
        raise BadInput("nothing says which network: give a name such as D-L2-3x1-w16, or weights")
    if dimension not in (None, 2, 3):
        raise BadInput(f"the dimension is {dimension}: give 2 or 3")
    if not is_bundled(name):
        return parse_trainable(name).build(dimension or 2)
    bundled = load_bundled(name)
    if dimension not in (None, own := bundled.card.dimension):
        raise BadInput(f"{name} is a network of {own} dimensions, not {dimension}: leave out the dimension")
    return deepcopy(bundled.model)


def save_network(
    net: nn.Module, path: str | PathLike[str], name: str, spacing: tuple[float, ...], *,
    trained_on: str = "data of its own", scaling: Scaling = "jointly", uses_labels: bool = False,
) -> None:  # fmt: skip
    """Write a network that was trained elsewhere, so that `vrnet register --weights` and `vrnet.load_method` use it.

    `name` is that by which it was made; `spacing` that of the images it was trained on, in mm; `scaling` says whether
    the intensities of a pair were brought to [0, 1] jointly or each; `uses_labels`, whether its loss had labels."""
    method = parse_trainable(name)
    about = made_by_fields(versions()) | {"labels_in_training": uses_labels}
    card = Card(str(method), len(spacing), tuple(spacing), scaling, trained_on, **about)
    own, given = ({key: x.shape for key, x in one.state_dict().items()} for one in (method.build(len(spacing)), net))
    if own != given:
        raise BadInput(f"the network is not {method} in {len(spacing)} dimensions: give the name that it was made by")
    files.save_weights(net, card, Path(path))
