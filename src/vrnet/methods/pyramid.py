"""P-L2: the pyramid, by the parts that it is made of."""

import re
from dataclasses import dataclass
from typing import Literal

import torch

from vrnet.errors import BadInput, check_range
from vrnet.methods.method import COUNT, CPU, Trainable, suffix
from vrnet.networks.denoisers import Predict
from vrnet.networks.pyramid import PyramidNet
from vrnet.variational.cascade import Cascade
from vrnet.variational.data_terms import DATA_TERMS

WIDTH = {2: 8, 3: 6}
TERMS = ("L1", "L2", "none")
WORD_FIELDS = {"image": "features", "uncorrelated": "correlation", "added": "moves"}
"""The field that each word after the shorthand sets, to itself. Names have them in this order."""


@dataclass(frozen=True)
class Pyramid(Trainable):
    """One encoder for both images; at each level a data step on images and learned features, then a network."""

    data: Literal["L1", "L2", "none"] = "L2"
    """The data term; none: no data steps, to see what they bring."""
    features: Literal["learned", "image"] = "learned"
    """image: data steps compare the images alone, and no learned features beside them."""
    correlation: Literal["shown", "uncorrelated"] = "shown"
    """uncorrelated: networks are not shown how the features of both images correlate about each voxel."""
    moves: Literal["flows", "added"] = "flows"
    """added: moves are added to the field as they are found, not composed with it as flows of smoothed velocities."""
    channels: int = 0
    """Further channels of the images, such as probabilities of structures."""
    width: int | None = None
    """Channels of the features at full resolution; 8 in 2D and 6 in 3D where not given."""
    theta: float = 0.1
    """θ at the start, for images in [0, 1]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range({"theta": self.theta}, above=True)
        if self.data == "none" and self.features == "image":
            raise BadInput(f"{self} has no data steps: leave out image")

    def __str__(self) -> str:
        words = [word for word, field in WORD_FIELDS.items() if getattr(self, field) == word]
        channels = [f"c{self.channels}"] if self.channels else []
        return "-".join(["P", self.data, *words, *channels]) + suffix(self.width)

    @property
    def summary(self) -> str:
        return f"learned: a pyramid of features, {'no' if self.data == 'none' else self.data} data step"

    def build(self, d: int, device: torch.device = CPU) -> Cascade:
        net = PyramidNet(
            d, self.channels, self.width or WIDTH[d], DATA_TERMS.get(self.data), self.theta,
            features=self.features == "learned", correlation=self.correlation == "shown", flows=self.moves == "flows",
        )  # fmt: skip
        return Cascade(Predict(net), []).to(device)


def parse_pyramid(name: str) -> Pyramid | None:
    """The pyramid of a shorthand such as P-L2-uncorrelated-c3-w32, if it is one."""
    words = "".join(f"(-{word})?" for word in WORD_FIELDS)
    found = re.fullmatch(rf"P-({'|'.join(TERMS)}){words}(?:-c{COUNT})?(?:-w{COUNT})?", name, flags=re.IGNORECASE)
    if not found:
        return None
    data = next(term for term in TERMS if term.casefold() == found[1].casefold())
    options = {
        field: word for (word, field), said in zip(WORD_FIELDS.items(), found.groups()[1:4], strict=True) if said
    }
    return Pyramid(data, **options, channels=int(found[5] or 0), width=int(found[6]) if found[6] else None)  # type: ignore[arg-type]
