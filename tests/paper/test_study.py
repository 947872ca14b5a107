import csv
import json
import sys
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.torch import load_file

from tests.paper.conftest import Reader, make_study
from tests.paper.fake_results import write_result
from vrnet.errors import BadInput
from vrnet.evaluation.split import measure_subject
from vrnet.files import RECORD, read_rows
from vrnet.paper.results import Results, Study, best_alphas, choose_alphas
from vrnet.paper.specs import BUDGETS, TABLES
from vrnet.paper.tables import build_table
from vrnet.provenance import versions
from vrnet.training.fit import fit

NAMES = "identity", "VoxelMorph", "R-L2-6x1-Θ1"


@pytest.fixture
def no_training(monkeypatch):
    """From no_training() on, training is an error."""

    def refuse(*words, **options):
        raise AssertionError("nothing is to be trained")

    return lambda: monkeypatch.setattr("vrnet.training.fit.fit", refuse)


@pytest.fixture(scope="module")
def done(tmp_path_factory, cache):
    """A study, the entries of NAMES that were measured in it, and what a reader heard; tests leave its files alone."""
    reader = Reader()
    made = make_study(tmp_path_factory.mktemp("done"), cache, reader)
    entries = [made.results.entry(name) for name in NAMES]
    made.complete(entries[:1])
    made.complete(entries)
    return SimpleNamespace(study=made, entries=entries, reader=reader)


def read_files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def read_weights(study, entry):
    return load_file(study.results.run_folder(entry) / "weights.safetensors")


def test_a_budget_says_what_training_subjects_are_prepared_for(study):
    made, asked = study(replace(BUDGETS["quick"], trained_as={"phantom": "evaluation"})), []
    split = lambda name, use: asked.append((name, use)) or made.split(name, use)  # noqa: E731
    replace(made, split=split).complete([made.results.entry("VoxelMorph")])
    assert ("train", "evaluation") in asked


def test_that_there_is_nothing_to_train_on_is_told_before_anything_is_measured(study, reader):
    made = study()

    def split(name, use):
        if name == "train":
            raise BadInput("no split train")
        return made.split(name, use)

    with pytest.raises(BadInput, match="no split train"):
        replace(made, split=split).complete([made.results.entry(name) for name in NAMES])
    assert not read_files(made.results.out)
    assert reader.lines[0].startswith("0 of 3 on phantom are measured already; not yet: identity, VoxelMorph-w2_alpha")


def test_what_is_measured_is_measured_once(done, no_training):
    before = read_files(done.study.results.out)
    no_training()
    done.study.complete(done.entries)
    done.study.complete(done.entries[1:])
    assert read_files(done.study.results.out) == before


def test_the_folder_of_a_method_says_what_its_numbers_depend_on(done):
    results, entry = done.study.results, done.entries[1]
    folders = {path.name for path in (results.out / "phantom" / "quick").iterdir()}
    assert folders == {"identity", "VoxelMorph-w2_alpha0.05_seed0", "R-L2-6x1-T1-w2_alpha0.05_seed0"}
    config = results.run(entry).config
    assert config["versions"] == versions()
    assert config["training"]["steps"] == BUDGETS["quick"].training["phantom"].steps
    assert config["parameters"] == sum(p.size for p in map(np.asarray, read_weights(done.study, entry).values()))
    weights = (results.run_folder(entry) / "weights.safetensors").read_bytes()
    assert config["weights_sha256"] == sha256(weights).hexdigest()
    with (results.run_folder(entry) / "metrics.csv").open() as file:
        assert config["validation"]["val_dice"] == max(float(row["val_dice"]) for row in csv.DictReader(file))
    assert [row["subject"] for row in results.rows(entry)] == ["phantom-2000", "phantom-2001", "phantom-2002"]
    assert not list(results.out.rglob("checkpoint.safetensors"))


def test_a_reader_hears_what_is_there_and_what_came_out(done):
    row = np.mean([row["dice_mean"] for row in done.study.results.rows(done.entries[0])])
    first, second, third, *_ = (line for line in done.reader.lines if "phantom-" not in line)
    assert first == "0 of 1 on phantom are measured already; not yet: identity."
    assert second.startswith(f"identity: Dice {row:.3f}")
    assert third.startswith(f"1 of 3 on phantom are measured already; not yet: {done.entries[1].folder_name}, ")
    assert "training on phantom (0 of 2 done): VoxelMorph-w2" in done.reader.stages


def test_what_was_trained_otherwise_is_refused(done, steps, no_training):
    no_training()
    after = replace(done.study, results=replace(done.study.results, budget=steps(3)))
    for way in (after.complete, lambda entries: list(after.train(entries))):
        with pytest.raises(BadInput, match=r"VoxelMorph-w2_alpha0\.05_seed0 was trained with steps 2, not 3"):
            way([after.results.entry("VoxelMorph")])


def test_a_missing_package_is_told_before_anything_is_trained(study, no_training, monkeypatch):
    made = study()
    no_training()
    monkeypatch.setattr("vrnet.methods.names.is_installed", lambda package: package != "antspyx")
    with pytest.raises(BadInput, match=r"SyN\(iterations=\(5,\)\) needs antspyx, which is not installed: .*pip"):
        made.complete([made.results.entry(name) for name in ("VoxelMorph", "identity", "SyN")])
    assert not made.results.out.exists()


def test_without_lightning_no_subjects_are_prepared_to_train_on(study, monkeypatch):
    made = study()
    monkeypatch.setitem(sys.modules, "lightning.fabric", None)
    monkeypatch.setattr(Study, "training_splits", property(lambda self: pytest.fail("subjects are prepared")))
    with pytest.raises(BadInput, match="training needs Lightning"):
        made.complete([made.results.entry("VoxelMorph")])


@pytest.mark.release
def test_an_interrupted_call_goes_on_where_it_was_stopped(study, steps, stop_after):
    made, whole = study(steps(4)), study(steps(4))
    whole = replace(whole, results=replace(whole.results, out=whole.results.out / "whole"))
    entry = made.results.entry("VoxelMorph")
    whole.complete([entry])
    stop_after(3)
    with pytest.raises(KeyboardInterrupt):
        made.complete([entry])
    assert not made.results.has(entry)
    stop_after(99)
    made.complete([entry])
    one, other = read_weights(made, entry), read_weights(whole, entry)
    assert all(np.array_equal(one[key], other[key]) for key in one)
    scores = [[(row["subject"], row["dice_mean"]) for row in each.results.rows(entry)] for each in (made, whole)]
    assert scores[0] == scores[1]


@pytest.mark.release
def test_networks_are_trained_with_other_seeds_and_on_as_many_subjects_as_are_asked_for(study, monkeypatch):
    trained, made = [], study()
    monkeypatch.setattr(
        "vrnet.training.fit.fit",
        lambda method, train, *words, **options: trained.append(train.names) or fit(method, train, *words, **options),
    )
    wanted = ({}, {"subjects": 1}, {"seed": 1})
    entries = [made.results.entry("VoxelMorph", **options) for options in wanted]
    made.complete(entries)
    train = made.split("train", "training").names
    assert trained == [train, train[:1], train]
    assert [made.results.run(entry).config["training_subjects"] for entry in entries] == [None, 1, None]
    assert made.results.folder(entries[1]).name == f"{made.results.folder(entries[0]).name}_1subjects"
    one, other = (read_weights(made, entry) for entry in entries[::2])
    assert any(not np.array_equal(one[key], other[key]) for key in one)


def test_a_measured_network_whose_weights_are_needed_is_trained_again(study):
    made = study()
    plain, averaged = (made.results.entry(name) for name in ("VoxelMorph", "VoxelMorph+average"))
    made.complete([plain])
    rows = made.results.rows(plain)
    (made.results.run_folder(plain) / "weights.safetensors").unlink()
    made.complete([plain, averaged])
    assert (made.results.run_folder(plain) / "weights.safetensors").exists()
    assert made.results.rows(plain) == rows


def test_networks_trained_without_flips_are_refused_an_average_before_they_are_trained(study, steps):
    made = study(steps(1).changed("unflipped", lambda training: replace(training, augmentation=None)))
    with pytest.raises(BadInput, match="VoxelMorph-w2 was trained without mirrored images"):
        made.complete([made.results.entry("VoxelMorph+average")])
    assert not any(made.results.out.rglob("weights.safetensors"))


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
    left = {path.name for path in made.results.folder(entry).iterdir()} - {RECORD}
    assert left == {"metrics.csv", "summary.json", "config.json"}


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


# α, chosen by what networks of known scores came to.

TRIED = 0.02, 0.1, 0.4
DICE = {"R-L2-6x1": (0.6, 0.8, 0.7), "R-L2-6x1-noise": (0.9, 0.8, 0.7), "R-L2-6x1-zeros": (0.5, 0.6, 0.7)}
BEST = {"R-L2-6x1": 0.1, "R-L2-6x1-noise": 0.02, "R-L2-6x1-zeros": 0.4}


@pytest.fixture
def scored(study, monkeypatch):
    """A study whose networks need no training to have the scores of DICE on validation."""
    made = study()
    known = {
        made.results.entry(name, alpha=alpha).folder_name: dice
        for name, scores in DICE.items()
        for alpha, dice in zip(TRIED, scores, strict=True)
    }
    monkeypatch.setattr(Results, "is_trained", lambda self, entry: True)
    monkeypatch.setattr(
        Results, "validations", lambda self, entry: [{"val_dice": known[entry.folder_name], "val_loss": 0.1}]
    )
    return made


def write_chosen(results, scores=((0.7, 9.0), (0.8, 8.0))):
    """Results of each method with its best α, as if measured."""
    for name, alpha in BEST.items():
        write_result(results, results.entry(name, alpha=alpha), scores)


def kept(study):
    return read_rows(study.results.out / study.data / "alphas.csv", "scores")


def test_each_method_has_the_alpha_of_highest_dice_on_validation_and_is_trained_once(scored, reader, monkeypatch):
    split = lambda name, purpose: scored.split(name, purpose) if name != "test" else pytest.fail("test")  # noqa: E731
    assert choose_alphas(replace(scored, split=split), list(DICE), TRIED) == BEST
    assert len(reader.lines) == 1
    assert scored.results.entry("R-L2-6x1-zeros", alpha=0.4).folder_name in reader.lines[0]
    assert len(kept(scored)) == 9
    assert {row["alpha"] for row in kept(scored)} == {"0.02", "0.1", "0.4"}
    monkeypatch.setattr(Results, "is_trained", None)
    assert choose_alphas(scored, list(DICE), TRIED) == BEST
    assert best_alphas(scored.results) == {str(scored.results.entry(name).method): best for name, best in BEST.items()}


def test_of_equal_scores_the_smallest_alpha_is_taken_in_a_table_and_in_a_figure(scored, monkeypatch):
    monkeypatch.setattr(Results, "validations", lambda self, entry: [{"val_dice": 0.5, "val_loss": 0.1}])
    assert choose_alphas(scored, ["R-L2-6x1"], TRIED[::-1]) == {"R-L2-6x1": TRIED[0]}
    assert list(best_alphas(scored.results).values()) == [TRIED[0]]


@pytest.mark.parametrize("text", ["protocol,entry,method,alpha\nquick,a,b,0.1\n", "alpha,val_dice\n0.1,x\n"])
def test_damaged_scores_are_told(scored, text):
    file = scored.results.out / scored.data / "alphas.csv"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(BadInput, match=r"alphas\.csv is damaged: restore it, or remove it"):
        best_alphas(scored.results)


def test_an_averaged_network_has_the_alpha_of_the_plain_one(scored):
    assert choose_alphas(scored, ["R-L2-6x1+average"], TRIED) == {"R-L2-6x1+average": BEST["R-L2-6x1"]}


def test_a_budget_may_take_the_alphas_that_another_one_chose(scored):
    short = scored.results.budget
    longer = replace(
        scored.results, budget=short.changed("longer", lambda training: replace(training, steps=9), alphas_of=short)
    )
    write_chosen(longer)
    table = build_table("initialisation", replace(scored, results=longer), alphas=TRIED)
    assert f'on the validation subjects with the budget "{short.name}", from 0.02' in table.notes[-1]
    assert {row["protocol"] for row in kept(scored)} == {short.name}
    assert best_alphas(longer) == best_alphas(scored.results) != {}
    assert build_table("initialisation", replace(scored, results=longer)).notes == table.notes


def test_a_table_is_made_of_the_chosen_and_says_which_and_who_has_an_alpha_of_its_own(scored, monkeypatch):
    monkeypatch.setitem(TABLES, "initialisation", replace(TABLES["initialisation"], methods=(*BEST, "Siamese")))
    write_chosen(scored.results)
    write_result(scored.results, scored.results.entry("Siamese"), [(0.7, 9.0), (0.8, 8.0)])
    assert build_table("initialisation", scored, alphas=TRIED).notes[-2:] == [
        "α was chosen for each method on the validation subjects, from 0.02, 0.1, 0.4: "
        "0.02 for R-L2-6x1-noise; 0.1 for R-L2-6x1; 0.4 for R-L2-6x1-zeros.",
        "Siamese has an α of its own, 0.02.",
    ]


def test_a_table_that_is_made_again_without_alphas_is_the_one_with_them(scored, reader):
    """Also where another α was tried of one of its methods, and that of the budget is measured, of one seed."""
    write_result(scored.results, scored.results.entry("R-L2-6x1"), [(0.9, 1.0), (0.9, 1.0)])
    for name, alpha in BEST.items():
        for seed in range(3):
            write_result(scored.results, scored.results.entry(name, alpha=alpha, seed=seed), [(0.7, 9.0), (0.8, 8.0)])
    asked = build_table("initialisation", scored, seeds=3, alphas=TRIED)
    entry = scored.results.entry("R-L2-6x1", alpha=0.7)
    with (scored.results.out / scored.data / "alphas.csv").open("a") as file:
        file.write(f"quick,{entry.folder_name},{entry.method},0.7,1.0\n")
    reader.lines.clear()
    assert build_table("initialisation", scored) == asked
    assert build_table("initialisation", scored, measured_only=True) == asked
    assert reader.lines == []
    assert "3 seeds" in asked.notes[1]


@pytest.mark.parametrize("kept", [{"R-L2-6x1": TRIED, "R-L2-6x1-noise": TRIED}, dict.fromkeys(DICE, (0.4,))])
def test_without_two_alphas_that_all_were_trained_with_a_table_has_that_of_its_budget(scored, kept):
    for name, tried in kept.items():
        choose_alphas(scored, [name], tried)
    for name in DICE:
        write_result(scored.results, scored.results.entry(name), [(0.7, 9.0), (0.8, 8.0)])
    notes = build_table("initialisation", scored).notes
    assert "α 0.05, width" in notes[1]
    assert "was chosen" not in notes[-1]


def test_without_labels_no_alpha_can_be_chosen(scored, monkeypatch):
    monkeypatch.setattr(Results, "validations", lambda self, entry: [{"val_loss": 0.1}])
    with pytest.raises(BadInput, match="have no labels"):
        choose_alphas(scored, list(DICE), TRIED)
