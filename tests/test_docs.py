"""Every snippet of the documents that a reader may copy runs as it stands."""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.data.test_acdc import made_up
from vrnet import Grid, Image, cli, write_image
from vrnet.data.phantom import phantom

ROOT = Path(__file__).parents[1]
DOCUMENTS = ["README.md", "docs/conventions.md"]


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
    (tmp_path / "ACDC").mkdir()
    made_up(tmp_path / "ACDC")
    (tmp_path / "ed_points.csv").write_text("x,y,z\n30,-60,200\n")
    monkeypatch.chdir(tmp_path)
    return monkeypatch


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
