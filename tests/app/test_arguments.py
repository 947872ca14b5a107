"""No option is ignored in silence: where it has no effect, the command says so, and does nothing."""

import pytest

PAIR = "evaluate", "identity", "--fixed", "fixed.nii.gz", "--moving", "moving.nii.gz"
OF_FILE = "evaluate", "true.nii.gz", *PAIR[2:]
DATA = "evaluate", "identity", "--data", "phantom", "--out", "out"
SCAN = "cohort", "--scan", ".", "--out", "out"
LIST = "cohort", "pairs.csv", "--out", "out"
RUNTIME = "paper", "table", "runtime", "--out", "out"
IGNORED = {
    "jobs of a pair": ((*PAIR, "--jobs", "2"), "--jobs would have no effect on a pair"),
    "folds of a transform": ((*OF_FILE, "--folds", "repair"), "--folds would have no effect on true.nii.gz"),
    "masks of a data set": ((*DATA, "--moving-mask", "x.nii.gz"), "--moving-mask would have no effect on a data set"),
    "what is recorded of a method": ((*PAIR, "--ignore-recorded"), "would have no effect on identity, of which"),
    "a method where a folder is listed": ((*SCAN, "--method", "TV-L1", "--set", "lam=1"), "--method, --set would"),
    "names of labels that no subject has": ((*LIST, "--label-names", "1=RV,2=Myo"), "pairs.csv names no labels"),
    "names of labels of a cine without": (
        ("track", "cine.nii.gz", "--out", "out", "--label-names", "acdc"),
        "--labels",
    ),
    "a folder beside phantoms": (("paper", "table", "acdc", "--quick", "--root", "x"), "--root would have no effect"),
    "some rows of a figure": (
        ("paper", "figure", "alpha", "--measured-only"),
        "--measured-only would have no effect on a figure",
    ),
    "data of the runtime": ((*RUNTIME, "--data", "acdc", "--jobs", "2"), "--data, --jobs would"),
}


@pytest.mark.parametrize("case", IGNORED)
def test_an_option_without_effect_is_refused_in_one_line(case, vrnet, files, tmp_path, monkeypatch):
    words, said = IGNORED[case]
    for file in files.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "pairs.csv").write_text("subject,fixed,moving\na,fixed.nii.gz,moving.nii.gz\n")
    monkeypatch.chdir(tmp_path)
    status, out, err = vrnet(*words)
    (line,) = [line for line in err.splitlines() if line.startswith("vrnet: ")]
    assert (status, out) == (2, "")
    assert said in line
    assert not (tmp_path / "out").exists()
