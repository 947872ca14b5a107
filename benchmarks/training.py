"""How fast networks are trained and used, beside plain code of the same network, in one run.

    python benchmarks/training.py [--out training.json]

On a GPU: a training step of R-L2-6x1 (width 64, batch 10, 160x160) and of R-L1-2x1 in 3D (width 8, batch 2,
128x128x96), in plain float32 with TF32, then as `vrnet train` does it (bfloat16 networks, channels last, the whole step
recorded); the memory that recomputing saves; and one pair registered by each, plainly and as `vrnet evaluate` does it.
Everywhere: the part of a forward pass on the CPU that is not spent in convolutions (2D, width 32).
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
from torch.optim import Adam
from torch.profiler import ProfilerActivity, profile

from vrnet.devices import capture_graph, channels_last, own_stream
from vrnet.methods.names import parse_trainable
from vrnet.training.loss import Loss
from vrnet.training.pairs import Pairs
from vrnet.training.settings import Training
from vrnet.training.trainer import Trainer, launch_fabric

PLANE, VOLUME = (160, 160), (128, 128, 96)
WARM_UP_CALLS, TIMED_CALLS = 5, 10


@dataclass(frozen=True)
class Case:
    """A network, and the batch that it is given."""

    method: str
    batch: int
    shape: tuple

    def __str__(self):
        return f"{self.method}, {'x'.join(map(str, self.shape))}, batch {self.batch}"


TRAINED = Case("R-L2-6x1", 10, PLANE), Case("R-L1-2x1", 2, VOLUME)
USED = Case("R-L2-6x1-w32", 1, PLANE), Case("C-L2-3x1-w32", 1, PLANE), Case("R-L1-2x1", 1, VOLUME)


def random_pairs(case):
    torch.manual_seed(0)
    return torch.rand(2, case.batch, 1, *case.shape, device="cuda")


def time_calls(function, calls=TIMED_CALLS):
    """Milliseconds per call."""
    for _ in range(WARM_UP_CALLS):
        function()
    torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(calls):
        function()
    torch.cuda.synchronize()
    return 1000 * (perf_counter() - start) / calls


def with_peak_memory(function):
    """What a function returns, and the most GPU memory held meanwhile, in GiB."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    result = function()
    return result, torch.cuda.max_memory_allocated() / 2**30


def time_plain_step(case):
    """Milliseconds of a step, in ordinary code."""
    I0, I1 = random_pairs(case)
    model, loss = parse_trainable(case.method).build(len(case.shape)).cuda(), Loss(0.05)
    optimizer = Adam(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        loss(I0, I1, model(I0, I1)).backward()
        optimizer.step()

    return time_calls(step)


def time_our_step(case, recompute=False):
    """Milliseconds of a step, as `vrnet train` takes it, without augmentation."""
    settings = Training(batch=case.batch, augmentation=None, recompute=recompute)
    fabric = launch_fabric("cuda", 1, 1, settings)
    images = torch.rand(2 * case.batch, 1, *case.shape)
    index = torch.arange(2 * case.batch).view(2, case.batch).T
    pairs = Pairs(images, index, (1.0,) * len(case.shape)).move_to(fabric.device)
    with own_stream(fabric.device):
        trainer = Trainer(fabric, parse_trainable(case.method), pairs, settings)
        steps = iter(range(10_000))
        return time_calls(lambda: trainer.step(next(steps)))


def time_plain_use(case):
    """Milliseconds to register one pair, in ordinary code."""
    model, (I0, I1) = parse_trainable(case.method).build(len(case.shape)).cuda().eval(), random_pairs(case)
    with torch.inference_mode():
        return time_calls(lambda: model(I0, I1), 3 * TIMED_CALLS)


def time_our_use(case):
    """Milliseconds to register one pair, as `vrnet evaluate` does."""
    d = len(case.shape)
    model, (I0, I1) = channels_last(parse_trainable(case.method).build(d).cuda().eval(), d), random_pairs(case)
    with torch.inference_mode():
        replay = capture_graph(model, I0, I1)
        return time_calls(lambda: replay(I0, I1), 3 * TIMED_CALLS)


def measure_gpu():
    """Every case, one row each."""
    torch.set_float32_matmul_precision("high")
    found = {}
    for case in TRAINED:
        plain, plain_memory = with_peak_memory(lambda case=case: time_plain_step(case))
        ours, memory = with_peak_memory(lambda case=case: time_our_step(case))
        again, less = with_peak_memory(lambda case=case: time_our_step(case, recompute=True))
        row = {"plain_ms": plain, "ours_ms": ours, "times_faster": plain / ours, "plain_gib": plain_memory}
        row |= {"ours_gib": memory, "recomputed_ms": again, "recomputed_gib": less, "memory_part": less / memory}
        found[f"a training step of {case}"] = row
        show(f"a training step of {case}", row)
    for case in USED:
        plain, ours = time_plain_use(case), time_our_use(case)
        found[f"one pair by {case}"] = row = {"plain_ms": plain, "ours_ms": ours, "times_faster": plain / ours}
        show(f"one pair by {case}", row)
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
    show(f"a forward pass of {method} on the CPU", row)
    return {f"a forward pass of {method} on the CPU": row}


def show(name, row):
    """One line per row."""
    print(f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in row.items()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("training.json"))
    given = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    found = {"device": device, "torch": torch.__version__, **measure_cpu()}
    found |= measure_gpu() if torch.cuda.is_available() else {}
    given.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
