"""`vrnet prepare`; that a run on the file is the run on the folder is tested with `vrnet train`."""


def test_a_pack_holds_the_splits_there_are(vrnet, hearts, tmp_path):
    lines = hearts.read_text().splitlines()
    (hearts.parent / "two.csv").write_text("\n".join(lines[:-1]))
    words = "--data", "manifest", "--root", hearts.parent / "two.csv", "--cache", tmp_path, "--out"
    status, out, err = vrnet("prepare", *words, tmp_path / "two.npz")
    assert status == 0, err
    assert "test: " not in out
    status, _, err = vrnet("evaluate", "identity", "--data", tmp_path / "two.npz", "--out", tmp_path / "out")
    assert status == 2
    assert "holds no split test for evaluation: it holds train (for training), val (for evaluation)" in err
