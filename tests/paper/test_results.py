import json
from dataclasses import replace
from itertools import product
from shutil import rmtree

import numpy as np
import pytest
from benchmarks.collect import collect

from tests.paper.fake_results import write_result
from vrnet.errors import BadInput
from vrnet.files import write_json, write_rows
from vrnet.methods.external import Demons
from vrnet.methods.names import parse
from vrnet.methods.parameters import PerDimension
from vrnet.paper.results import Entry, read_runs
from vrnet.training.settings import Training


def test_runs_that_differ_have_folders_of_their_own_whose_names_every_file_system_takes():
    method, plain = parse("VoxelMorph-w2"), Training(alpha=0.1)
    assert Entry(parse("TV-L1(lam=0.15)")).folder_name == "TV-L1(lam=0.15)"
    assert Entry(method, plain).folder_name == "VoxelMorph-w2_alpha0.1_seed0"
    for labelled in (replace(plain, labels_weight=1.0), replace(plain, batch_dice=1.0)):
        assert Entry(method, labelled).folder_name == "VoxelMorph-w2_alpha0.1_seed0_labels"
    methods = [Demons(sigma=PerDimension(*sigmas)) for sigmas in product((1.0, 2.0), repeat=2)]
    names = [Entry(method).folder_name for method in (*methods, parse("R-L2-6x1-Θ1"))]
    assert len(set(names)) == 5
    assert all(name.isascii() and not set(name) & set('<>:"/\\|?*') for name in names)


@pytest.mark.release
def test_an_averaged_method_has_results_of_its_own_and_the_training_of_the_plain_one(study):
    made = study()
    plain, averaged = (made.results.entry(name) for name in ("VoxelMorph", "VoxelMorph+average"))
    assert made.results.run_folder(averaged) == made.results.run_folder(plain)
    made.complete([averaged, plain])
    assert made.results.run(averaged).config["method"] == f"{plain.method}+average"
    assert made.results.run(averaged).config["weights_sha256"] == made.results.run(plain).config["weights_sha256"]
    assert made.results.rows(averaged) != made.results.rows(plain)
    assert [str(made.choose(entry).load()) for entry in (plain, averaged)] == [plain.name, averaged.name]


def test_a_method_has_the_seeds_that_are_measured_and_at_least_as_many_as_asked_for(study):
    made = study()
    assert [entry.training.seed for entry in made.results.seeds("VoxelMorph")] == [0]
    assert [entry.training.seed for entry in made.results.seeds("VoxelMorph", at_least=3)] == [0, 1, 2]
    for seed in (0, 1, 3):
        write_result(made.results, made.results.entry("VoxelMorph", seed=seed), [(0.5, 5.0)])
    assert [entry.training.seed for entry in made.results.seeds("VoxelMorph")] == [0, 1]
    assert [entry.training.seed for entry in made.results.seeds("VoxelMorph", alpha=0.3)] == [0]
    assert [entry.training for entry in made.results.seeds("identity", at_least=3)] == [None]


def test_the_mean_over_seeds_is_taken_subject_by_subject(study):
    made = study()
    entries = made.results.seeds("VoxelMorph", at_least=2)
    write_result(made.results, entries[0], [(0.5, 5.0), (0.6, 8.0)])
    write_result(made.results, entries[1], [(0.7, 6.0), (0.8, "")])
    first, second = made.results.mean_rows(entries)
    assert (first["subject"], second["subject"]) == ("s0", "s1")
    assert (first["dice_mean"], first["hd_mean"], second["dice_mean"]) == pytest.approx((0.6, 5.5, 0.7))
    assert np.isnan(second["hd_mean"])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("metrics.csv", lambda text: text[:-30]),
        ("metrics.csv", lambda text: "\n".join(text.splitlines()[:2]) + "\n"),
        ("config.json", lambda text: text[:20]),
        ("config.json", lambda text: text.replace('"hardware"', '"software"')),
    ],
)
def test_damaged_results_are_refused(name, damage, study):
    made = study()
    entry = made.results.entry("identity")
    write_result(made.results, entry, [(0.5, 5.0), (0.6, 8.0)])
    file = made.results.folder(entry) / name
    file.write_text(damage(file.read_text()))
    with pytest.raises(BadInput, match=r"identity is damaged: remove it, and it is measured again"):
        made.results.rows(entry)


@pytest.mark.parametrize("text", ["step,loss\n4,x\n", "loss\n1\n"])
def test_a_run_that_died_after_its_first_validation_is_not_trained_and_damaged_ones_are_refused(text, study, steps):
    made = study(steps(4))
    entry = made.results.entry("VoxelMorph")
    run = made.results.run_folder(entry)
    run.mkdir(parents=True)
    (run / "weights.safetensors").touch()
    for step, is_trained in ((2, False), (4, True)):
        write_rows([{"step": step, "loss": 0.5}], run / "metrics.csv")
        assert made.results.is_trained(entry) == is_trained
    (run / "metrics.csv").write_text(text)
    with pytest.raises(BadInput, match="is damaged: remove it"):
        made.results.is_trained(entry)


def test_what_is_collected_is_what_the_folders_had(study):
    made = study()
    entries = [*made.results.seeds("VoxelMorph", at_least=2), made.results.entry("identity")]
    for k, entry in enumerate(entries):
        write_result(made.results, entry, [(0.5 + 0.1 * k, 5.0), (1 / 3, "")])
    run = made.results.run_folder(entries[0])
    training = {"method": entries[0].name, "subjects": {"train": ["a"]}, "training": {"alpha": 0.05}}
    write_json(training, run / "config.json")
    write_rows([{"step": 2, "loss": 0.5, "val_dice": 0.75}], run / "metrics.csv")
    rows = [made.results.rows(entry) for entry in entries]
    configs = [made.results.run(entry).config for entry in entries]
    assert collect(made.results.out) == sorted(f"phantom/quick/{entry.folder_name}" for entry in entries)
    for entry in entries:
        rmtree(made.results.folder(entry))
    read_runs.cache_clear()
    assert all(map(made.results.has, entries))
    np.testing.assert_equal([made.results.rows(entry) for entry in entries], rows)
    for entry, config in zip(entries, configs, strict=True):
        assert config.items() <= made.results.run(entry).config.items()
    (line,) = (json.loads(text) for text in (made.results.out / "phantom" / "configs.jsonl").open() if "fit" in text)
    assert line["validations"] == [{"step": 2, "loss": 0.5, "val_dice": 0.75}]
    write_result(made.results, entries[0], [(0.9, 1.0)])  # measured again: it takes the place of the first
    collect(made.results.out)
    rmtree(made.results.folder(entries[0]))
    read_runs.cache_clear()
    assert [row["dice_mean"] for row in made.results.rows(entries[0])] == [0.9]
    assert len(made.results.rows(entries[1])) == 2
