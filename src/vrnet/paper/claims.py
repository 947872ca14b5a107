"""What the paper claims, and what the rows of results/ say of it: OUT/claims.csv, and a page of it in OUT/README.md;
and methods compared on the same subjects, OUT/comparisons.csv: every comparison that results/notes speaks of.

Both are data, in lists/. A claim is the runs that it compares, by which measure, and what was published of them.
Nothing but what was published is typed. Comparisons are pairs of runs, in families: what Holm's correction counts
together. A run is named as in rows.csv, PROTOCOL/RUN; without its seed it is the mean over all seeds. A claim whose
runs are not measured says so."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from vrnet.files import Row, exists, read_rows, write_bytes, write_rows
from vrnet.paper.results import read_runs
from vrnet.paper.specs import DECIMALS, LISTS, published_values
from vrnet.paper.tables import DEVICES, MARGINS, Estimate, estimate_mean, holm, p_value, read_times, signed, units_of

UNITS = {"dice": "", "hd": " mm", "folding": " %"}
LEVEL = 0.05
Names = tuple[str, ...]


class Found(NamedTuple):
    """A mean over subjects, or that of a paired difference, and what it is of."""

    estimate: Estimate
    p: float
    subjects: int
    seeds: str
    runs: list[str]


def compare(out: Path, data: str, measure: str, ours: Names, others: Names = ()) -> Found | None:
    """The mean of `ours` minus that of `others`, paired by subject; None where a run is not measured."""
    known = {"/".join(key): run for key, run in read_runs(out / data).items()}
    runs = {  # itself, or all its seeds
        name: [run for run in known if re.fullmatch(re.escape(name) + r"(_seed\d+)?", run)] for name in (*ours, *others)
    }
    if not all(runs.values()):
        return None
    every = [run for found in runs.values() for run in found]
    subjects = [row["subject"] for row in known[every[0]].cells]
    cells = {run: {row["subject"]: float(row[measure] or "nan") for row in known[run].cells} for run in every}
    means = {name: np.mean([[cells[run][s] for s in subjects] for run in runs[name]], axis=0) for name in runs}
    x = np.mean([means[name] for name in ours], axis=0)
    if others:
        x = x - np.mean([means[name] for name in others], axis=0)
    units = units_of(data, subjects)
    seeds = sorted({len(found) for name, found in runs.items() if "alpha" in name})
    return Found(estimate_mean(x, units), p_value(x, units), len(x), " and ".join(map(str, seeds)) or "–", every)


def comparison_rows(out: Path) -> Iterator[Row]:
    """The rows of comparisons.csv: the first run minus the second in Dice and in mm, with 95 % intervals, p with Holm's
    correction for the family, and whether both are equivalent. Pairs that are not measured are left out."""
    families: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for asked in read_rows(LISTS / "comparisons.csv", "one row per pair of runs"):
        families.setdefault((asked["family"], asked["data"]), []).append((asked["first"], asked["second"]))
    for (family, data), pairs in families.items():
        rows: dict[tuple[str, str], Row] = {}
        for kind, margin in MARGINS.items():
            tried = {pair: compare(out, data, f"{kind}_mean", pair[:1], pair[1:]) for pair in pairs}
            found = {pair: one for pair, one in tried.items() if one}
            p = holm({pair: one.p for pair, one in found.items()})
            for pair, one in found.items():
                row = rows.setdefault(pair, {"family": family, "data": data, "first": pair[0], "second": pair[1]})
                mean, low, high, *_ = (round(value, 4) for value in one.estimate)
                row |= {"n": one.subjects, "seeds": one.seeds, kind: mean, f"{kind}_low": low, f"{kind}_high": high}
                row[f"{kind}_p"] = f"{p[pair]:.2g}"
                row[f"{kind}_equivalent"] = "yes" if one.estimate.is_within(margin) else "no"
        yield from rows.values()


@dataclass(frozen=True)
class Claim:
    """The mean over subjects of the runs `ours` minus that of `others`; of `ours` alone where there are none."""

    claim: str
    measure: str
    ours: Names
    others: Names
    published: str  # the table in published/ that has these methods; or words, where there is no number
    page: str = "tables/acdc_cycles.md"
    test: Literal["better", "equal", "value"] = "better"
    data: str = "acdc"

    @property
    def kind(self) -> str:
        return self.measure.split("_")[0]

    @property
    def sides(self) -> list[Names]:
        return [self.ours, self.others] if self.others else [self.ours]

    @property
    def parts(self) -> list[tuple[Names, Names]]:
        """The comparisons that it is made of: one by one where both sides are as many, else ours with each."""
        if len(self.ours) == len(self.others):
            return [((one,), (other,)) for one, other in zip(self.ours, self.others, strict=True)]
        return [(self.ours, (other,)) for other in self.others]


CLAIMS = [
    Claim(**row | {"ours": tuple(row["ours"].split()), "others": tuple(row["others"].split())})  # type: ignore[arg-type]
    for row in read_rows(LISTS / "claims.csv", "one row per claim")
]
PUBLISHED_OF = {"initialisation_ukbb": ", UK Biobank", "cmr3d": ", 3D CMR"}
"""What the published numbers of a table are of, where ours are of ACDC."""
PRIVATE = "cannot be (data private)"
OTHERS = (
    ("Table III: methods on UK Biobank", "table", "–", PRIVATE, "tables/acdc_cycles.md"),
    ("Table V: methods on 3D CMR (rows 3D: ACDC)", "table", "–", PRIVATE, "tables/acdc3d.md"),
    ("Figures 1, 2: architecture", "figures", "not drawn", "rows lack", "notes/pictures.md"),
    ("Figure 4: hearts compared", "figure", "a phantom", "partly", "figures/visual_phantom.csv"),
    ("Figure 5: box plots", "figure", "ACDC in 2D", "partly", "figures/boxplots.csv"),
)  # what no number of ours answers: claim, published, ours, verdict, source
FASTER, AS_FAST = 1.0, 1.1
TIMES = (("faster than TV-L1", "cpu", "TV-L1", FASTER), ("as fast as 7xRC-Net", "cpu", "7xRC-Net", AS_FAST),
         ("as fast as 7xRC-Net", "cuda", "7xRC-Net", AS_FAST))  # fmt: skip
"""Seconds of R-L2-6x1 over those of another method, on a device: claim, device, the other, at most."""
DENOISED = 0.5  # a layer denoises if the slope of a noisy field falls below this part of it
START, END = "<!-- written by vrnet paper claims -->\n", "<!-- until here -->"


def shown(x: float, kind: str, is_signed: bool) -> str:
    """+.010, -.56 mm: a number with its unit."""
    text = signed(x, DECIMALS[kind])
    return (text if is_signed else text.removeprefix("+")) + UNITS[kind]


def published_mean(claim: Claim) -> float | None:
    """What was published of the runs of a claim, put together as ours are; None where it was words."""
    if not (values := published_values(claim.published)):
        return None
    methods = [[re.sub(r"(-w\d+)?(_alpha.*)?$", "", run.split("/")[1]) for run in side] for side in claim.sides]
    means = [float(np.mean([values[name][claim.measure].mean for name in group])) for group in methods]
    return means[0] - sum(means[1:])


def judge(claim: Claim, found: Found, parts: Sequence[Found], published: float | None) -> str:
    """The verdict, by the rules that results/README.md states."""
    sign = 1 if claim.kind == "dice" else -1
    low, high = sorted((sign * found.estimate.low, sign * found.estimate.high))
    is_equal = claim.kind in MARGINS and found.estimate.is_within(MARGINS[claim.kind])
    if published is not None and claim.test == "value":
        return "reproduced" if high >= sign * published else "not reproduced"
    if claim.test == "equal":
        return "reproduced" if is_equal else "not reproduced" + (": they differ" if low > 0 or high < 0 else "")
    if low > 0:
        corrected = holm({k: part.p for k, part in enumerate(parts)}).values()
        wins = [p < LEVEL and sign * part.estimate.mean > 0 for p, part in zip(corrected, parts, strict=True)]
        return "reproduced" if all(wins) else "partly"
    return "not reproduced: " + ("the reverse" if high < 0 else "equivalent" if is_equal else "no difference found")


def claim_rows(out: Path) -> Iterator[Row]:
    """The rows of claims.csv."""
    for claim in CLAIMS:
        published = published_mean(claim)
        said = claim.published if published is None else shown(published, claim.kind, bool(claim.others))
        said += PUBLISHED_OF.get(claim.published, "")
        found, *parts = (compare(out, claim.data, claim.measure, *sides) for sides in (claim.sides, *claim.parts))
        budgets = dict.fromkeys(run.split("/")[0] for side in claim.sides for run in side)
        row = plain_row(claim.claim, said, "–", "rows lack", "", f"{claim.data}, {' and '.join(budgets)}")
        source = f"lacking: {' '.join(run for side in claim.sides for run in side)}"
        if found:
            mean, *interval = (shown(x, claim.kind, bool(claim.others)) for x in found.estimate[:3])
            row |= {"ours": mean, **dict(zip(("ci_low", "ci_high"), (x.split()[0] for x in interval), strict=True))}
            row |= {"n": found.subjects, "seeds": found.seeds}
            row["verdict"] = judge(claim, found, [part for part in parts if part], published)
            source = f"{claim.data}/rows.csv: {' '.join(found.runs)}"
        yield row | {"source": f"{claim.page}; {source}"}
    for words, device, other, most in TIMES:
        seconds = {row["method"]: row["seconds"] for row in read_times(out, device) if row["shape"] == "160x160"}
        ratio = seconds["R-L2-6x1"] / seconds[other]
        ours, theirs = (published_values("runtime")[name][f"2D_{device}"].mean for name in ("R-L2-6x1", other))
        ratio_of = f"R-L2-6x1 {words}, {DEVICES[device]}: ratio of seconds"
        yield plain_row(ratio_of, f"{ours / theirs:.2g}", f"{ratio:.2g}",
                        "reproduced" if ratio < most else "not reproduced",
                        f"tables/runtime.md; runtime/{device}.csv: R-L2-6x1 {other}",
                        "one phantom, width 64")  # fmt: skip
    slopes: dict[str, list[float]] = {}
    for row in read_rows(out / "figures" / "denoising.csv", "one row per method and cascade"):
        slopes.setdefault(row["method"], []).append(float(row["roughness"]))
    falls = [found[-1] / found[0] < DENOISED for found in slopes.values()]
    yield plain_row("the layer denoises: slope of a noisy field, R-L2-6x1; trained on noise", "falls",
                    "; ".join(f"{found[0]:.2f} to {found[-1]:.2f}" for found in slopes.values()),
                    "reproduced" if all(falls) else "partly" if any(falls) else "not reproduced",
                    "notes/pictures.md; figures/denoising.csv", "one subject, short")  # fmt: skip
    yield from (plain_row(*other) for other in OTHERS)


def plain_row(claim: str, published: str, ours: str, verdict: str, source: str, budget: str = "–") -> Row:
    """A row without an interval."""
    row: Row = {"claim": claim, "published": published, "ours": ours}
    row |= dict.fromkeys(("ci_low", "ci_high", "n", "seeds"), "–")
    return row | {"budget": budget, "verdict": verdict, "source": source}


def page(rows: Sequence[Row]) -> str:
    """The rows as a table in Markdown, each claim linked to its table."""
    lines = ["| claim | published | ours [95 %] | data, budget; subjects; seeds | verdict |", "| --- " * 5 + "|"]
    for row in rows:
        interval = "" if row["ci_low"] == "–" else f" [{row['ci_low']}, {row['ci_high']}]"
        conditions = "; ".join(str(row[key]) for key in ("budget", "n", "seeds") if row[key] != "–") or "–"
        claim = f"[{row['claim']}]({row['source'].split(';')[0]})"
        lines.append(f"| {claim} | {row['published']} | {row['ours']}{interval} | {conditions} | {row['verdict']} |")
    return "\n".join(lines) + "\n"


def write_claims(out: Path) -> list[Path]:
    """Write claims.csv and comparisons.csv, and the claims between the marks of README.md, if it has them."""
    rows, written = list(claim_rows(out)), [out / "claims.csv", out / "comparisons.csv"]
    write_rows(rows, written[0])
    write_rows(list(comparison_rows(out)), written[1])
    readme = out / "README.md"
    text = readme.read_text(encoding="utf-8") if exists(readme) else ""
    if START in text:
        before, _, rest = text.partition(START)
        write_bytes(f"{before}{START}\n{page(rows)}\n{END}{rest.partition(END)[2]}".encode(), readme)
        written.append(readme)
    return written
