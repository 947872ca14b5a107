"""3D networks on the CPU: how far from the speed of a matrix product.

    python benchmarks/convolution.py [--threads 2] [--method U-L1-2x1] [--shape 128 128 96] [--plain]

A network registers a pair of random volumes; PyTorch counts its floating-point operations. The limit is the time
that a product of two large matrices, of float32, takes for as many. With --plain the same network is timed by torch's
own convolutions too, which other processors than ARM use anyway; on ARM that takes minutes.
"""

import argparse
from contextlib import contextmanager
from copy import deepcopy
from time import perf_counter

import torch
from torch.utils.flop_counter import FlopCounterMode

from vrnet import network
from vrnet.networks import unet as convolution

MATRIX_SIDE = 2048
ROUNDS = 3


def seconds(work):
    """The least of several rounds, after one to warm up."""
    work()
    found = []
    for _ in range(ROUNDS):
        start = perf_counter()
        work()
        found.append(perf_counter() - start)
    return min(found)


def matrix_speed():
    """Operations per second of a product of matrices."""
    a, b = torch.randn(2, MATRIX_SIDE, MATRIX_SIDE)
    return 2 * MATRIX_SIDE**3 / seconds(lambda: a @ b)


def operations(model, pair):
    """Floating-point operations of the network, counted without computing anything."""
    with FlopCounterMode(display=False) as counter:
        deepcopy(model).to("meta")(*pair.to("meta"))
    return counter.get_total_flops()


@contextmanager
def plain_convolutions():
    """Meanwhile, 3D convolutions are torch's own."""
    before, convolution.IS_ARM = convolution.IS_ARM, False
    try:
        yield
    finally:
        convolution.IS_ARM = before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--method", default="U-L1-2x1")
    parser.add_argument("--shape", type=int, nargs=3, default=(128, 128, 96))
    parser.add_argument("--plain", action="store_true", help="time torch's own convolutions, too")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model, pair = network(given.method, dimension=3), torch.rand(2, 1, 1, *given.shape)
    with torch.inference_mode():
        work, speed = operations(model, pair), matrix_speed()
        found = seconds(lambda: model(*pair))
        print(f"{given.method} at {'x'.join(map(str, given.shape))}, {given.threads} threads: {work / 1e9:.0f} GFLOP")
        print(f"limit {work / speed:.1f} s ({speed / 1e9:.0f} GFLOP/s); here {found:.1f} s")
        if given.plain:
            with plain_convolutions():
                print(f"by torch's own convolutions {seconds(lambda: model(*pair)):.1f} s")


if __name__ == "__main__":
    main()
