"""The claims of results/ are what the rows beside them say."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.paper.recomputation import read_csv
from vrnet.app.arguments import DeviceOptions, SourceOptions
from vrnet.app.paper import Paper, make_claims
from vrnet.errors import BadInput
from vrnet.paper.claims import CLAIMS, Claim, Found, judge
from vrnet.paper.tables import estimate_mean

RESULTS = Path(__file__).parents[2] / "results"
ASKED = {"name": "", "source_options": SourceOptions(), "device_options": DeviceOptions()}
COLUMNS = ["claim", "published", "ours", "ci_low", "ci_high", "n", "seeds", "budget", "verdict", "source"]
ROWS = read_csv(RESULTS / "claims.csv")


def test_claims_and_comparisons_are_what_the_command_writes(tmp_path):
    names = "claims.csv", "comparisons.csv", "README.md"
    out = shutil.copytree(RESULTS, tmp_path / "results", ignore=shutil.ignore_patterns("*.png", "tables", *names[:2]))
    written = make_claims(Paper(kind="claims", out=out, **ASKED))
    assert tuple(path.name for path in written) == names
    for path in written:
        assert path.read_bytes() == (RESULTS / path.name).read_bytes()


def test_every_claim_has_its_columns_a_verdict_and_a_source_that_is_there():
    assert len(ROWS) >= 12
    known = {data: {f"{row['protocol']}/{row['run']}" for row in read_csv(RESULTS / data / "rows.csv")}
             for data in ("acdc", "acdc3d")}  # fmt: skip
    for row in ROWS:
        assert list(row) == COLUMNS
        assert all(row.values())
        page, _, runs = row["source"].partition("; ")
        assert (RESULTS / page).is_file()
        if "/rows.csv: " in runs:
            data, _, names = runs.partition("/rows.csv: ")
            assert set(names.split()) <= known[data]
        elif runs.startswith("lacking: "):
            assert row["verdict"] == "rows lack"
        elif runs:
            assert (RESULTS / runs.split(":")[0]).is_file()


def test_every_run_that_is_compared_in_the_notes_is_there():
    compared = read_csv(RESULTS / "comparisons.csv")
    known = {
        data: {f"{row['protocol']}/{row['run']}" for row in read_csv(RESULTS / data / "rows.csv")}
        for data in {row["data"] for row in compared}
    }
    for row in compared:
        runs = known[row["data"]]
        for side in ("first", "second"):
            assert any(re.fullmatch(re.escape(row[side]) + r"(_seed\d)?", run) for run in runs)


def test_ours_is_the_mean_difference_over_subjects():
    """VR-Net and VoxelMorph, with nothing but csv and NumPy."""
    means = {}
    for row in read_csv(RESULTS / "acdc" / "rows.csv"):
        if row["protocol"] == "cycles" and row["method"] in ("R-L1-3x2", "VoxelMorph"):
            means.setdefault(row["method"], []).append(float(row["dice_mean"]))
    row = next(row for row in ROWS if row["claim"] == "better than VoxelMorph, Dice")
    assert float(row["ours"]) == pytest.approx(np.mean(means["R-L1-3x2"]) - np.mean(means["VoxelMorph"]), abs=5e-4)
    assert float(row["published"]) == pytest.approx(0.873 - 0.850)
    assert float(row["ci_low"]) < float(row["ours"]) < float(row["ci_high"])


CINES = [
    ("short-axis-cine", "both ways", "short-axis-cine", "direct", "points_mm", ".33 mm [.30, .36]"),
    ("short-axis-cine", "both ways", "short-axis-cine", "direct", "radial", "15.2 points [13.1, 17.2]"),
    ("short-axis-cine", "both ways", "short-axis-cine", "direct", "circumferential", ".11 points [.02, .19]"),
    ("short-axis-cine", "direct", "short-axis-cine", "both ways", "ejection", "-.01 points [-.40, .38]"),
    ("TV-L1", "direct", "TV-L1", "both ways", "circumferential", ".31 points [.28, .33]"),
    ("TV-L1", "composed", "TV-L1", "both ways", "circumferential", ".24 points [.14, .34]"),
    ("TV-L1", "both ways", "short-axis-cine", "both ways", "circumferential", ".17 points [.10, .25]"),
]


@pytest.mark.parametrize(("method", "way", "other", "other_way", "measure", "said"), CINES)
def test_what_the_notes_say_of_cines_is_what_their_rows_say(method, way, other, other_way, measure, said):
    """Of errors on the same phantoms, by bootstrap over seeds: four pathologies of a seed are one."""
    errors = {}
    for row in read_csv(RESULTS / "cine" / "rows.csv"):
        errors.setdefault((row["method"], row["way"]), {})[row["seed"], row["pathology"]] = abs(float(row[measure]))
    ours, theirs = errors[method, way], errors[other, other_way]
    both = [cine for cine in ours if cine in theirs]
    estimate = estimate_mean(np.array([ours[cine] - theirs[cine] for cine in both]), tuple((cine[0],) for cine in both))
    numbers = [float(number) for number in re.findall(r"-?\d*\.\d+", said)]
    found = list(estimate[:3]) if estimate.mean * numbers[0] > 0 else [-estimate.mean, -estimate.high, -estimate.low]
    assert found == pytest.approx(numbers, abs=0.05 if "15.2" in said else 0.005)
    assert said in (RESULTS / "notes" / "cines.md").read_text(encoding="utf-8")


def found(mean, spread=0.001, p=0.001):
    """A comparison of 20 subjects whose difference has this mean and spread."""
    x = mean + spread * np.tile([1.0, -1.0], 10)
    return Found(estimate_mean(x, tuple((str(k),) for k in range(20))), p, 20, "1", [])


@pytest.mark.parametrize(
    ("measure", "parts", "verdict"),
    [
        ("dice_mean", [found(0.02), found(0.01)], "reproduced"),
        ("dice_mean", [found(0.02), found(0.01, p=0.2)], "partly"),
        ("dice_mean", [found(0.05), found(-0.01)], "partly"),
        ("dice_mean", [found(-0.02)], "not reproduced: the reverse"),
        ("dice_mean", [found(0.0)], "not reproduced: equivalent"),
        ("dice_mean", [found(0.0, spread=0.1)], "not reproduced: no difference found"),
        ("hd_mean", [found(-1.0)], "reproduced"),
        ("hd_mean", [found(1.0)], "not reproduced: the reverse"),
    ],
)
def test_better_is_reproduced_only_if_every_rival_is_surpassed(measure, parts, verdict):
    whole = found(np.mean([part.estimate.mean for part in parts]), parts[0].estimate.high - parts[0].estimate.mean)
    whole = parts[0] if len(parts) == 1 else whole
    assert judge(Claim("better", measure, (), (), ""), whole, parts, None) == verdict


def test_on_a_par_needs_equivalence_and_a_value_needs_to_be_reached():
    par, value = Claim("par", "dice_mean", (), (), "", test="equal"), Claim("x", "hd_mean", (), (), "", test="value")
    assert judge(par, found(0.0), [], None) == "reproduced"
    assert judge(par, found(0.0, spread=0.1), [], None) == "not reproduced"
    assert judge(par, found(0.02), [], None) == "not reproduced: they differ"
    assert judge(value, found(5.0), [], 6.0) == "reproduced"
    assert judge(value, found(7.0), [], 6.0) == "not reproduced"


def test_a_claim_has_one_part_per_rival_or_per_pair():
    assert {len(claim.parts) for claim in CLAIMS if claim.others} <= {1, 2, 3, 4, 5, 8}


def test_claims_take_no_other_option():
    with pytest.raises(BadInput, match="--seeds would have no effect on claims"):
        make_claims(Paper(kind="claims", seeds=3, **ASKED))


@pytest.mark.parametrize("page", ["README.md", *(f"results/notes/{name}.md" for name in ("acdc", "vrnet", "volumes"))])
def test_every_interval_of_the_pages_is_one_of_the_files(page):
    """-.001 [-.004, .001]: the mean, where it stands before, and both ends, or the same of the reverse difference."""
    known = {
        tuple(float(row[key]) for key in (kind, f"{kind}_low", f"{kind}_high"))
        for row in read_csv(RESULTS / "comparisons.csv")
        for kind in ("dice", "hd")
    }
    known |= {tuple(float(row[key].split()[0]) for key in ("ours", "ci_low", "ci_high"))
              for row in ROWS if row["ci_low"] != "–"}  # fmt: skip
    known |= {(-mean, -high, -low) for mean, low, high in known}
    text = (RESULTS.parent / page).read_text(encoding="utf-8")
    said = re.findall(r"(?:([+-]?\d?\.\d+)(?: mm| Dice)? )?\[([+-]?\d*\.\d+), ([+-]?\d*\.\d+)\]", text)
    assert said
    for numbers in said:
        near = 0.00051 if len(numbers[1].partition(".")[2]) == 3 else 0.0051
        given = [float(number) if number else np.nan for number in numbers]
        assert any(not (np.abs(np.subtract(one, given)) > near).any() for one in known), numbers
