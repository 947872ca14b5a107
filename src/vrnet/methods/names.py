"""Names parse and print: "TV-L1" is a method, and str(method) is "TV-L1"."""

from difflib import get_close_matches

from vrnet.errors import BadInput
from vrnet.methods.identity import Identity
from vrnet.methods.variational import PRESETS, Variational

Method = Variational | Identity
DEFAULT = PRESETS[0]


def names() -> dict[str, str]:
    """Every name, with a line on what it is."""
    solvers = {str(m): f"iterative: {DATA_WORDS[m.data]}, {REGULARIZER_WORDS[m.regularizer]}" for m in PRESETS}
    return solvers | {
        "identity": "no registration: what there was before",
        "default": f"what is used where none is named: {DEFAULT}",
    }


DATA_WORDS = {"L1": "absolute differences", "L2": "squared differences"}
REGULARIZER_WORDS = {
    "TV": "total variation (keeps motion discontinuities)",
    "Diffusion": "diffusion (smooth motion)",
    "Bending": "bending energy (very smooth motion, free of affine bias)",
    "Gaussian": "Gaussian smoothing (as demons)",
}


def parse(name: str) -> Method:
    """The method of that name, with its tuned parameters."""
    known: dict[str, Method] = {str(preset).casefold(): preset for preset in (*PRESETS, Identity())}
    known["default"] = DEFAULT
    if name.casefold() in known:
        return known[name.casefold()]
    close = get_close_matches(name.casefold(), known, n=1)
    hint = f'did you mean "{known[close[0]]}"?' if close else f"choose one of {', '.join(names())}"
    raise BadInput(f'no method is called "{name}": {hint}')
