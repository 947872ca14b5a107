import pytest
import SimpleITK as sitk

from tests.app.outputs import file_names, read_json
from vrnet import Transform

LABELS = "fixed_labels", "moving_labels"


@pytest.fixture
def report(vrnet, files, tmp_path):
    """report("true.nii.gz", "page.html") gives (status, stdout, stderr); files are those of the folder `files`."""

    def run(transform, out, *words):
        labels = [word for name in LABELS for word in (f"--{name.replace('_', '-')}", files / f"{name}.nii.gz")]
        pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz", *labels
        return vrnet("report", files / transform, *pair, "--out", tmp_path / out, *words)

    return run


def test_a_report_has_the_metrics_and_the_page_of_the_transform(report, vrnet, files, tmp_path):
    """Those that `vrnet evaluate` measures."""
    status, out, err = report("true.nii.gz", "pages", "--label-names", "acdc")
    assert (status, err.count("vrnet:")) == (0, 0)
    assert file_names(tmp_path / "pages") == {"report.html", "overview.png", "metrics.json"}
    ours = read_json(tmp_path / "pages" / "metrics.json")
    pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz"
    labels = "--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz"
    assert vrnet("evaluate", files / "true.nii.gz", *pair, *labels, "--out", tmp_path / "m.json")[0] == 0
    theirs = read_json(tmp_path / "m.json")
    for key in ("dice", "similarity", "folding_strict_percent", "verdict"):
        assert ours[key] == theirs[key]
    page = (tmp_path / "pages" / "report.html").read_text()
    assert "true.nii.gz" in page
    assert "Myo" in page
    assert "Verdict: good" in out


def test_a_chain_by_other_tools_is_one_transform(report, files, tmp_path):
    """An ITK field, then a shift in a .tfm file: as SimpleITK composes them."""
    Transform.load(files / "true.nii.gz").save(tmp_path / "field.h5")
    sitk.WriteTransform(sitk.TranslationTransform(2, (40.0, 0.0)), str(tmp_path / "far.tfm"))
    sitk.WriteTransform(sitk.TranslationTransform(2, (-40.0, 0.0)), str(tmp_path / "back.tfm"))
    words = "--then", tmp_path / "far.tfm", "--then", tmp_path / "back.tfm"
    assert report(tmp_path / "field.h5", "chain", *words)[0] == 0
    assert report("true.nii.gz", "plain")[0] == 0
    chain, plain = (read_json(tmp_path / name / "metrics.json") for name in ("chain", "plain"))
    assert chain["method"] == "field.h5, then far.tfm, then back.tfm"
    assert chain["dice"]["after"] == pytest.approx(plain["dice"]["after"], abs=1e-3)


def test_a_page_comes_alone_and_a_failed_transform_ends_with_3(report, tmp_path):
    sitk.WriteTransform(sitk.TranslationTransform(2, (60.0, 60.0)), str(tmp_path / "away.tfm"))
    status, out, _ = report(tmp_path / "away.tfm", "bad<b>.html")
    assert status == 3
    assert "Verdict: failed" in out
    assert "lam" not in out  # which nobody can set of a transform
    assert file_names(tmp_path) == {"away.tfm", "bad<b>.html"}


@pytest.mark.parametrize(
    ("transform", "out", "words", "message"),
    [
        ("absent.h5", "page.html", (), "there is no"),
        ("fixed.nii.gz", "page.html", (), "is not a transform"),
        ("true.nii.gz", "page.html", ("--then", "absent.mat"), "there is no"),
    ],
)
def test_what_cannot_be_reported_is_told_in_one_line(report, tmp_path, transform, out, words, message):
    status, _, err = report(transform, out, *words)
    assert status == 2
    assert message in err
    assert err.strip().count("\n") == 0
    assert file_names(tmp_path) == set()


def test_the_files_of_a_registration_are_not_replaced(report, register):
    folder, _ = register()
    before = (folder / "metrics.json").read_bytes()
    status, _, err = report("true.nii.gz", folder)
    assert status == 2
    assert "holds a registration" in err
    assert (folder / "metrics.json").read_bytes() == before
