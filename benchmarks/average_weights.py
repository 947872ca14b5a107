"""The mean of the weights of trained models of one method, in half precision: one model that is asked once.

    python benchmarks/average_weights.py FIRST.safetensors SECOND.safetensors --out MEAN.safetensors

Of a model and what it became by further training, the mean is often better than either, and lies between both in what
they trade: a model and its fine-tuning are joined by a line along which the loss is low. The card is that of the last
file, and names what all were trained on.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from vrnet.methods.weights import load_weights, save_weights


def average(models):
    """A model whose every number is the mean of those of the models; its card."""
    (_, first), *others = models
    for _, card in others:
        if (card.method, card.dimension, card.spacing_mm) != (first.method, first.dimension, first.spacing_mm):
            raise SystemExit(f"{card.method} and {first.method} are not alike: give weights of one method")
    states = [model.state_dict() for model, _ in models]
    result, card = models[-1]
    result.load_state_dict({name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]})
    trained = ", averaged with ".join(card.trained_on for _, card in models)
    began = dict.fromkeys(card.started_from for _, card in models if card.started_from)
    return result, replace(card, trained_on=trained, started_from="; ".join(began))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    save_weights(*average([load_weights(path) for path in given.weights]), given.out, half=True)


if __name__ == "__main__":
    main()
