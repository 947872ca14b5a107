"""A template of many images, found without labels: T(x) is the mean of I_k(x + u_k(x)), and the mean of all u_k is 0.

    python benchmarks/template.py --data hippocampus --root HIPPOCAMPUS --out TEMPLATE

Each round brings all images to the template of the round before, the first to their plain mean. The fields are composed
with the inverse of their mean, so that the template has the shape of none: u_k ← u_k ∘ (id + ū)⁻¹. It is heeded most
where the images are most alike: w ~ 1 / σ⁴, where σ² is the mean square of how they differ from it, in what the data
term compares. (Least squares have 1 / σ².)

Two images of two people then meet on it: `vrnet register --affine rigid --weights TEMPLATE/weights.safetensors`.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from vrnet.data.prepared import Source
from vrnet.devices import find_device, threads_for
from vrnet.errors import BadInput, counted, shape_text
from vrnet.fields.calculus import compose, relative_spacing, smooth, warp
from vrnet.fields.inverse import invert
from vrnet.files import write_json
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.io import write_image
from vrnet.methods.method import Card, made_by_fields
from vrnet.methods.weights import DETAIL, make_solver, save_weights
from vrnet.provenance import provenance
from vrnet.report.figures import save
from vrnet.training.pairs import Pairs
from vrnet.variational.initialisers import ThroughTemplate

BATCH = 8
"""Images that are registered at once."""
SMALLEST_SQUARE = 1e-4
"""Added to σ², which is 0 where all images are equal."""


def fields_to(template, I, spacing=None):
    """The fields from a template to images (n, 1, *s): I(x + u(x)) is like it."""
    T, w = template.on_grid(I)
    return template.solve(T, I, spacing, w, torch.ones_like(I))


@torch.no_grad()
def learn_template(
    images, spacing=None, rounds=2,  # more did not bring more Dice on the validation pairs of hippocampus
    progress=lambda part: None,
):  # fmt: skip
    """The template of images (n, 1, *s) that lie about one centre, with intensities in [0, 1]."""
    mean = images.mean(0, keepdim=True)
    found = ThroughTemplate(mean, torch.ones_like(mean), make_solver)
    for done in range(rounds):
        u = images.new_empty(len(images), images.dim() - 2, *images.shape[2:])
        for k, (I, v) in enumerate(zip(torch.split(images, BATCH), torch.split(u, BATCH), strict=True)):
            v.copy_(fields_to(found, I, spacing))
            progress((done + (k * BATCH + len(I)) / len(images)) / rounds)
        back = invert(u.mean(0, keepdim=True)).field
        pairs = zip(torch.split(images, BATCH), torch.split(u, BATCH), strict=True)
        alike = torch.cat([warp(I, compose(v, back.expand_as(v))) for I, v in pairs])
        T = alike.mean(0, keepdim=True)
        found = ThroughTemplate(T, how_alike(alike, T, spacing), make_solver)
    return found


def how_alike(images, T, spacing):
    """w at every voxel of the template, 1 on average; between .2 and 3 times its median where images differ."""
    h = relative_spacing(spacing, T.dim() - 2)
    seen = DETAIL.channels(T, h)
    squares = [(DETAIL.channels(some, h) - seen).square().mean(1, keepdim=True) for some in torch.split(images, BATCH)]
    square = smooth(torch.cat(squares).mean(0, keepdim=True), 1.0)
    differing = square[square > SMALLEST_SQUARE]  # a background that is the same in all would be the median
    if not len(differing):
        return torch.ones_like(T)
    w = (differing.median() / (square + SMALLEST_SQUARE)).square().clamp(0.2, 3.0)
    return w / w.mean()


def make_template(prepared, rounds, device, progress):
    """The template of the fixed images of a split, each once, on the CPU, and what a file says of it."""
    pairs = Pairs.from_split(replace(prepared, pairs_across_subjects=True))
    images, spacing, subjects = pairs.images, pairs.spacing, prepared.names
    if len(images) > len(subjects):
        told = "a template is of one per subject; take a data set of volumes, such as acdc3d"
        raise BadInput(f"{prepared.data} has {len(images)} images of {len(subjects)} subjects, as slices are: {told}")
    with threads_for(False, images[0].numel()):
        found = learn_template(images.to(device), spacing, rounds, progress)
    name, made_by = f"Template-{shape_text(found.image.shape[2:])}", made_by_fields(provenance(device))
    trained_on = f"{prepared.data}, {prepared.split}: {len(images)} subjects, {counted(rounds, 'round')}"
    return found.cpu(), Card(name, len(spacing), spacing, "each", trained_on, flips_in_training=False, **made_by)


def image_of(template, card):
    """A template as an image to look at, its centre at the origin."""
    array = template.image[0, 0].numpy()
    origin = tuple(-h * (n - 1) / 2 for h, n in zip(card.spacing_mm, array.shape, strict=True))
    grid = replace(Grid.plain(array.shape, card.spacing_mm), origin=origin)
    return Image(array, grid, name=f"template of {card.trained_on}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a data set with one image per subject, as `vrnet train` takes")
    parser.add_argument("--root", type=Path, help="its folder, or the CSV file of a manifest")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--split", default="train", help="whose fixed images are averaged")
    parser.add_argument("--subjects", type=int, help="so many of its subjects, evenly spread; all if not given")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args()
    tell = lambda part: print(f"\r{part:.0%}", end="", flush=True)  # noqa: E731
    prepared = Source(asked.data, asked.root).split(asked.split, "training", lambda stage: tell, print)
    prepared = prepared if asked.subjects is None else prepared.spread(asked.subjects)
    found, card = make_template(prepared, asked.rounds, find_device(asked.device), tell)
    image = image_of(found, card)
    about = {"data": asked.data, "split": asked.split, "rounds": asked.rounds, "subjects": prepared.names}
    write_json(about, asked.out / "config.json")
    save_weights(found, card, asked.out / "weights.safetensors", half=True)
    write_image(image, asked.out / "template.nii.gz")
    save(image.show(), asked.out / "template.png")


if __name__ == "__main__":
    main()
