"""Names parse and print: "TV-L1" is a method, and str(method) is "TV-L1"."""

from difflib import get_close_matches

from vrnet.errors import BadInput
from vrnet.methods.identity import Identity
from vrnet.methods.outside import FFD, Demons, SyN, is_installed
from vrnet.methods.variational import PRESETS, Variational

Method = Variational | FFD | Demons | SyN | Identity
METHODS: tuple[Method, ...] = (*PRESETS, FFD(), Demons(), SyN(), Identity())
DEFAULT = PRESETS[0]


def names() -> dict[str, str]:
    """Every name, with a line on what it is."""
    return {str(method): method.what for method in METHODS} | {
        "default": f"what is used where none is named: {DEFAULT}"
    }


def parse(name: str) -> Method:
    """The method of that name, with its tuned parameters."""
    known = {str(method).casefold(): method for method in METHODS} | {"default": DEFAULT}
    if name.casefold() in known:
        return known[name.casefold()]
    close = get_close_matches(name.casefold(), known, n=1)
    hint = f'did you mean "{known[close[0]]}"?' if close else f"choose one of {', '.join(names())}"
    raise BadInput(f'no method is called "{name}": {hint}')


def missing(name: str) -> str | None:
    """The package that the method of this name needs and that is not installed, if there is one."""
    package = getattr(parse(name), "package", None)
    return None if package is None or is_installed(package) else package
