"""ℒ(u) = D(I1(x + u), I0) + α S(u) + γ C(u) + λ L(u) + β B(u): how alike the images become, and how smooth the motion
is; where asked for, whether both directions undo each other (C) and how well labels meet, in each pair (L) and in all
pairs of a step taken as one (B).

D and S are terms by their names, or sums of such: "0.5*L1+0.05*LNCC(radii=4)"."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vrnet.errors import BadInput
from vrnet.fields.calculus import compose, warp, warp_labels
from vrnet.methods.method import Trainable
from vrnet.methods.parameters import split_name, with_parameters
from vrnet.training.settings import Training
from vrnet.variational.data_terms import DATA_TERMS, L1, DataTerm
from vrnet.variational.linearize import Field, Images
from vrnet.variational.regularizers import REGULARIZERS, TRAINING_PENALTIES, Diffusion, Penalty

Scalar = Float[Tensor, ""]
Overlaps = Float[Tensor, "3 b k"]
"""Of each pair and label, in voxels: 2⟨p, q⟩, Σ(p + q), and what both images have of it before anything moves."""


@dataclass(frozen=True)
class WeightedSum:
    """Σ w T over terms T: data terms of two images, or penalties of a field."""

    parts: tuple[tuple[float, Any], ...]

    def loss(self, *tensors: Tensor) -> Scalar:
        return torch.stack([weight * term.loss(*tensors) for weight, term in self.parts]).sum()


@dataclass(frozen=True)
class Loss:
    """D, S and α. The paper's are the defaults, but for α: 0.1 UK Biobank, 0.05 ACDC, 1e-4 3D CMR."""

    alpha: float
    similarity: DataTerm[Any] | WeightedSum = L1()  # noqa: RUF009
    smoothness: Penalty | WeightedSum = Diffusion()  # noqa: RUF009
    consistency: float = 0.0
    """γ. If above 0, a batch holds each pair in both directions: see `arrange`."""
    labels_weight: float = 0.0
    """λ."""
    batch_dice: float = 0.0
    """β."""
    labels: tuple[int, ...] = ()
    """The labels that are to meet."""
    total: Callable[[Tensor], Tensor] | None = None
    """The sum over the devices that share a batch, if there are several: all of them call the loss."""

    def __call__(self, I0: Images, I1: Images, u: Field, *labels: UInt8[Tensor, "b 1 *s"]) -> Scalar:
        """The loss of fields, given the labels of fixed and moving where there are any. Further channels of images are
        not compared.

        L is the mean over the pairs of 1 − Dice; B is 1 − Dice of all pairs as one, so that a label counts in a pair by
        its size there."""
        u = u.float()  # half precision cannot count voxels
        value = self.similarity.loss(warp(I1[:, :1], u), I0[:, :1]) + self.alpha * self.smoothness.loss(u)
        if self.consistency:
            value = value + self.consistency * inverse_consistency(u)
        if labels and (self.labels_weight or self.batch_dice):
            overlaps = label_overlaps(labels[0], labels[1], u, self.labels)
            value = value + self.labels_weight * one_minus_dice(overlaps).mean()
            if self.batch_dice:
                of_batch = overlaps.sum(1)
                value = value + self.batch_dice * one_minus_dice(self.total(of_batch) if self.total else of_batch)
        return value

    def arrange(self, *pair: Tensor) -> tuple[Tensor, ...]:
        """Fixed and moving, images and labels; with γ, and after them in the batch the same exchanged."""
        if not self.consistency:
            return pair
        halves = zip(pair[::2], pair[1::2], strict=True)
        return tuple(torch.cat(two) for a, b in halves for two in ((a, b), (b, a)))

    def label_maps(self, u: Float[Tensor, "n d *s"], *labels: UInt8[Tensor, "b 1 *s"]) -> tuple[Tensor, ...]:
        """The labels of fixed, and those of moving, warped: what a good field makes equal."""
        return labels[0], warp_labels(labels[1], u[: len(labels[1])])


@dataclass(frozen=True)
class SegmentationLoss:
    """Cross-entropy, and 1 − Dice of all images of a step as one, of the structures that are found in both images of
    each pair."""

    labels: tuple[int, ...]
    total: Callable[[Tensor], Tensor] | None = None
    """The sum over the devices that share a batch, if there are several."""

    def arrange(self, *pair: Tensor) -> tuple[Tensor, ...]:
        return pair

    def __call__(
        self, I0: Images, I1: Images, scores: Float[Tensor, "b2 k *s"], *labels: UInt8[Tensor, "b 1 *s"]
    ) -> Scalar:
        given = torch.cat([torch.cat(labels) == label for label in self.labels], dim=1)
        p, q = scores.float().softmax(1)[:, 1:].transpose(0, 1).flatten(1), given.float().transpose(0, 1).flatten(1)
        sums = torch.stack([2 * (p * q).sum(1), (p + q).sum(1)])
        meeting, size = self.total(sums) if self.total else sums
        right = torch.where(
            torch.cat([~given.any(1, keepdim=True), given], dim=1), scores.float().log_softmax(1), 0
        ).sum(1)
        return (1 - meeting / size.clamp(min=1e-6)).mean() - right.mean()

    def label_maps(self, scores: Float[Tensor, "b2 k *s"], *labels: UInt8[Tensor, "b 1 *s"]) -> tuple[Tensor, ...]:
        """The labels of both images, and those that are found."""
        values = torch.tensor((0, *self.labels), device=scores.device)
        return torch.cat(labels), values[scores.argmax(1, keepdim=True)]


AnyLoss = Loss | SegmentationLoss


def inverse_consistency(u: Field) -> Scalar:
    """The mean of |∇(u_AB ∘ u_BA)|² and |∇(u_BA ∘ u_AB)|², as `Diffusion.loss`: zero where they undo each other."""
    forth, back = u.chunk(2)  # u_AB is the first half of the batch, u_BA the second
    return Diffusion().loss(compose(u, torch.cat([back, forth])))


def label_overlaps(
    L0: UInt8[Tensor, "b 1 *s"], L1: UInt8[Tensor, "b 1 *s"], u: Field, labels: tuple[int, ...]
) -> Overlaps:
    """How p, a label of fixed, and q, that of moving warped linearly, meet."""
    fixed, moving = (torch.cat([L == label for label in labels], dim=1).to(u.dtype) for L in (L0, L1))
    p, q, still = (maps.flatten(2) for maps in (fixed, warp(moving, u), moving))
    return torch.stack([2 * (p * q).sum(2), p.sum(2) + q.sum(2), p.sum(2) + still.sum(2)])


def one_minus_dice(overlaps: Float[Tensor, "3 *b k"]) -> Float[Tensor, "*b"]:
    """1 − 2⟨p, q⟩ / Σ(p + q): the mean over the labels that either image has; 0 where there is none."""
    meeting, size, size_before = overlaps
    present = (size_before > 0).to(size.dtype)
    return ((1 - meeting / size.clamp(min=1e-6)) * present).sum(-1) / present.sum(-1).clamp(min=1)


def loss_of(method: Trainable, settings: Training, structures: Iterable[int] = ()) -> AnyLoss:
    """What a method is trained with: its own terms, unless the settings name others, and what these add to them."""
    if method.segments:
        return SegmentationLoss(tuple(structures))
    penalties = {name: one for name, one in {**REGULARIZERS, **TRAINING_PENALTIES}.items() if one.is_for_training}
    similarity = parse_sum(settings.similarity or method.loss.similarity, DATA_TERMS)
    smoothness = parse_sum(settings.smoothness or method.loss.smoothness, penalties)
    labels = tuple(structures) if settings.uses_labels else ()
    weights = settings.consistency, settings.labels_weight, settings.batch_dice
    return Loss(settings.alpha, similarity, smoothness, *weights, labels)


def parse_sum(text: str, known: Mapping[str, Any]) -> Any:
    """The term of a name, with its parameters; of several, added by "+" and weighed by "0.5*", their sum."""
    found = []
    for part in re.split(r"\+(?=[^()]*(?:\(|$))", text):  # a "+" outside brackets
        word, _, name = part.rpartition("*")
        try:
            weight = float(word or 1)
        except ValueError as error:
            raise BadInput(f'"{word}" in "{text}" is no weight: write 0.5*L1+0.05*LNCC') from error
        if not (isfinite(weight) and weight > 0):
            raise BadInput(f'a weight in "{text}" is {word}: it must be a number above 0')
        base, given = split_name(name)
        if base not in known:
            raise BadInput(f'there is no term "{base}" to train with: choose one of {", ".join(known)}')
        found.append((weight, with_parameters(known[base], given)))
    return found[0][1] if len(found) == 1 and found[0][0] == 1 else WeightedSum(tuple(found))
