"""ℒ(u) = D(I1(x + u), I0) + α S(u): how alike the images become, and how smooth the motion is. No labels."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from vrnet.errors import BadInput
from vrnet.fields import warp
from vrnet.methods.method import LossTerms
from vrnet.variational.data_terms import DATA_TERMS, L1, DataTerm
from vrnet.variational.regularizers import REGULARIZERS, TRAINING_PENALTIES, Diffusion, Penalty

Scalar = Float[Tensor, ""]


@dataclass(frozen=True)
class Loss:
    """D, S and α. The paper's are the defaults, but for α: 0.1 UK Biobank, 0.05 ACDC, 1e-4 3D CMR."""

    alpha: float
    similarity: DataTerm[Any] = L1()  # noqa: RUF009
    smoothness: Penalty = Diffusion()  # noqa: RUF009

    def __call__(self, I0: Float[Tensor, "b 1 *s"], I1: Float[Tensor, "b 1 *s"], u: Float[Tensor, "b d *s"]) -> Scalar:
        u = u.float()  # half precision cannot count voxels
        return self.similarity.loss(warp(I1, u), I0) + self.alpha * self.smoothness.loss(u)


def make_loss(terms: LossTerms, alpha: float, similarity: str | None = None, smoothness: str | None = None) -> Loss:
    """The loss of a method, or with the terms of other names where such are given."""
    every: dict[str, Penalty] = {**REGULARIZERS, **TRAINING_PENALTIES}
    penalties = {name: penalty for name, penalty in every.items() if penalty.is_for_training}
    data, smooth = similarity or terms.similarity, smoothness or terms.smoothness
    for name, known in ((data, DATA_TERMS), (smooth, penalties)):
        if name not in known:
            raise BadInput(f'there is no term "{name}" to train with: choose one of {", ".join(known)}')
    return Loss(alpha, DATA_TERMS[data], penalties[smooth])
