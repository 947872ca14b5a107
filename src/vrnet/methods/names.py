"""Names parse and print: "TV-L1(lam=0.15)" is a method, and str(method) is "TV-L1(lam=0.15)"."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import cast

from vrnet.errors import BadInput
from vrnet.methods import parameters as by_name
from vrnet.methods.averaged import AVERAGED, Averaged, averaged
from vrnet.methods.boxed import BOXED, boxed, is_boxed
from vrnet.methods.default import SOLVER, Default
from vrnet.methods.families import FAMILIES, parse_learned
from vrnet.methods.identity import Identity
from vrnet.methods.method import Method, Trainable
from vrnet.methods.outside import FFD, Demons, SyN, is_installed
from vrnet.methods.parameters import Parameter
from vrnet.methods.rivals import RCNet, Siamese, VoxelMorph
from vrnet.methods.template import parse_template
from vrnet.methods.trained import load_method
from vrnet.methods.variational import solvers
from vrnet.methods.vrnet import PAPER
from vrnet.methods.weights import SUFFIX, read_card
from vrnet.wording import did_you_mean, most_like, type_name

IMAGE_AWARE = tuple(replace(method, denoiser=letter) for letter in ("C", "D") for method in PAPER)
EXAMPLES = (*PAPER, *IMAGE_AWARE, VoxelMorph(), Siamese(), RCNet())


METHODS: list[Method] = [FFD(), Demons(), SyN(), Identity(), Default()]
"""Every method that can register as it is, but for the solvers and the models in the box."""


def all_methods() -> list[Method]:
    """Every method that can register as it is, but for the models in the box."""
    return [*solvers(), *METHODS]


def names() -> dict[str, str]:
    """The name of every method that needs no weights, with a line on what it is."""
    in_the_box = {name: model.summary for name, model in BOXED.items()}
    return in_the_box | {str(method): method.summary for method in all_methods()}


def parse(name: str) -> Method:
    """The method of that name, with its tuned parameters but for those that follow in brackets.

    A learned one has no weights yet, but for those in the box."""
    alone = without_average(name)
    if alone != name:
        return averaged(parse(alone))
    refuse_nearly_averaged(name)
    base, given = by_name.split_name(name)
    return with_parameters(parse_base(base), given)


def without_average(name: str) -> str:
    """The name of a method without the word that it is averaged, however often it has that."""
    return re.sub(rf"({re.escape(AVERAGED)})+\Z", "", name, flags=re.IGNORECASE)


def refuse_nearly_averaged(name: str) -> None:
    """BadInput for a name that ends with nearly the word that it is averaged, as in short-axis+averag."""
    found = re.fullmatch(r"(.*[^\s+])[\s+]+(\w+)", name)
    if found is None or most_like(found[2], [AVERAGED.strip("+")]) is None:
        return
    base, bracket, settings = found[1].partition("(")
    if meant := base if find_base(base) else most_like(base, known_names()):
        raise BadInput(f'no method is called "{name}": did you mean {meant}{bracket}{settings}{AVERAGED}?')


def kind_of(name: str) -> str | None:
    """What a model in the box is, as the paper's shorthand says it; None of a name that says that itself."""
    alone = without_average(name)
    return boxed(alone).card.method if is_boxed(alone) else None


def parse_base(name: str) -> Method:
    """The method of a name without brackets."""
    found = find_base(name)
    if found is None:
        raise BadInput(f'no method is called "{name}": {hint(name)}')
    return found


def find_base(name: str) -> Method | None:
    """The method of a name without brackets, if there is one; BadInput where it cannot be, as VoxelMorph-w0."""
    if is_boxed(name):
        return boxed(name)
    return {str(method).casefold(): method for method in all_methods()}.get(name.casefold()) or parse_learned(name)


def hint(name: str) -> str:
    """What may have been meant by a name that is none."""
    if parse_template(name):
        return "`vrnet template` makes one: give its file to vrnet.load_method, or on the command line by --weights"
    if name.endswith(SUFFIX):
        return "give a file of weights to vrnet.load_method, or on the command line by --weights"
    others = f"{', '.join(names())} or, with weights, {', '.join(FAMILIES)}"
    return did_you_mean(name, known_names()) or f"choose one of {others}"


def known_names() -> tuple[str, ...]:
    """Names of methods that may have been meant: every one that can register as it is, and those of the paper."""
    return (*map(str, (*all_methods(), *EXAMPLES)), *BOXED)


def parameters(method: Method) -> list[Parameter]:
    """What can be set of a method, with its value and what it means; averaging sets nothing more."""
    if isinstance(method, Averaged):
        return parameters(method.method)
    return by_name.parameters(method, method.fixed_parameters)


def with_parameters(method: Method, given: dict[str, object]) -> Method:
    """The method with other values of its parameters; BadInput if there is no such parameter, or no such value."""
    if isinstance(method, Averaged):
        return averaged(with_parameters(method.method, given))
    return by_name.with_parameters(method, given, method.fixed_parameters)


def choose(name: str, weights: Path | None = None, settings: Iterable[str] = (), average: bool = False) -> Method:
    """The method that a command asks for, ready to register.

    It is that of the name; or the one in a file of weights, which then is of that name unless that is `default`.
    Settings are texts such as lam=0.15."""
    alone = without_average(name)
    if average or alone != name:
        return averaged(choose(alone, weights, settings))
    given = read_settings(settings)
    if given and weights is None and name.casefold() == "default":
        check_parameter_names(given)
        raise BadInput(f'parameters are those of a method: name it too, such as `method="{SOLVER}"`, used for volumes')
    if weights is None:
        return ready(with_parameters(parse(name), given))
    found = load_method(weights)
    if name.casefold() != "default" and str(parse(name)) != str(found):
        raise BadInput(f"{weights} holds {found}, not {name}: leave out the name, or give the weights of {name}")
    return with_parameters(found, given)


def method_with(parameter: str) -> Method | None:
    """A method that can register as it is and has a parameter of this name, if any has."""
    return next((each for each in all_methods() if parameter in {own.name for own in parameters(each)}), None)


def check_parameter_names(given: Iterable[str]) -> None:
    """BadInput for a name that is no parameter of any method."""
    known = sorted({each.name for method in (*all_methods(), *EXAMPLES) for each in parameters(method)})
    for name in given:
        if name not in known:
            meant = did_you_mean(name, known) or "vrnet methods NAME lists those of a method"
            raise BadInput(f'no method has a parameter "{name}": {meant}')


def read_settings(settings: Iterable[str]) -> dict[str, object]:
    """{"lam": 0.15} of texts such as lam=0.15; of a parameter that is set twice, the last value."""
    return {key: value for text in settings for key, value in by_name.assignments(text).items()}


def ready(method: object, average: bool = False) -> Method:
    """The method of a name, or the method itself, averaged if asked for; BadInput if it cannot register."""
    found = parse(method) if isinstance(method, str) else method
    if not hasattr(found, "build") or not hasattr(found, "is_trainable"):
        raise BadInput(f"method is {type_name(method)}: give a name such as TV-L1, or vrnet.parse(name)")
    if found.is_trainable:
        raise BadInput(
            f"{found} is learned and needs weights, which vrnet train writes: give vrnet.load_method(FILE), or on the "
            f"command line --weights FILE. Models that come with vrnet: {', '.join(BOXED)}"
        )
    return averaged(found) if average else found  # type: ignore[arg-type, return-value]


def missing_package(method: Method) -> str | None:
    """The package that a method needs and that is not installed, if there is one."""
    return None if method.package is None or is_installed(method.package) else method.package


def parse_trainable(name: str, settings: Iterable[str] = ()) -> Trainable:
    """The learned method of a name, with its settings; BadInput if there is nothing to train."""
    alone = without_average(name)
    if is_boxed(alone):
        method = read_card(BOXED[alone.casefold()].file).method
        if parse_template(method):
            raise BadInput(f"{alone} has nothing to learn: `vrnet template` makes others, of your own images")
        raise BadInput(f'{alone} is trained already: to fine-tune it, train {method} with `start_from="{alone}"`')
    if alone != name:
        raise BadInput(f"networks are averaged in use, not in training: train {alone}")
    base, _ = by_name.split_name(name)
    if find_base(base) is None:
        raise BadInput(f'no method is called "{base}": {hint_of_trainable(base)}')
    found = with_parameters(parse(name), read_settings(settings))
    if not found.is_trainable:
        raise BadInput(f"{name} has nothing to learn: train R-L1-3x2, VoxelMorph, 3xRC-Net or the like")
    return cast(Trainable, found)


def hint_of_trainable(name: str) -> str:
    """What may have been meant by a name that is none, of what can be trained."""
    if name.endswith(SUFFIX):
        return f'name its method, which vrnet methods {name} tells, and give the file by `start_from="{name}"`'
    known = (*map(str, EXAMPLES), *BOXED)
    return did_you_mean(name, known) or f"choose one of {', '.join(FAMILIES)}, such as R-L1-3x2"
