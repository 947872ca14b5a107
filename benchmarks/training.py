"""How fast networks are trained and used, beside plain code of the same network, in one run.

    python benchmarks/training.py [--out training.json]

On a GPU: a training step of R-L2-6x1 (width 64, batch 10, 160x160) and of R-L1-2x1 in 3D (width 8, batch 2,
128x128x96), in plain float32 with TF32, then as `vrnet train` does it (bfloat16 networks, channels last, the whole step
recorded); the memory that recomputing saves; and one pair registered by each, plainly and as `vrnet evaluate` does it.
Everywhere: the part of a forward pass on the CPU that is not spent in convolutions (2D, width 32).
"""

import argparse
import json
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch
from torch.optim import Adam
from torch.profiler import ProfilerActivity, profile

from vrnet.devices import capture_graph, channels_last, own_stream
from vrnet.methods.names import parse_trainable
from vrnet.training.fit import Trainer, launch_fabric
from vrnet.training.loss import Loss
from vrnet.training.pairs import Pairs
from vrnet.training.settings import Training

PLANE, VOLUME = (160, 160), (128, 128, 96)
WARM_UP_CALLS = 5


class Case(NamedTuple):
    """A network, and the batch that it is given."""

    method: str
    batch: int
    shape: tuple

    def __str__(self):
        return f"{self.method}, {'x'.join(map(str, self.shape))}, batch {self.batch}"

    def model(self):
        return parse_trainable(self.method).build(len(self.shape)).cuda()

    def images(self):
        torch.manual_seed(0)
        return torch.rand(2, self.batch, 1, *self.shape, device="cuda")


TRAINED = Case("R-L2-6x1", 10, PLANE), Case("R-L1-2x1", 2, VOLUME)
USED = Case("R-L2-6x1-w32", 1, PLANE), Case("C-L2-3x1-w32", 1, PLANE), Case("R-L1-2x1", 1, VOLUME)


def measure(function, calls=10):
    """Milliseconds per call, and the most GPU memory held meanwhile, in GiB."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(WARM_UP_CALLS):
        function()
    torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(calls):
        function()
    torch.cuda.synchronize()
    return 1000 * (perf_counter() - start) / calls, torch.cuda.max_memory_allocated() / 2**30


def measure_plain_step(case):
    """A training step in ordinary code."""
    (I0, I1), model, loss = case.images(), case.model(), Loss(0.05)
    optimizer = Adam(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        loss(I0, I1, model(I0, I1)).backward()
        optimizer.step()

    return measure(step)


def measure_our_step(case, recompute=False):
    """A training step as `vrnet train` takes it, without augmentation."""
    settings = Training(batch=case.batch, augmentation=None, recompute=recompute)
    fabric = launch_fabric("cuda", 1, 1, settings)
    images = torch.rand(2 * case.batch, 1, *case.shape)
    index = torch.arange(2 * case.batch).view(2, case.batch).T
    pairs = Pairs(images, index, (1.0,) * len(case.shape)).move_to(fabric.device)
    with own_stream(fabric.device):
        trainer = Trainer(fabric, parse_trainable(case.method), pairs, settings)
        steps = iter(range(10_000))
        return measure(lambda: trainer.step(next(steps)))


def measure_gpu():
    """Every case, one row each."""
    torch.set_float32_matmul_precision("high")
    found = {}
    for case in TRAINED:
        (plain, plain_memory), (ours, memory) = measure_plain_step(case), measure_our_step(case)
        again, less = measure_our_step(case, recompute=True)
        row = {"plain_ms": plain, "ours_ms": ours, "times_faster": plain / ours, "plain_gib": plain_memory}
        row |= {"ours_gib": memory, "recomputed_ms": again, "recomputed_gib": less, "memory_part": less / memory}
        found[f"a training step of {case}"] = row
    for case in USED:
        (I0, I1), model = case.images(), case.model().eval()
        with torch.inference_mode():
            plain, _ = measure(lambda model=model, pair=(I0, I1): model(*pair), 30)
            replay = capture_graph(channels_last(model, len(case.shape)), I0, I1)
            ours, _ = measure(lambda replay=replay, pair=(I0, I1): replay(*pair), 30)
        found[f"one pair by {case}"] = {"plain_ms": plain, "ours_ms": ours, "times_faster": plain / ours}
    return found


def measure_cpu(method="R-L2-6x1-w32"):
    """The part of a forward pass that is not spent in convolutions."""
    model = parse_trainable(method).build(2).eval()
    I0, I1 = torch.rand(2, 1, 1, *PLANE)
    with torch.inference_mode():
        model(I0, I1)
        with profile(activities=[ProfilerActivity.CPU]) as found:
            model(I0, I1)
    total = sum(event.self_cpu_time_total for event in found.key_averages())
    convolutions = sum(e.self_cpu_time_total for e in found.key_averages() if "conv" in e.key.lower())
    row = {"seconds": total / 1e6, "percent_outside_convolutions": 100 * (1 - convolutions / total)}
    return {f"a forward pass of {method} on the CPU": row}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("training.json"))
    given = parser.parse_args()
    has_gpu = torch.cuda.is_available()
    rows = measure_cpu() | (measure_gpu() if has_gpu else {})
    for name, row in rows.items():
        print(f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in row.items()))
    device = torch.cuda.get_device_name() if has_gpu else "no GPU"
    given.out.write_text(json.dumps({"device": device, "torch": torch.__version__, **rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
