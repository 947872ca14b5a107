import json

import pytest
import torch
from safetensors import safe_open
from torch import nn
from torch.optim import Adam

from vrnet.devices import channels_last
from vrnet.errors import BadInput
from vrnet.files import write_tensors
from vrnet.training.run import Progress, Run, best_row, load_checkpoint, save_checkpoint

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
        ({"provenance": [3]}, "Expected `object`"),
        ({"training": {"steps": "5\nlines"}}, "it holds .*no line of text"),
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


@pytest.mark.parametrize("text", ["{", "[]", "\xff"])
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


ROWS = [
    {"step": 2, "loss": 0.1, "rate": 1e-3, "val_loss": 1e-7},
    {"step": 4, "loss": 1 / 3, "rate": 5e-4, "val_loss": 0.25, "val_dice": 0.9},
]
STATE = Progress(5, ROWS), torch.tensor(0.7)
STEPS = 6
"""After which the run ends."""


@pytest.fixture
def checkpoint(tmp_path, convolutions):
    """The file of a run that was left after 5 steps."""
    save_checkpoint(tmp_path / "checkpoint.safetensors", *convolutions(), *STATE)
    return tmp_path / "checkpoint.safetensors"


def test_what_is_saved_comes_back_to_the_bit(checkpoint, convolutions):
    model, optimizer = convolutions()
    save_checkpoint(checkpoint, model, optimizer, *STATE)
    torch.manual_seed(1)
    other, its_optimizer = convolutions(steps=0)
    assert load_checkpoint(checkpoint, other, its_optimizer, STEPS) == STATE
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    for number, state in optimizer.state_dict()["state"].items():
        assert all(torch.equal(state[name], its_optimizer.state_dict()["state"][number][name]) for name in state)


def test_a_run_without_a_checkpoint_is_at_its_beginning(tmp_path, convolutions):
    assert load_checkpoint(tmp_path / "none", *convolutions(), STEPS) == (Progress(0, []), torch.zeros(()))
    assert not list(tmp_path.iterdir())


def test_what_is_no_checkpoint_is_named(checkpoint, convolutions):
    torch.save({"step": 3}, checkpoint)
    with pytest.raises(BadInput, match=r"checkpoint\.safetensors is damaged.*another folder"):
        load_checkpoint(checkpoint, *convolutions(), STEPS)


def test_the_optimiser_keeps_its_own_settings(checkpoint, convolutions):
    """Settings such as `foreach` belong to the device, and a run may go on on another."""
    model, _ = convolutions(steps=0)
    optimizer = Adam(model.parameters(), lr=torch.tensor(0.5), foreach=False)
    load_checkpoint(checkpoint, model, optimizer, STEPS)
    (group,) = optimizer.param_groups
    assert group["lr"] == 0.5
    assert group["foreach"] is False


def rewrite(path, said=None, **changes):
    """The same checkpoint with other tensors, or saying another thing, and the right checksum."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        values = json.loads(file.metadata()["run"])
    tensors = {name: tensor for name, tensor in (tensors | changes).items() if tensor is not None}
    write_tensors(tensors, path, {"run": json.dumps(values | (said or {}))})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"step": 7}, "is at step 7 of a run that ends after 6: train again in another folder"),
        ({"step": "5"}, "Expected `int`, got `str`"),
        ({"rows": [{"step": "2"}]}, "Expected `int | float`, got `str`"),
        ({"rows": [ROWS[0] | {"loss": float("nan")}]}, "no finite number"),
    ],
)
def test_what_a_checkpoint_says_must_be_possible(checkpoint, said, words, convolutions):
    rewrite(checkpoint, said)
    with pytest.raises(BadInput, match=words) as error:
        load_checkpoint(checkpoint, *convolutions(), STEPS)
    assert "\n" not in str(error.value)
    assert "checkpoint.safetensors" in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"total": None},
        {"model.0.weight": torch.zeros(2, 1, 3, 4)},
        {"optimizer.0.exp_avg": torch.zeros(1)},
        {"optimizer.9.step": torch.zeros(())},
        {"optimizer.x": torch.zeros(())},
    ],
)
def test_the_tensors_of_a_checkpoint_are_those_of_the_run(checkpoint, changes, convolutions):
    rewrite(checkpoint, **changes)
    model, optimizer = convolutions()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(BadInput, match="holds another model than the run has"):
        load_checkpoint(checkpoint, model, optimizer, STEPS)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_flipped_bit_of_a_checkpoint_is_refused(checkpoint, convolutions):
    whole = checkpoint.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    for place in range(start, len(whole), 101):
        checkpoint.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(BadInput, match="its content is not that of its checksum: train again in another folder"):
            load_checkpoint(checkpoint, *convolutions(), STEPS)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(checkpoint, convolutions, monkeypatch):
    def fill_the_disk(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    before = checkpoint.read_bytes()
    monkeypatch.setattr("safetensors.torch.save_file", fill_the_disk)
    with pytest.raises(BadInput, match="No space left"):
        save_checkpoint(checkpoint, *convolutions(), *STATE)
    assert checkpoint.read_bytes() == before
    assert list(checkpoint.parent.iterdir()) == [checkpoint]


def test_what_the_optimiser_keeps_lies_in_memory_as_its_parameter_does(tmp_path):
    model = channels_last(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3)), 2)
    optimizer = Adam(model.parameters())
    model(torch.rand(1, 3, 8, 8)).sum().backward()
    optimizer.step()
    save_checkpoint(tmp_path / "c.safetensors", model, optimizer, *STATE)
    load_checkpoint(tmp_path / "c.safetensors", model, optimizer, STEPS)
    for parameter, kept in optimizer.state.items():
        assert kept["exp_avg"].stride() == kept["exp_avg_sq"].stride() == parameter.stride()
    assert not model[0].weight.is_contiguous()


def test_a_run_keeps_others_out_while_it_is_locked(tmp_path):
    run = Run(tmp_path / "run")
    with run.lock():
        with pytest.raises(BadInput, match="in use by a training"), Run(tmp_path / "run").lock():
            pass
        assert (run.folder / ".lock").exists()
    assert not list(run.folder.iterdir())
    with pytest.raises(FileNotFoundError, match="elsewhere"), run.lock():
        (tmp_path / "elsewhere").read_text()
