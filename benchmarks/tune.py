"""λ and θ of TV-L1 on real hearts: each pair on the ten validation subjects of ACDC, best last.

    python benchmarks/tune.py --root ACDC

(What the chosen ones give on the test subjects: vrnet evaluate TV-L1 --data acdc --root ACDC --out DIR.)
"""

import argparse
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch

from vrnet import parse
from vrnet.data import acdc
from vrnet.evaluation.cohort import measured, summarised


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    samples, results = [acdc.prepare(folder) for folder in acdc.subjects(options.root, "val")], []
    for lam, first, last in product((0.05, 0.06, 0.065, 0.075, 0.09), (0.05, 0.1, 0.2), (0.5, 1.0)):
        find = replace(parse("TV-L1"), lam=lam, theta=(first, last)).build(2)
        summary = summarised([measured(sample, find, acdc.STRUCTURES) for sample in samples])
        dice, distance = (summary[key]["mean"] for key in ("dice_mean", "hd_mean"))
        results.append((dice - distance / 100, f"λ {lam} θ {first}-{last}  Dice {dice:.3f}  HD {distance:.2f} mm"))
        print(results[-1][1], flush=True)
    print("\nby Dice − HD/100 mm:", *(line for _, line in sorted(results)), sep="\n")


if __name__ == "__main__":
    main()
