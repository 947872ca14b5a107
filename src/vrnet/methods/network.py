"""Networks as PyTorch has them: a module of (fixed, moving) -> field, for training loops and data loaders of others."""

from copy import deepcopy
from os import PathLike
from pathlib import Path

from torch import nn

from vrnet.errors import BadInput
from vrnet.methods.boxed import boxed, is_boxed
from vrnet.methods.method import Scaling
from vrnet.methods.names import parse_trainable
from vrnet.methods.weights import Card, load_weights, save_weights
from vrnet.provenance import versions


def network(
    name: str | None = None, dimension: int | None = None, *, weights: str | PathLike[str] | None = None
) -> nn.Module:
    """The network of a name, such as D-L2-3x1-w16, with first weights drawn by torch's generator; or that of a file of
    weights; or a model in the box, such as short-axis. Without a dimension it is of 2, and a model
    in the box of its own.

    It is a module: `net(fixed, moving)` takes batches (b, 1, *s) of images in [0, 1], of any size, and gives the field
    (b, d, *s) in voxels, field[:, i] along spatial axis i: `vrnet.fields.warp(moving, field)` is like fixed. It does
    not look at the spacing; one with weights expects images at the spacing that it was trained at, as in its card
    (`vrnet.load_method`). Each call gives a network of its own."""
    if weights is not None:
        found, card = load_weights(Path(weights))
        if name is not None and str(parse_trainable(name)) != card.method:
            raise BadInput(f"{weights} holds {card.method}, not {name}: leave out the name, or give other weights")
        return found
    if name is None:
        raise BadInput("nothing says which network: give a name such as D-L2-3x1-w16, or weights")
    if dimension not in (None, 2, 3):
        raise BadInput(f"the dimension is {dimension}: give 2 or 3")
    if not is_boxed(name):
        return parse_trainable(name).build(dimension or 2)
    own = boxed(name).card.dimension
    if dimension not in (None, own):
        raise BadInput(f"{name} is a network of {own} dimensions, not {dimension}: leave out the dimension")
    return deepcopy(boxed(name).model)


def save_network(
    net: nn.Module,
    path: str | PathLike[str],
    name: str,
    spacing: tuple[float, ...],
    *,
    trained_on: str = "data of its own",
    scaling: Scaling = "jointly",
    uses_labels: bool = False,
) -> None:
    """Write a network that was trained elsewhere, so that `vrnet register --weights` and `vrnet.load_method` use it.

    `name` is that by which it was made; `spacing`, in mm, is that of the images it was trained on, one number per axis;
    `scaling` says whether the intensities of a pair were brought to [0, 1] jointly, or those of each image by itself;
    `uses_labels`, whether labels had a part in its loss."""
    method = parse_trainable(name)
    made = {key: value or "" for key, value in versions().items()}
    card = Card(
        method=str(method),
        dimension=len(spacing),
        spacing_mm=tuple(spacing),
        normalisation=scaling,
        trained_on=trained_on,
        version=made["vrnet"],
        commit=made["commit"],
        torch=made["torch"],
        labels_in_training=uses_labels,
    )
    expected = {key: tensor.shape for key, tensor in method.build(len(spacing)).state_dict().items()}
    if {key: tensor.shape for key, tensor in net.state_dict().items()} != expected:
        raise BadInput(f"the network is not {method} in {len(spacing)} dimensions: give the name that it was made by")
    save_weights(net, card, Path(path))
