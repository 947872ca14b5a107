"""Every snippet of the documents that a reader may copy runs as it stands: shell, Python and, as pairs.csv, CSV.

Blocks of text (batch jobs, folders) are not run. Training is cut to two steps of narrow networks.
"""

import csv
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.data.making import heart, write_acdc, write_splits
from vrnet import Grid, Image, cli, write_image
from vrnet.data.dataset import DATASETS
from vrnet.data.phantom import phantom
from vrnet.data.phantoms import Phantoms
from vrnet.methods.learned import learned
from vrnet.training.fit import fit
from vrnet.training.settings import PRESETS

ROOT = Path(__file__).parents[1]
DOCUMENTS = ["README.md", "docs/conventions.md", "docs/training.md"]
SMALL = (32, 32)


def snippets(document):
    """(language, code) of each block."""
    return re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / document).read_text(), flags=re.M | re.S)


def commands(code):
    """The words of each vrnet command of a shell block."""
    lines = (shlex.split(line, comments=True) for line in code.replace("\\\n", " ").splitlines())
    return [words[1:] for words in lines if words and Path(words[0]).name == "vrnet"]


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """In a folder with a reader's files: ed and es, their segmentations, points."""
    patient = phantom(7, (48, 48, 6), 4.0)
    turned = (-0.8, 0.6, 0.0, 0.6, 0.8, 0.0, 0.0, 0.0, 1.0)
    grid = Grid((48, 48, 6), (4.0, 4.0, 14.0), (30.0, -60.0, 200.0), turned)
    names = {"ed": "fixed", "es": "moving", "ed_gt": "fixed_labels", "es_gt": "moving_labels"}
    for name, part in names.items():
        write_image(Image(getattr(patient, part)[0, 0].numpy(), grid), tmp_path / f"{name}.nii.gz")
    write_patients(tmp_path / "ACDC")
    (tmp_path / "ed_points.csv").write_text("x,y,z\n30,-60,200\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("vrnet.training.fit.fit", briefly)
    few = Phantoms(shape=SMALL, spacing=8.0, counts={"train": 2, "val": 1, "test": 1})
    monkeypatch.setitem(DATASETS, "phantom", DATASETS["phantom"]._replace(build=lambda: few))
    return monkeypatch


def briefly(method, train, val, settings, folder, **options):
    """Training, two steps of it, with four channels instead of many."""
    brief = replace(settings, steps=2, batch=1, validate_every=2)
    return fit(replace(method, width=4), train, val, brief, folder, **options)


def write_patients(folder):
    """ACDC, with a patient in each split."""
    names = ["patient001", "patient002", "patient003"]
    for seed, name in enumerate(names):
        write_acdc(folder, name, *heart(seed, slices=3, shown=range(3), size=(64, 64), spacing=3.0))
    write_splits(folder, train=names[:1], val=names[1:2], test=names[2:])


def write_pairs(table):
    """pairs.csv, and small images under the names in it."""
    Path("pairs.csv").write_text(table)
    for seed, row in enumerate(csv.DictReader(table.splitlines())):
        patient = phantom(seed, SMALL, 8.0)
        for part in ("fixed", "moving", "fixed_labels", "moving_labels"):
            if row[part]:
                image = Image(getattr(patient, part)[0, 0].numpy(), Grid.plain(SMALL, (8.0, 8.0)))
                write_image(image, Path(row[part]))


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_snippet_runs(document, reader):
    known = {}
    for language, code in snippets(document):
        for words in commands(code) if language == "sh" else []:
            reader.setattr(sys, "argv", ["vrnet", *words])
            cli.main()
        if language == "python":
            exec(compile(code, document, "exec"), known)
        if language == "csv":
            write_pairs(code)


def test_the_presets_are_those_of_the_document():
    text = (ROOT / "docs" / "training.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) \| (\d+) \| ([\d.e-]+) \| ([\d.e-]+) \|", text, flags=re.M)
    found = {name: [float(value.replace(",", "")) for value in values] for name, *values in rows}
    assert found == {name: [how.steps, how.batch, how.rate, how.alpha] for name, how in PRESETS.items()}


def test_the_names_of_the_document_are_names():
    """As they stand, or after R-L1-3x2."""
    text = (ROOT / "docs" / "training.md").read_text()
    table = text[text.index("## Names") :].split("\n\n")[0]
    names = re.findall(r"`([^`]+)`", "".join(line.split(" | ")[0] for line in table.splitlines()))
    whole = {"U-…": "U-L1-3x2", "C-…": "C-L1-3x2", "…-L2-…": "R-L2-3x2", "-T1": "R-L1-3x2-T1"}
    for name in names:
        assert learned(whole.get(name, name.replace("…", "R-L1-3x2")))
    assert len(names) > 10


def test_the_four_tools_of_the_conventions_agree(reader, capsys):
    """The point that vrnet prints is SimpleITK's; the voxel that nibabel counts is the one that we count."""
    known = {}
    reader.setattr(sys, "argv", ["vrnet", "register", "ed.nii.gz", "es.nii.gz", "--out", "result"])
    cli.main()
    capsys.readouterr()
    images = []
    for language, code in snippets("docs/conventions.md"):
        if language == "python":
            exec(compile(code, "conventions", "exec"), known)
            images.append(known["warped"])
    ours, itk, by_hand = capsys.readouterr().out.strip().split("\n")[-3:]
    numbers = [[float(x) for x in re.findall(r"-?\d+\.\d*(?:e-?\d+)?", text)] for text in (ours, itk, by_hand)]
    np.testing.assert_allclose(numbers[0][3:], numbers[1], atol=1e-3)
    transform, moving = known["vrnet"].Transform.load("result/transform.nii.gz"), known["vrnet"].read_image("es.nii.gz")
    expected = moving.grid.index(transform.points(transform.grid.points(np.array([[10.0, 12.0, 3.0]]))))
    np.testing.assert_allclose(numbers[2][:3], expected[0], atol=1e-2)
    warped = [images[0].array, known["sitk"].GetArrayFromImage(images[1]).T, images[2].numpy()]
    for other in warped[1:]:
        np.testing.assert_allclose(other[6:-6, 6:-6], warped[0][6:-6, 6:-6], atol=2e-3)
