"""Every learned method by its name: R-L1-3x2, VoxelMorph, Siamese, 4xRC-Net."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from vrnet.methods.learned import Learned
from vrnet.methods.parameters import split_name, with_parameters
from vrnet.methods.rivals import Siamese, VoxelMorph, parse_rcnet, parse_single
from vrnet.methods.vrnet import parse_vrnet


class Family(NamedTuple):
    """Learned methods of one kind, whose names have one form."""

    summary: str
    parse: Callable[[str], Learned | None]
    """The method of a name, if it is of this family."""


FAMILIES = {
    "R|U|C|D-L1|L2-NxM": Family(
        "learned: VR-Net, as R-L1-3x2: residual (R), plain (U), image-aware (C) or diffeomorphic (D) denoisers, "
        "L1, L2, another data term or none in its data steps, N warps of M iterations",
        parse_vrnet,
    ),
    "VoxelMorph": Family(VoxelMorph().summary, partial(parse_single, VoxelMorph)),
    "Siamese": Family(Siamese().summary, partial(parse_single, Siamese)),
    "NxRC-Net": Family("learned: N recursive U-Nets, as 3xRC-Net", parse_rcnet),
}
"""Every kind of learned method by the form of its names."""


def parse_learned(name: str) -> Learned | None:
    """The learned method of that name, with the parameters that follow in brackets, if it is one's."""
    base, given = split_name(name)
    found = next((method for family in FAMILIES.values() if (method := family.parse(base))), None)
    return found and with_parameters(found, given, found.fixed_parameters)
