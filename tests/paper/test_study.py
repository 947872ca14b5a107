import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import load_file

from tests.paper.measured import write
from vrnet.errors import BadInput
from vrnet.methods.trained import Trained
from vrnet.paper.budget import BUDGETS
from vrnet.training.concurrent import fit_concurrently

NAMES = "identity", "VoxelMorph", "R-L2-6x1-Θ1"


@pytest.fixture
def no_training(monkeypatch):
    def refuse(*words, **options):
        raise AssertionError("nothing is to be trained")

    return lambda: monkeypatch.setattr("vrnet.training.concurrent.fit_concurrently", refuse)


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_measured_is_measured_once(study, no_training):
    made = study()
    entries = [made.entry(name) for name in NAMES]
    made.complete(entries)
    before = files(made.out)
    no_training()
    made.complete(entries)
    made.complete(entries[1:])
    assert files(made.out) == before


def test_a_folder_a_method_says_what_its_numbers_depend_on(study):
    made = study()
    entries = [made.entry(name) for name in NAMES]
    made.complete(entries)
    places = {path.name for path in (made.out / "phantom" / "quick").iterdir()}
    assert places == {"identity", "VoxelMorph-w2_alpha0.05_seed0", "R-L2-6x1-T1-w2_alpha0.05_seed0"}
    config = made.config(entries[1])
    assert config["training"]["steps"] == BUDGETS["quick"].training["phantom"].steps
    assert config["parameters"] == sum(p.size for p in map(np.asarray, weights(made, entries[1]).values()))
    with (made.folder(entries[1]) / "run" / "metrics.csv").open() as file:
        assert config["validation"]["val_dice"] == max(float(row["val_dice"]) for row in csv.DictReader(file))
    assert [row["subject"] for row in made.rows(entries[0])] == ["phantom-2000", "phantom-2001", "phantom-2002"]
    assert not list(made.out.rglob("checkpoint.safetensors"))


def weights(study, entry):
    return load_file(study.folder(entry) / "run" / "weights.safetensors")


def test_a_method_is_said_to_have_the_seeds_that_are_there_and_as_many_as_asked_for(study):
    made = study()
    assert [entry.training.seed for entry in made.seeds("VoxelMorph")] == [0]
    assert [entry.training.seed for entry in made.seeds("VoxelMorph", least=3)] == [0, 1, 2]
    for seed in (0, 1, 3):
        write(made, made.entry("VoxelMorph", seed=seed), [(0.5, 5.0)])
    assert [entry.training.seed for entry in made.seeds("VoxelMorph")] == [0, 1]
    assert [entry.training.seed for entry in made.seeds("VoxelMorph", alpha=0.3)] == [0]
    assert [entry.training for entry in made.seeds("identity", least=3)] == [None]


def test_seeds_are_networks_of_their_own(study):
    made = study()
    entries = made.seeds("VoxelMorph", least=2)
    made.complete(entries)
    one, other = (weights(made, entry) for entry in entries)
    assert any(not np.array_equal(one[key], other[key]) for key in one)


def test_the_mean_over_seeds_is_taken_subject_by_subject(study):
    made = study()
    entries = made.seeds("VoxelMorph", least=2)
    write(made, entries[0], [(0.5, 5.0), (0.6, 8.0)])
    write(made, entries[1], [(0.7, 6.0), (0.8, "")])
    first, second = made.mean_rows(entries)
    assert (first["subject"], second["subject"]) == ("s0", "s1")
    assert (first["dice_mean"], first["hd_mean"], second["dice_mean"]) == pytest.approx((0.6, 5.5, 0.7))
    assert np.isnan(second["hd_mean"])


@pytest.mark.parametrize("is_measured", [True, False])
def test_what_was_trained_otherwise_is_refused(is_measured, study, steps, no_training):
    before = study()
    entry = before.entry("VoxelMorph")
    before.complete([entry]) if is_measured else before.methods([entry])
    after = study(steps(3))
    no_training()
    for way in (after.complete, after.methods):
        with pytest.raises(BadInput, match=r"VoxelMorph-w2_alpha0\.05_seed0 was trained with steps 2, not 3"):
            way([after.entry("VoxelMorph")])


def test_a_missing_package_is_told_before_anything_is_trained(study, no_training, monkeypatch):
    made = study()
    no_training()
    monkeypatch.setattr("vrnet.methods.names.is_installed", lambda package: package != "antspyx")
    with pytest.raises(BadInput, match=r"SyN needs antspyx, which is not installed: pip install 'vrnet\[baselines\]'"):
        made.complete([made.entry(name) for name in ("VoxelMorph", "identity", "SyN")])
    assert not made.out.exists()
    assert [made.can_run(name) for name in ("SyN", "Demons", "VoxelMorph")] == [False, True, True]


def test_an_interrupted_call_goes_on_where_it_was_stopped(study, steps, stop_after, monkeypatch):
    made, whole = study(steps(4)), study(steps(4))
    whole = replace(whole, out=whole.out / "whole")
    entries = [made.entry(name) for name in ("VoxelMorph", "2xRC-Net")]
    whole.complete(entries)
    stop_after(3)
    with pytest.raises(KeyboardInterrupt):
        made.complete(entries)
    assert not any(made.has(entry) for entry in entries)
    stop_after(2)  # a round and the question after it: three of four are done
    made.complete(entries)
    for entry in entries:
        one, other = weights(made, entry), weights(whole, entry)
        assert all(np.array_equal(one[key], other[key]) for key in one)
        scores = [[(row["subject"], row["dice_mean"]) for row in some.rows(entry)] for some in (made, whole)]
        assert scores[0] == scores[1]


def test_networks_are_trained_so_many_at_once(study, monkeypatch):
    counts = []
    monkeypatch.setattr(
        "vrnet.training.concurrent.fit_concurrently",
        lambda jobs, *words, **options: counts.append(len(jobs)) or fit_concurrently(jobs, *words, **options),
    )
    made = study(at_once=2)
    made.complete([made.entry(name) for name in ("VoxelMorph", "2xRC-Net", "R-L2-1x1", "VoxelMorph")])
    assert counts == [2, 1]


def test_methods_are_ready_to_register_and_trained_once(study, no_training):
    made = study()
    entries = [made.entry(name) for name in ("VoxelMorph", "TV-L1")]
    found = made.methods(entries)
    no_training()
    again = made.methods(entries)
    assert isinstance(found[0], Trained)
    assert str(again[0].card.method) == "VoxelMorph-w2"
    assert found[1] == entries[1].method


def test_a_reader_hears_what_is_there_and_what_came_out(study, heard):
    made = study()
    made.complete([made.entry("identity")])
    made.complete([made.entry(name) for name in ("identity", "VoxelMorph")])
    row = np.mean([row["dice_mean"] for row in made.rows(made.entry("identity"))])
    assert heard.lines[0] == "0 of 1 on phantom are measured already; now the others."
    assert heard.lines[1].startswith(f"identity: Dice {row:.3f}")
    assert heard.lines[2] == "1 of 2 on phantom are measured already; now the others."
    assert "training on phantom (0 of 1 done): VoxelMorph-w2" in heard.stages


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("metrics.csv", lambda text: text[:-30]),
        ("metrics.csv", lambda text: "\n".join(text.splitlines()[:2]) + "\n"),
        ("metrics.csv", lambda text: ""),
        ("config.json", lambda text: text[:20]),
        ("config.json", lambda text: "{}"),
    ],
)
def test_what_is_damaged_is_told(name, damage, study):
    made = study()
    entry = made.entry("identity")
    made.complete([entry])
    file = made.folder(entry) / name
    file.write_text(damage(file.read_text()))
    with pytest.raises(BadInput, match=r"identity is damaged: remove it, and it is measured again"):
        made.rows(entry)


def test_what_was_measured_on_others_or_otherwise_is_refused(study):
    made = study()
    entries = [made.entry(name) for name in ("identity", "TV-L1")]
    made.complete(entries[:1])
    file = made.folder(entries[0]) / "config.json"
    kept = json.loads(file.read_text())
    file.write_text(json.dumps(kept | {"subjects": ["someone"]}))
    with pytest.raises(BadInput, match="was measured on other subjects"):
        made.complete(entries)
    file.write_text(json.dumps(kept | {"settings": {"lam": 1.0}}))
    with pytest.raises(BadInput, match="is of another identity"):
        made.complete(entries)


def test_a_run_that_died_after_its_first_validation_is_not_taken_for_trained(study, steps):
    made = study(steps(4))
    entry = made.entry("VoxelMorph")
    made.complete([entry])
    run = made.folder(entry) / "run"
    (made.folder(entry) / "config.json").unlink()
    table = (run / "metrics.csv").read_text().splitlines()
    (run / "metrics.csv").write_text("\n".join([table[0], table[1].replace("4,", "2,", 1)]) + "\n")
    assert not made._is_trained(entry)
