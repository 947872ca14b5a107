import csv
import json
import sys
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from safetensors.torch import load_file

from vrnet.errors import BadInput
from vrnet.evaluation.split import measure_subject
from vrnet.files import RECORD
from vrnet.methods.weights import Trained
from vrnet.paper.budget import BUDGETS
from vrnet.paper.study import Study
from vrnet.provenance import versions
from vrnet.training.fit import fit

NAMES = "identity", "VoxelMorph", "R-L2-6x1-Θ1"


@pytest.fixture
def no_training(monkeypatch):
    """From no_training() on, training is an error."""

    def refuse(*words, **options):
        raise AssertionError("nothing is to be trained")

    return lambda: monkeypatch.setattr("vrnet.training.fit.fit", refuse)


def read_files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("trained_as", "purpose"), [({}, "training"), ({"phantom": "evaluation"}, "evaluation")])
def test_a_budget_says_what_training_subjects_are_prepared_for(study, trained_as, purpose):
    made, asked = study(replace(BUDGETS["quick"], trained_as=trained_as)), []
    split = lambda name, use: asked.append((name, use)) or made.split(name, use)  # noqa: E731
    replace(made, split=split).complete([made.results.entry("VoxelMorph")])
    assert ("train", purpose) in asked


def test_that_there_is_nothing_to_train_on_is_told_before_anything_is_measured(study):
    made = study()

    def split(name, use):
        if name == "train":
            raise BadInput("no split train")
        return made.split(name, use)

    with pytest.raises(BadInput, match="no split train"):
        replace(made, split=split).complete([made.results.entry(name) for name in NAMES])
    assert not read_files(made.results.out)


def test_what_is_measured_is_measured_once(study, no_training):
    made = study()
    entries = [made.results.entry(name) for name in NAMES]
    made.complete(entries)
    before = read_files(made.results.out)
    no_training()
    made.complete(entries)
    made.complete(entries[1:])
    assert read_files(made.results.out) == before


def test_the_folder_of_a_method_says_what_its_numbers_depend_on(study):
    made = study()
    entries = [made.results.entry(name) for name in NAMES]
    made.complete(entries)
    folders = {path.name for path in (made.results.out / "phantom" / "quick").iterdir()}
    assert folders == {"identity", "VoxelMorph-w2_alpha0.05_seed0", "R-L2-6x1-T1-w2_alpha0.05_seed0"}
    config = made.results.config(entries[1])
    assert config["versions"] == versions()
    assert config["training"]["steps"] == BUDGETS["quick"].training["phantom"].steps
    assert config["parameters"] == sum(p.size for p in map(np.asarray, read_weights(made, entries[1]).values()))
    weights = (made.results.folder(entries[1]) / "run" / "weights.safetensors").read_bytes()
    assert config["weights_sha256"] == sha256(weights).hexdigest()
    with (made.results.folder(entries[1]) / "run" / "metrics.csv").open() as file:
        assert config["validation"]["val_dice"] == max(float(row["val_dice"]) for row in csv.DictReader(file))
    assert [row["subject"] for row in made.results.rows(entries[0])] == ["phantom-2000", "phantom-2001", "phantom-2002"]
    assert not list(made.results.out.rglob("checkpoint.safetensors"))


def read_weights(study, entry):
    return load_file(study.results.folder(entry) / "run" / "weights.safetensors")


def test_seeds_are_networks_of_their_own(study):
    made = study()
    entries = made.results.seeds("VoxelMorph", at_least=2)
    made.complete(entries)
    one, other = (read_weights(made, entry) for entry in entries)
    assert any(not np.array_equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("is_measured", [True, False])
def test_what_was_trained_otherwise_is_refused(is_measured, study, steps, no_training):
    before = study()
    entry = before.results.entry("VoxelMorph")
    before.complete([entry]) if is_measured else before.methods([entry])
    after = study(steps(3))
    no_training()
    for way in (after.complete, after.methods):
        with pytest.raises(BadInput, match=r"VoxelMorph-w2_alpha0\.05_seed0 was trained with steps 2, not 3"):
            way([after.results.entry("VoxelMorph")])


def test_a_missing_package_is_told_before_anything_is_trained(study, no_training, monkeypatch):
    made = study()
    no_training()
    monkeypatch.setattr("vrnet.methods.names.is_installed", lambda package: package != "antspyx")
    with pytest.raises(
        BadInput, match=r"SyN\(iterations=\(5,\)\) needs antspyx, which is not installed: .*pip install"
    ):
        made.complete([made.results.entry(name) for name in ("VoxelMorph", "identity", "SyN")])
    assert not made.results.out.exists()
    assert [made.can_run(name) for name in ("SyN", "Demons", "VoxelMorph")] == [False, True, True]


def test_without_lightning_no_subjects_are_prepared_to_train_on(study, monkeypatch):
    made = study()
    monkeypatch.setitem(sys.modules, "lightning.fabric", None)
    monkeypatch.setattr(Study, "_training_splits", lambda self: pytest.fail("what cannot be used is prepared"))
    with pytest.raises(BadInput, match="training needs Lightning"):
        made.complete([made.results.entry("VoxelMorph")])


def test_an_interrupted_call_goes_on_where_it_was_stopped(study, steps, stop_after, monkeypatch):
    made, whole = study(steps(4)), study(steps(4))
    whole = replace(whole, results=replace(whole.results, out=whole.results.out / "whole"))
    entries = [made.results.entry(name) for name in ("VoxelMorph", "2xRC-Net")]
    whole.complete(entries)
    stop_after(3)
    with pytest.raises(KeyboardInterrupt):
        made.complete(entries)
    assert not any(made.results.has(entry) for entry in entries)
    stop_after(99)
    made.complete(entries)
    for entry in entries:
        one, other = read_weights(made, entry), read_weights(whole, entry)
        assert all(np.array_equal(one[key], other[key]) for key in one)
        scores = [[(row["subject"], row["dice_mean"]) for row in each.results.rows(entry)] for each in (made, whole)]
        assert scores[0] == scores[1]


def test_networks_are_trained_on_as_many_subjects_as_are_asked_for(study, monkeypatch):
    trained = []
    monkeypatch.setattr(
        "vrnet.training.fit.fit",
        lambda method, train, *words, **options: trained.append(train.names) or fit(method, train, *words, **options),
    )
    made = study()
    wanted = [("VoxelMorph", None), ("VoxelMorph", 1), ("R-L2-1x1", 1)]
    entries = [made.results.entry(name, subjects=count) for name, count in wanted]
    made.complete(entries)
    train = made.split("train", "training").names
    assert trained == [train, train[:1], train[:1]]
    assert [made.results.config(entry)["training_subjects"] for entry in entries] == [None, 1, 1]
    names = [made.results.folder(entry).name for entry in entries]
    assert names[1] == f"{names[0]}_1subjects"


def test_methods_are_ready_to_register_and_trained_once(study, no_training):
    made = study()
    entries = [made.results.entry(name) for name in ("VoxelMorph", "TV-L1")]
    found = made.methods(entries)
    no_training()
    again = made.methods(entries)
    assert isinstance(found[0], Trained)
    assert str(again[0].card.method) == "VoxelMorph-w2"
    assert found[1] == entries[1].method


def test_a_reader_hears_what_is_there_and_what_came_out(study, reader):
    made = study()
    made.complete([made.results.entry("identity")])
    identity, network = (made.results.entry(name) for name in ("identity", "VoxelMorph"))
    made.complete([identity, network])
    row = np.mean([row["dice_mean"] for row in made.results.rows(made.results.entry("identity"))])
    assert reader.lines[0] == "0 of 1 on phantom are measured already; not yet: identity."
    assert reader.lines[1].startswith(f"identity: Dice {row:.3f}")
    assert reader.lines[2] == f"1 of 2 on phantom are measured already; not yet: {network.folder_name}."
    assert "training on phantom (0 of 1 done): VoxelMorph-w2" in reader.stages


def test_a_reader_hears_why_a_measured_network_is_trained_again(study, reader):
    made = study()
    plain, averaged = (made.results.entry(name) for name in ("VoxelMorph", "VoxelMorph+average"))
    made.complete([plain])
    rows = made.results.rows(plain)
    made.complete([averaged])
    assert not any("trained again" in line for line in reader.lines)
    again = made.results.entry("VoxelMorph+average", seed=1)
    made.complete([made.results.entry("VoxelMorph", seed=1)])
    (made.results.run_folder(again) / "weights.safetensors").unlink()
    reader.lines.clear()
    made.complete([plain, averaged, again])
    assert reader.lines[1] == (
        "Measured, but without the weights (run/weights.safetensors) that are needed now: "
        "VoxelMorph-w2_alpha0.05_seed1. They are trained again; what was measured stays."
    )
    assert made.results.rows(plain) == rows
    (made.results.run_folder(plain) / "weights.safetensors").unlink()
    made.methods([plain])
    assert "trained again" in reader.lines[-1]


def test_networks_trained_without_flips_are_refused_an_average_before_they_are_trained(study, steps, reader):
    made = study(steps(1).changed("unflipped", lambda training: replace(training, augmentation=None)))
    with pytest.raises(BadInput, match="VoxelMorph-w2 was trained without mirrored images"):
        made.complete([made.results.entry("VoxelMorph+average")])
    assert not any(made.results.out.rglob("weights.safetensors"))


def test_a_reader_without_images_hears_what_is_missing(study, reader):
    def refuse(split, purpose):
        raise BadInput("there are no images")

    made = replace(study(), split=refuse)
    with pytest.raises(BadInput, match="no images"):
        made.complete([made.results.entry("VoxelMorph", seed=seed) for seed in range(2)])
    folders = [made.results.entry("VoxelMorph", seed=seed).folder_name for seed in range(2)]
    assert reader.lines == [f"0 of 2 on phantom are measured already; not yet: {', '.join(folders)}."]


def test_what_was_measured_on_others_or_otherwise_is_refused(study):
    made = study()
    entries = [made.results.entry(name) for name in ("identity", "TV-L1")]
    made.complete(entries[:1])
    file = made.results.folder(entries[0]) / "config.json"
    kept = json.loads(file.read_text())
    file.write_text(json.dumps(kept | {"subjects": ["someone"]}))
    with pytest.raises(BadInput, match="was measured on other subjects"):
        made.complete(entries)
    file.write_text(json.dumps(kept | {"settings": {"lam": 1.0}}))
    with pytest.raises(BadInput, match="is of another identity"):
        made.complete(entries)


def test_measuring_that_is_stopped_goes_on_and_leaves_no_records_behind(study, monkeypatch):
    made, found = study(), []
    entry = made.results.entry("identity")

    def measure(sample, *rest):
        found.append(sample.name)
        if len(found) == 2:
            raise KeyboardInterrupt
        return measure_subject(sample, *rest)

    monkeypatch.setattr("vrnet.evaluation.split.measure_subject", measure)
    with pytest.raises(KeyboardInterrupt):
        made.complete([entry])
    assert not made.results.has(entry)
    made.complete([entry])
    names = made.test.names
    assert found == [names[0], names[1], *names[1:]]
    assert {path.name for path in made.results.folder(entry).iterdir()} - {RECORD} == {
        "metrics.csv", "summary.json", "config.json",
    }  # fmt: skip


def test_no_table_is_made_with_subjects_missing(study, monkeypatch):
    made = study()
    entry, name = made.results.entry("identity"), made.test.names[0]

    def measure(sample, *rest):
        if sample.name == name:
            raise BadInput("it is damaged")
        return measure_subject(sample, *rest)

    monkeypatch.setattr("vrnet.evaluation.split.measure_subject", measure)
    with pytest.raises(BadInput, match=rf"identity cannot do some subjects \({name}: it is damaged\)"):
        made.complete([entry])
    assert not made.results.has(entry)
