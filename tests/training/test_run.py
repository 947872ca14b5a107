import json

import pytest

from vrnet.errors import BadInput
from vrnet.training.run import Run, best_row

CONFIG = {
    "method": "R-L1-1x1",
    "dimension": 2,
    "data": "phantom",
    "subjects": {"train": ["a", "b"], "val": ["c"]},
    "training": {"steps": 5, "rates": (1.0, 2.0)},
}
HERE = {"vrnet": "1.0", "commit": None, "torch": "2.6", "device": "a CPU"}
THERE = {"vrnet": "1.1", "commit": "abc", "torch": "2.7", "device": "a GPU"}


@pytest.fixture
def run(tmp_path):
    """The folder of a run that was begun."""
    found = Run(tmp_path / "deep" / "run")
    found.begin(CONFIG, HERE)
    return found


def test_a_run_that_has_not_begun_writes_nothing_when_it_is_checked(tmp_path):
    run = Run(tmp_path / "run")
    run.check(resume=True)
    run.check_same(CONFIG)
    assert not list(tmp_path.iterdir())


def test_a_run_is_gone_on_with_only_if_asked_and_only_as_it_was_begun(run):
    with pytest.raises(BadInput, match="holds a run: add `resume`"):
        run.check(resume=False)
    run.check(resume=True)
    run.check_same(CONFIG)
    with pytest.raises(BadInput, match=r"begun with steps .*, not 6"):
        run.check_same(CONFIG | {"training": {"steps": 6}})
    run.begin(CONFIG | {"method": "another"}, HERE)
    assert json.loads((run.folder / "config.json").read_text())["method"] == CONFIG["method"]


def test_a_setting_that_is_newer_than_the_run_has_its_default(run):
    run.check_same(CONFIG | {"training": {"steps": 5, "new": None}})
    with pytest.raises(BadInput, match="begun with new None, not L2"):
        run.check_same(CONFIG | {"training": {"steps": 5, "new": "L2"}})


def test_all_that_made_a_run_is_recorded_and_may_change_when_it_goes_on(run):
    assert run.config()["provenance"] == [HERE]
    for made_by in (HERE, THERE, HERE):
        run.check_same(CONFIG)
        run.begin(CONFIG, made_by)
    assert run.config()["provenance"] == [HERE, THERE]


def test_part_of_a_run_is_not_taken_for_a_new_one(run):
    (run.folder / "weights.safetensors").touch()
    (run.folder / "config.json").unlink()
    with pytest.raises(BadInput, match="holds a run"):
        run.check(resume=False)
    with pytest.raises(BadInput, match=r"cannot read .*config\.json"):
        run.check_same(CONFIG)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"provenance": 3}, "provenance is 3 and should be"),
        ({"provenance": [3]}, "provenance is .* and should be"),
        ({"training": []}, "training is .* and should be"),
        ({"training": {"steps": "5\nlines"}}, "training is .* and should be"),
        ({"method": None}, "method is None and should be a word"),
        ({"more": 1}, "the key 'more' is not known"),
    ],
)
def test_a_config_of_another_form_is_refused_by_its_key(run, change, words):
    path = run.folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    for use in (lambda: run.check_same(CONFIG), lambda: run.begin(CONFIG, THERE)):
        with pytest.raises(BadInput, match=f"config.json is not as vrnet writes it, {words}") as raised:
            use()
        assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000, '{"method": 1e999}', "\xff"])
def test_what_is_no_config_is_refused(run, text):
    (run.folder / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(BadInput, match=r"config\.json"):
        run.check_same(CONFIG)


def test_a_folder_that_cannot_be_written_in_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(BadInput, match="choose another folder"):
            Run(folder).check(resume=False)
    (tmp_path / "run" / "weights.safetensors").mkdir(parents=True)
    with pytest.raises(BadInput, match=r"weights\.safetensors is a folder"):
        Run(tmp_path / "run").check(resume=False)


def test_the_best_row_has_the_highest_dice_and_of_equals_the_lowest_loss():
    rows = [
        {"step": k, "val_loss": loss, "val_dice": dice} for k, loss, dice in ((1, 1, 0.5), (2, 3, 0.7), (3, 2, 0.7))
    ]
    assert best_row(rows)["step"] == 3
    assert best_row([{"step": 1, "val_loss": 2.0}, {"step": 2, "val_loss": 1.0}])["step"] == 2
    assert best_row([]) == {}
