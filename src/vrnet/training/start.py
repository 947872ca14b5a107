"""Fine-tuning: a training that begins with the weights of a trained model of the same method."""

from pathlib import Path

import torch
from torch import nn

from vrnet.data.prepared import PreparedSplit
from vrnet.errors import BadInput
from vrnet.methods.boxed import BOXED, is_boxed
from vrnet.methods.method import Trainable
from vrnet.methods.template import parse_template
from vrnet.methods.weights import Card, load_weights, read_card
from vrnet.training.loss import Loss
from vrnet.training.validation import Scores, validate


def find_start(name: str) -> Path:
    """The file of weights: of a model in the box by its name, else that of the path."""
    return BOXED[name.casefold()].file if is_boxed(name) else Path(name)


def check_start(name: str, method: Trainable, d: int) -> Card:
    """The card of the weights; BadInput unless they are of the method that is to be trained in d dimensions."""
    card = read_card(find_start(name))
    if (card.method, card.dimension) != (str(method), d):
        holds, wanted = f"{card.method} in {card.dimension}D", f"{method} in {d}D"
        other = "" if parse_template(card.method) else f"train {card.method}, or "
        raise BadInput(f"{name} holds {holds}, which cannot start {wanted}: {other}give other weights")
    return card


def load_start(name: str, model: nn.Module) -> None:
    """Give a model the weights."""
    found, _ = load_weights(find_start(name))
    model.load_state_dict(found.state_dict())


def validate_start(name: str, prepared: PreparedSplit, loss: Loss, device: torch.device) -> Scores:
    """Mean scores of a split by the weights as they were, before they were trained further."""
    model, _ = load_weights(find_start(name))
    return validate(model.to(device), prepared, loss, device)
