"""Seconds per pair of every method of the tables `runtime` and `acdc`, one pair at a time, on phantoms.

    python benchmarks/runtime.py [--out results] [--device cpu] [--budget short] [--seconds 2]

Networks need no trained weights for that. Writes OUT/runtime/DEVICE.csv, which `vrnet paper table runtime` shows; what
is in it is not measured again.
"""

import argparse
from functools import partial
from pathlib import Path
from time import perf_counter

import torch

from vrnet.devices import capture_graph, channels_last, describe_device, threads_for
from vrnet.errors import shape_text
from vrnet.files import write_rows
from vrnet.paper.results import file_name
from vrnet.paper.specs import BUDGETS, TABLES, TIMED_PHANTOMS
from vrnet.paper.tables import DEVICES, read_times, timed_methods
from vrnet.phantom import phantom
from vrnet.provenance import versions

MAX_TIMED_PAIRS = 20


def measure_all(out, budget, device, seconds):
    """Time what is not timed yet, and write each time when it is there."""
    place, images = torch.device(device), budget.phantoms or TIMED_PHANTOMS
    asked = [(method, d) for by_d in timed_methods(budget).values() for d, method in by_d.items()]
    asked += [(budget.method(name, 2), 2) for name in TABLES["acdc"].methods if name != "identity"]
    for method, d in asked:
        name, size, kept = file_name(method), shape_text(images[d].shape), read_times(out, device)
        if device in method.devices and not any((row["method"], row["shape"]) == (name, size) for row in kept):
            pair = phantom(7, images[d].shape, images[d].spacing)
            row = {"method": name, "shape": size, "seconds": measure_seconds(method, pair, place, seconds)}
            row |= {"hardware": describe_device(place), **versions()}
            rows = sorted([*kept, row], key=lambda row: (row["shape"], row["method"]))
            write_rows(rows, out / "runtime" / f"{device}.csv")
            print(f"{name} {size}: {row['seconds']:.3g} s", flush=True)


def measure_seconds(method, pair, device, timing_seconds):
    """Mean seconds per pair over what `timing_seconds` allow, after one pair to warm up."""
    d, images = len(pair.spacing), (pair.fixed.to(device), pair.moving.to(device))
    find = method.build(d, device)
    register = partial(find, *images, pair.spacing)
    with torch.inference_mode(), threads_for(method.is_network, images[0].numel()):
        if method.is_network:
            model = find.eval()
            if device.type == "cuda":  # recorded first
                graph = capture_graph(lambda I0, I1: channels_last(model, d)(I0, I1, pair.spacing), *images)
                register = partial(graph, *images)
        wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
        register()
        wait()
        done, start = 0, perf_counter()
        while done == 0 or (perf_counter() - start < timing_seconds and done < MAX_TIMED_PAIRS):
            register()
            wait()
            done += 1
        return (perf_counter() - start) / done


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--budget", choices=BUDGETS, default="short", help="how wide networks of the table acdc are")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a method is timed, after one pair")
    given = parser.parse_args()
    measure_all(given.out, BUDGETS[given.budget], given.device, given.seconds)
