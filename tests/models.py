"""Small models of random weights, as if trained: learned methods, and a fake one whose answer is known."""

import torch
from torch import nn

from vrnet import Trained
from vrnet.fields.calculus import gradient
from vrnet.methods.names import parse_trainable
from vrnet.methods.weights import Card, save_weights


def card(method="C-L2-2x1-w2", d=2, spacing=None, normalisation="jointly", **others):
    """What a model of that name says of itself; its spacing in mm is 1.8, and 4 across slices."""
    spacing = spacing or (1.8, 1.8, 4.0)[:d]
    return Card(method, d, spacing, normalisation, "phantoms", "0.1.0", **others)


def trained(method="C-L2-2x1-w2", d=2, spacing=None, seed=0):
    """A model whose heads are no longer near zero, so that it moves something."""
    torch.manual_seed(seed)
    model = parse_trainable(method).build(d)
    for name, parameter in model.named_parameters():
        if "head" in name:
            nn.init.normal_(parameter, std=0.3)
    return Trained.of(card(method, d, spacing), model, "m.safetensors")


def saved(folder, method="C-L2-2x1-w2", d=2, spacing=None, **options):
    """The file, in a folder, of a small model with random weights."""
    made = trained(method, d, spacing)
    save_weights(made.model, made.card, folder / made.file, **options)
    return folder / made.file


class Flow(nn.Module):
    """u = (I0 − I1) J / |J|²: exact where both images are ramps along an axis. It keeps what it was given."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, I0, I1, spacing=None, masks=None):
        self.seen.append((I0, I1, spacing))
        J = gradient(I1)[:, 0]
        return (I0 - I1) * J / J.square().sum(1, keepdim=True).clamp(min=1e-12)
