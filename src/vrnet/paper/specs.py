"""The paper's tables, as data: which methods on which images."""

import re
from dataclasses import dataclass
from pathlib import Path

from vrnet.files import read_rows
from vrnet.methods.method import AVERAGED
from vrnet.methods.vrnet import PAPER

ITERATIVE = ("FFD", "TV-L1", "Demons", "SyN")
RC_NETS = tuple(f"{n}xRC-Net" for n in range(2, 8))
NETWORKS_3D = (
    "VoxelMorph", "2xRC-Net", "3xRC-Net", "R-L2-2x1", "R-L1-2x1", "U-L2-2x1", "U-L1-2x1", "C-L1-2x1",
)  # fmt: skip
HALF_2D = ("4xRC-Net-half-w32", "D-L2-3x1-half-w32")
HALF_3D = ("4xRC-Net-half-w16", "D-L2-3x1-half-w16")
PARTS = tuple(
    f"{denoiser}-{part}"
    for denoiser in "CD"
    for part in ("L2-3x1", "none-3x1", "L2-3x1-frozen", "L2-3x1(theta=1.0)", "L2-3x1-released")
)
OVERLAP = ("dice_mean", "hd_mean", "folding_percent")


@dataclass(frozen=True)
class TableSpec:
    """A table with one row per method and one column per measure."""

    title: str
    data: str
    methods: tuple[str, ...]
    fallback: str | None = None
    """Phantoms that stand for the data set where a reader does not have it."""
    measures: tuple[str, ...] | None = None
    """Everything that is measured, if not given."""
    has_times: bool = False
    also_published: str | None = None
    """Another data set whose published numbers are shown too."""


TABLES = {
    "ablation": TableSpec("Configurations of VR-Net", "acdc", tuple(map(str, PAPER)), measures=OVERLAP,
                          also_published="ukbb"),
    "parts": TableSpec("What the parts of image-aware VR-Nets bring", "acdc", PARTS, measures=OVERLAP),
    "initialisation": TableSpec("What VR-Net starts from", "acdc", ("R-L2-6x1", "R-L2-6x1-noise", "R-L2-6x1-zeros"),
                                measures=OVERLAP, also_published="ukbb"),
    "acdc": TableSpec("Methods on ACDC", "acdc",
                      ("identity", *ITERATIVE, "Siamese", "VoxelMorph", "VoxelMorph-w32", *RC_NETS, "R-L1-3x2",
                       "R-L2-6x1", "C-L2-3x1", "C-L2-6x1"), has_times=True),
    "matched": TableSpec("Networks of 7.8 million parameters on ACDC, trained alike", "acdc",
                         ("identity", *ITERATIVE, "VoxelMorph-w32", "4xRC-Net-w16", "D-L2-3x1-w16")),
    "matched_half": TableSpec("Networks of 7.7 million parameters at half resolution on ACDC, trained alike", "acdc",
                              ("identity", *ITERATIVE, *HALF_2D)),
    "averaged": TableSpec("Networks of 7.7 or 7.8 million parameters on ACDC, asked once and averaged", "acdc",
                          ("identity", *ITERATIVE,
                           *(n + average for n in ("4xRC-Net-w16", *HALF_2D) for average in ("", AVERAGED)))),
    "smoothness": TableSpec("Smoothness by forward or central differences", "acdc",
                            ("VoxelMorph", "R-L1-3x2", "C-L2-3x1"), measures=OVERLAP),
    "ukbb": TableSpec("Methods on UK Biobank", "ukbb",
                      ("identity", "FFD", "TV-L1", "Siamese", "VoxelMorph", *RC_NETS, "R-L2-6x1", "C-L2-3x1"),
                      fallback="phantom"),
    "cmr3d": TableSpec("Methods on 3D cardiac MR", "cmr3d", ("identity", *ITERATIVE, *NETWORKS_3D),
                       fallback="phantom3d"),
    "acdc3d": TableSpec("Methods on whole stacks of ACDC, 3D", "acdc3d",
                        ("identity", *ITERATIVE, "Gaussian-LNCC", *NETWORKS_3D, *HALF_3D), also_published="cmr3d"),
    "hippocampus": TableSpec("Methods between subjects: hippocampi", "hippocampus",
                             ("identity", *ITERATIVE, "VoxelMorph", "2xRC-Net", "R-L1-2x1", "U-L1-2x1", "C-L1-2x1")),
    "hippocampus_half": TableSpec("Networks at half resolution and solvers between subjects: hippocampi",
                                  "hippocampus", ("identity", *ITERATIVE, "Gaussian-LNCC", *HALF_3D)),
}  # fmt: skip
REPEATED_SUBJECTS = dict.fromkeys(("acdc", "acdc3d"), ("patient076",))
"""By data set, subjects whose images are those of another subject, with other masks: 076 has those of 074."""
TIMED_METHODS = (
    *ITERATIVE, "Siamese", "VoxelMorph", "2xRC-Net", "3xRC-Net", "7xRC-Net", "R-L2-1x1", "R-L2-2x1", "R-L2-6x1",
)  # fmt: skip
UNTIMED = ("7xRC-Net", 3), ("R-L2-6x1", 3), ("Siamese", 3)
"""Deep cascades, which need too much memory for volumes, and a network of 2D: methods and dimensions."""


# One number of a table: a mean and, over several subjects, a standard deviation, printed as ".873(.050)".

DECIMALS = {"dice": 3, "hd": 2, "folding": 2, "jacobian": 3, "end": 2}
"""Decimals of a measure, by the first word of its name."""


@dataclass(frozen=True)
class Value:
    """mean(std), printed to so many decimals."""

    mean: float
    std: float | None = None
    decimals: int = 3

    def __str__(self) -> str:
        """Numbers below one have no zero before the point, as in the paper."""
        words = [f"{x:.{self.decimals}f}" for x in (self.mean, self.std) if x is not None]
        mean, *std = [text.removeprefix("0") if text.startswith("0.") else text for text in words]
        return f"{mean}({std[0]})" if std else mean

    @classmethod
    def parse(cls, text: str) -> "Value":
        """The value that is printed so."""
        found = re.fullmatch(r"(\d*\.\d+)(?:\((\d*\.\d+)\))?", text)
        if found is None:
            raise ValueError(f'"{text}" is not a mean and a standard deviation')
        mean, std = found.groups()
        return cls(float(mean), None if std is None else float(std), len(mean.split(".")[1]))


PublishedValues = dict[str, dict[str, Value]]


def published_values(name: str) -> PublishedValues:
    """The numbers of one of the paper's tables, published/NAME.csv; none where it has no such table."""
    path = Path(__file__).parent / "published" / f"{name}.csv"
    if not path.is_file():
        return {}
    return {
        row.pop("method"): {measure: Value.parse(text) for measure, text in row.items() if text}
        for row in read_rows(path, "one row per method")
    }
