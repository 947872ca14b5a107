from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from tests.training.conftest import EVERYTHING
from vrnet.errors import BadInput
from vrnet.methods.names import parse_trainable
from vrnet.training.concurrent import fit_concurrently
from vrnet.training.fit import Trainer, TrainingJob, fit
from vrnet.training.settings import Augmentation, Training

QUICK = Training(steps=4, batch=2, rate=1e-3, validate_every=2, augmentation=Augmentation())
NAMES = "VoxelMorph-w2", "R-L2-1x1-noise-w2"
FILES = "checkpoint.safetensors", "weights.safetensors"


@pytest.fixture
def split(hearts):
    return hearts(2, [0, 1, 2]), hearts(2, [5])


def jobs(folder, *seeds, names=NAMES):
    return [
        TrainingJob(parse_trainable(name), replace(QUICK, seed=seed), folder / f"{name}_{seed}")
        for name in names
        for seed in seeds
    ]


def are_alike(a, b):
    """Whether two runs are equal to the bit, weights and measurements."""
    parts = [(load_file(a / name), load_file(b / name)) for name in FILES]
    equal = all(one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one) for one, other in parts)
    return equal and (a / "metrics.csv").read_text() == (b / "metrics.csv").read_text()


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_runs_trained_together_are_those_trained_alone(seeds, split, tmp_path):
    found = fit_concurrently(jobs(tmp_path / "together", *seeds), *split, device="cpu")
    for job, result in zip(jobs(tmp_path / "alone", *seeds), found, strict=True):
        assert fit(job.method, *split, job.settings, job.folder, device="cpu") == result
        assert result.is_finished
        assert are_alike(job.folder, tmp_path / "together" / job.folder.name)


def test_pairs_are_drawn_once_for_a_seed_and_apart_for_others(split, tmp_path, monkeypatch):
    drawn, draw = [], Trainer.draw
    monkeypatch.setattr(
        Trainer, "draw", lambda self, number: drawn.append((self.settings.seed, number)) or draw(self, number)
    )
    fit_concurrently(jobs(tmp_path, 0, 1), *split, device="cpu")
    assert sorted(drawn) == [(seed, step) for seed in (0, 1) for step in range(QUICK.steps)]


def test_runs_that_differ_in_what_they_see_draw_apart(split, tmp_path, monkeypatch):
    seen, update = {}, Trainer.update
    monkeypatch.setattr(
        Trainer, "update", lambda self, number, *I: seen.setdefault(self, []).append(I[0]) or update(self, number, *I)
    )
    plain, bare = jobs(tmp_path, 0, names=NAMES[:1])[0], replace(QUICK, augmentation=None)
    fit_concurrently([plain, TrainingJob(plain.method, bare, tmp_path / "bare")], *split, device="cpu")
    augmented, bare_images = (torch.cat(images) for images in seen.values())
    assert not torch.equal(augmented, bare_images)
    assert all(
        any(torch.equal(image, fixed[0]) for fixed in (s.fixed for s in split[0].samples)) for image in bare_images
    )


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_runs_that_were_stopped_go_on_as_if_they_had_not_been(rounds, split, tmp_path, stop_after):
    fit_concurrently(jobs(tmp_path / "whole", 0), *split, device="cpu")
    stop_after(rounds)
    with pytest.raises(KeyboardInterrupt):
        fit_concurrently(jobs(tmp_path / "parts", 0), *split, device="cpu")
    stop_after(QUICK.steps - rounds + 1)  # more would be too many: some are done
    rest = fit_concurrently(jobs(tmp_path / "parts", 0), *split, device="cpu")
    assert all(one.is_finished for one in rest)
    for job in jobs(tmp_path / "parts", 0):
        assert are_alike(job.folder, tmp_path / "whole" / job.folder.name)


def test_a_run_that_joins_others_on_their_way_draws_its_own_steps(split, tmp_path, stop_after):
    early, late = jobs(tmp_path / "mixed", 0)
    fit_concurrently(jobs(tmp_path / "whole", 0), *split, device="cpu")
    stop_after(3)
    with pytest.raises(KeyboardInterrupt):
        fit_concurrently([early], *split, device="cpu")
    stop_after(QUICK.steps + 1)
    fit_concurrently([early, late], *split, device="cpu")
    for job in (early, late):
        assert are_alike(job.folder, tmp_path / "whole" / job.folder.name)


def test_a_run_begun_otherwise_is_refused(split, tmp_path, stop_after):
    job = jobs(tmp_path, 0, names=NAMES[:1])[0]
    stop_after(1)
    with pytest.raises(KeyboardInterrupt):
        fit_concurrently([job], *split, device="cpu")
    with pytest.raises(BadInput, match=r"begun with alpha 0\.05, not 0\.2"):
        fit_concurrently([replace(job, settings=replace(QUICK, alpha=0.2))], *split, device="cpu")


def test_who_watches_hears_which_part_of_all_steps_is_done(split, tmp_path, monkeypatch):
    monkeypatch.setattr("vrnet.training.concurrent.REPORT_EVERY_SECONDS", -1.0)
    heard = []
    fit_concurrently(jobs(tmp_path, 0), *split, device="cpu", watch=heard.append)
    assert heard == [0.25, 0.5, 0.75, 1.0]


def test_a_stop_in_the_last_round_is_not_forgotten(split, tmp_path, stop_after):
    stop_after(QUICK.steps)
    with pytest.raises(KeyboardInterrupt):
        fit_concurrently(jobs(tmp_path, 0), *split, device="cpu")


def test_a_run_that_diverges_lets_the_others_finish(split, tmp_path, monkeypatch):
    update = Trainer.update

    def nan_in_one(self, number, *I):
        loss = update(self, number, *I)
        return loss * torch.nan if len(self.model.steps) else loss

    monkeypatch.setattr(Trainer, "update", nan_in_one)
    plain, cascade = jobs(tmp_path, 0)
    with pytest.raises(BadInput, match=rf"{cascade.folder.name}: the loss is nan"):
        fit_concurrently([cascade, plain], *split, device="cpu")
    assert (plain.folder / "weights.safetensors").is_file()
    assert not (cascade.folder / "weights.safetensors").is_file()


def test_a_run_that_diverges_stops_no_other_of_its_method(split, tmp_path, monkeypatch):
    update = Trainer.update
    monkeypatch.setattr(
        Trainer, "update", lambda self, k, *I: update(self, k, *I) * (torch.nan if self.settings.seed else 1.0)
    )
    good, bad = jobs(tmp_path, 0, 1, names=NAMES[:1])
    with pytest.raises(BadInput, match=rf"{bad.folder.name}: the loss is nan"):
        fit_concurrently([bad, good], *split, device="cpu")
    assert (good.folder / "weights.safetensors").is_file()


@pytest.mark.parametrize("without", ["labels_weight", "batch_dice"])
def test_runs_with_labels_and_without_are_trained_together_as_alone(without, split, tmp_path):
    plain = jobs(tmp_path / "together", 0, names=NAMES[:1])[0]
    settings = replace(EVERYTHING, steps=4, validate_every=2, augmentation=QUICK.augmentation, **{without: 0.0})
    labelled = TrainingJob(plain.method, settings, tmp_path / "together" / "labelled")
    found = fit_concurrently([plain, labelled], *split, device="cpu")
    for job, result in zip((plain, labelled), found, strict=True):
        folder = tmp_path / "alone" / job.folder.name
        assert fit(job.method, *split, job.settings, folder, device="cpu") == result
        assert are_alike(job.folder, folder)
