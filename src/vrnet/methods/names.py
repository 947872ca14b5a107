"""Names parse and print: "TV-L1" is a method, and str(method) is "TV-L1"."""

from dataclasses import replace
from difflib import get_close_matches

from vrnet.errors import BadInput
from vrnet.methods.default import Default, short_axis
from vrnet.methods.identity import Identity
from vrnet.methods.learned import FAMILIES, PAPER, Learned, RCNet, Siamese, VoxelMorph, recognised
from vrnet.methods.outside import FFD, Demons, SyN, is_installed
from vrnet.methods.trained import Trained
from vrnet.methods.variational import PRESETS, Variational
from vrnet.methods.weights import SUFFIX
from vrnet.variational.cascade import Spacing

Ready = Variational | FFD | Demons | SyN | Identity | Trained
"""What can register as it is."""
Choice = Ready | Default
"""What can register, once the images are known."""
Method = Choice | Learned
METHODS = (*PRESETS, FFD(), Demons(), SyN(), Identity())
KNOWN = (*METHODS, Default())
SHORT_AXIS = "short-axis"
EXAMPLES = (*PAPER, *(replace(method, denoiser="C") for method in PAPER), VoxelMorph(), Siamese(), RCNet())


def names() -> dict[str, str]:
    """The name of every method that needs no weights, with a line on what it is."""
    return {SHORT_AXIS: "learned, in the box: VR-Net for short-axis cine MR, ED and ES of a heart, in 2D"} | {
        str(method): method.what for method in KNOWN
    }


def parse(name: str) -> Method:
    """The method of that name, with its tuned parameters; a learned one has no weights yet, but for that in the box."""
    if name.casefold() == SHORT_AXIS:
        return short_axis()
    known = {str(method).casefold(): method for method in KNOWN}
    found = known.get(name.casefold()) or recognised(name)
    if found is None:
        raise BadInput(f'no method is called "{name}": {hint(name)}')
    return found


def hint(name: str) -> str:
    """What may have been meant by a name that is none."""
    if name.endswith(SUFFIX):
        return "give a file of weights by --weights, or to vrnet.load_method"
    known = {str(method).casefold(): str(method) for method in (*KNOWN, *EXAMPLES)} | {SHORT_AXIS: SHORT_AXIS}
    close = get_close_matches(name.casefold(), known, n=1)
    others = f"{', '.join(names())} or, with weights, {', '.join(FAMILIES)}"
    return f'did you mean "{known[close[0]]}"?' if close else f"choose one of {others}"


def settled(method: Choice, d: int, spacing: Spacing) -> Ready:
    """The method itself, or what the default comes to for images of d dimensions."""
    return method.settled(d, spacing) if isinstance(method, Default) else method


def weights_of(method: Ready) -> str | None:
    """The file that the method's weights came from, if it has any."""
    return method.file if isinstance(method, Trained) else None


def scales_each(method: Method) -> bool:
    """Whether the method is used to images scaled each alone, as between subjects; others expect one scaling."""
    return isinstance(method, Trained) and method.card.normalisation == "each"


def missing(name: str) -> str | None:
    """The package that the method of this name needs and that is not installed, if there is one."""
    package = None if name == SHORT_AXIS else getattr(parse(name), "package", None)
    return None if package is None or is_installed(package) else package
