"""The mean of the weights of trained models of one method, in half precision: one model that is asked once.

    python benchmarks/average_weights.py FIRST.safetensors SECOND.safetensors --out MEAN.safetensors

Of a model and what it became by further training, the mean is often better than either, and lies between both in what
they trade: a model and its fine-tuning are joined by a line along which the loss is low. The card is that of the last
file, and names what all were trained on; with labels, if one was.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from vrnet.methods.weights import load_weights, save_weights

ALIKE = "method", "dimension", "spacing_mm", "normalisation"
"""What is on the card of each, and must be equal."""


def average(models):
    """A model whose every number is the mean of those of the models; its card."""
    (_, first), *others = models
    for _, card in others:
        if any(getattr(card, name) != getattr(first, name) for name in ALIKE):
            raise SystemExit(f"the weights differ in one of {', '.join(ALIKE)}: give those of one method")
    states = [model.state_dict() for model, _ in models]
    result, card = models[-1]
    numbers = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    result.load_state_dict({name: each.mean(0, dtype=torch.float64) for name, each in numbers.items()})
    trained = ", averaged with ".join(card.trained_on for _, card in models)
    began = dict.fromkeys(card.started_from for _, card in models if card.started_from)
    with_labels = any(card.labels_in_training for _, card in models)
    return result, replace(card, trained_on=trained, started_from="; ".join(began), labels_in_training=with_labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    save_weights(*average([load_weights(path) for path in given.weights]), given.out, half=True)


if __name__ == "__main__":
    main()
