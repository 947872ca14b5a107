"""Tiny whole files of what vrnet itself writes and reads again, and of the tables that it is given: to be damaged."""

import nibabel
import numpy as np
import torch
from torch import nn
from torch.optim import Adam

from tests.fuzz.image_seeds import ARRAY
from vrnet.data.prepared import PreparedSplit, save_pack
from vrnet.data.protocols import Sample
from vrnet.files import write_json, write_rows
from vrnet.methods.names import parse_trainable
from vrnet.methods.weights import Card, save_weights
from vrnet.paper.results import Results
from vrnet.paper.specs import BUDGETS
from vrnet.training.run import Progress, save_checkpoint

STEPS = 6
"""After which the training of the checkpoint ends."""
ROWS = [
    {"step": 2, "loss": 0.1, "rate": 1e-3, "val_loss": 0.2},
    {"step": 4, "loss": 0.1, "rate": 1e-3, "val_loss": 0.1},
]


def write_weights(folder):
    for name, method, half in [("a", "VoxelMorph-w1", False), ("b", "R-L2-1x1-zeros-w1", True)]:
        torch.manual_seed(0)
        card = Card(method, 2, (1.8, 1.8), "jointly", "phantoms", "0.2.0", "abc", "2.11", "a CPU")
        save_weights(parse_trainable(method).build(2), card, folder / f"{name}.safetensors", half)


def training(steps):
    """A small model and its optimiser, some steps into their training."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    optimizer = Adam(model.parameters(), lr=torch.tensor(0.1))
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.rand(2, 1, 6, 6)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def write_checkpoints(folder):
    save_checkpoint(folder / "a.safetensors", *training(3), Progress(5, ROWS), torch.tensor(0.7))


def make_sample(name, seed, with_labels):
    rng = np.random.default_rng(seed)
    images = [torch.from_numpy(rng.integers(0, 65536, (2, 1, 6, 5)) / 65535).float() for _ in range(2)]
    labels = [torch.from_numpy(rng.integers(0, 4, (2, 1, 6, 5), dtype=np.uint8)) for _ in range(2 * with_labels)]
    field = torch.from_numpy(rng.standard_normal((2, 2, 6, 5), dtype=np.float32)) if with_labels else None
    return Sample(name, *images, (1.8, 1.8), *(labels or [None, None]), field)


def write_packs(folder):
    train = tuple(make_sample(f"s{seed}", seed, with_labels=False) for seed in range(2))
    val = (make_sample("é/1", 9, with_labels=True),)
    parts = {
        ("train", "training"): PreparedSplit("phantom", "train", train, {}, False),
        ("val", "evaluation"): PreparedSplit("phantom", "val", val, {"LV": 3, "Myo": 2}, False),
    }
    save_pack(parts, folder / "a.npz")


def results_of(folder):
    """The results of a study in a folder, and the entry that the tables are of."""
    results = Results(folder, "acdc", BUDGETS["short"])
    return results, results.entry("VoxelMorph")


def write_tables(folder):
    """Tables, and the images and results that they are of."""
    (folder / "split.csv").write_text("subject,split\npatient1,train\npatient2,val\npatient3,test\n")
    (folder / "points.csv").write_text('name,x,y,z\n"a, b",1.5,2,3\nb,4,5e0,-6.25\n')
    for name in "abcd":
        nibabel.save(nibabel.Nifti1Image(ARRAY[0].astype(np.float32) + ord(name), np.eye(4)), folder / f"{name}.nii")
    (folder / "pairs.csv").write_text("fixed,moving,split,name\na.nii,b.nii,train,one\nc.nii,d.nii,val,two\n")
    row = {"dice_LV": 0.9, "dice_mean": 0.9, "hd_LV": 3.5, "hd_mean": 3.5, "seconds": 0.1}
    write_rows([{"subject": f"s{k}", **row} for k in range(3)], folder / "metrics.csv")
    write_rows(ROWS, folder / "validations.csv")
    config = {"method": "VoxelMorph", "subjects": ["s0", "s1", "s2"], "settings": {}, "hardware": "a CPU"}
    write_json(config | {"versions": {"torch": "2.11"}}, folder / "config.json")


SEEDS = {"weights": write_weights, "checkpoints": write_checkpoints, "packs": write_packs, "csv": write_tables}
