import json
import signal
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from scipy import ndimage

from vrnet.data.prepared import PreparedSplit
from vrnet.data.sample import Sample
from vrnet.errors import BadInput
from vrnet.methods.learned import learned
from vrnet.methods.weights import load_weights
from vrnet.training.augmentation import Augmentation
from vrnet.training.fit import asked_to_stop, card_of, fit, is_first_process
from vrnet.training.settings import Training

QUICK = Training(steps=6, batch=2, rate=1e-3, validate_every=3, augmentation=Augmentation(tilt=5.0))
NAMES = {2: "C-L2-1x1-w4", 3: "R-L1-1x1-w2"}


def weights_of(folder):
    return load_file(folder / "checkpoint.safetensors")


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.fixture
def stop_at(monkeypatch):
    """A watch that asks for a stop, as Ctrl-C does, once a step is done."""
    asked = []
    monkeypatch.setattr("vrnet.training.fit.asked_to_stop", lambda: nullcontext(lambda: bool(asked and asked.pop())))
    return lambda step: lambda moment: asked.append(step) if moment.step == step else None


@pytest.fixture
def eager(monkeypatch):
    """Look after every step."""
    monkeypatch.setattr("vrnet.training.fit.LOOK_EVERY", -1.0)


@pytest.fixture
def turned(d, smooth_image):
    """An image, and the same turned by 25 degrees: too far for one data step."""
    shape, sigma = {2: ((32, 32), 3.0), 3: ((16, 16, 16), 2.0)}[d]
    fixed = smooth_image(shape, sigma, dtype=torch.float32)
    moving = ndimage.rotate(fixed[0, 0].numpy(), 25, reshape=False, order=1, mode="nearest")
    sample = Sample("texture", fixed, torch.from_numpy(moving)[None, None], (1.0,) * d)
    return PreparedSplit("textures", "train", (sample,), {}, False)


@pytest.mark.parametrize("denoiser", ["R", "C"])
@pytest.mark.parametrize("data", ["L1", "L2"])
@pytest.mark.slow
def test_a_network_learns_one_pair_by_heart(d, data, denoiser, turned, tmp_path):
    """Beside the same network at a rate of nearly 0, since a data step alone brings the images closer."""
    name, steps = {2: (f"{denoiser}-{data}-1x1-w4", 120), 3: (f"{denoiser}-{data}-1x1-w2", 50)}[d]
    loss = {}
    for rate in (1e-12, 5e-3):
        settings = Training(steps if rate > 1e-6 else 1, 1, rate, alpha=1e-3, augmentation=None)
        run = fit(learned(name), turned, turned, settings, tmp_path / str(rate), device="cpu")
        loss[rate] = run.best["val_loss"]
    assert loss[5e-3] < 0.5 * loss[1e-12]


@pytest.mark.parametrize(("d", "stop"), [(2, 2), (2, 3), (2, 4), (3, 4)])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(d, stop, hearts, tmp_path, eager, stop_at):
    train, val, method = hearts(d, [0, 1, 2]), hearts(d, [5]), learned(NAMES[d])
    whole = fit(method, train, val, QUICK, tmp_path / "whole", device="cpu")
    half = fit(method, train, val, QUICK, tmp_path / "parts", device="cpu", watch=stop_at(stop))
    assert (half.step, half.is_finished) == (stop, False)
    rest = fit(method, train, val, QUICK, tmp_path / "parts", device="cpu", resume=True)
    assert rest == whole
    assert rest.is_finished
    assert same(weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts"))
    assert (tmp_path / "whole" / "metrics.csv").read_text() == (tmp_path / "parts" / "metrics.csv").read_text()
    assert same(
        load_file(tmp_path / "whole" / "weights.safetensors"), load_file(tmp_path / "parts" / "weights.safetensors")
    )


@pytest.mark.parametrize("text", [None, "step,loss,rate,val_loss,val_dice\n3,9.0,0.1,9.0,0.999\n"])
def test_a_run_goes_on_the_same_whatever_became_of_its_metrics(text, hearts, tmp_path, eager, stop_at):
    train, val, method = hearts(2, [0, 1, 2]), hearts(2, [5]), learned(NAMES[2])
    whole = fit(method, train, val, QUICK, tmp_path / "whole", device="cpu")
    fit(method, train, val, QUICK, tmp_path / "parts", device="cpu", watch=stop_at(4))
    metrics = tmp_path / "parts" / "metrics.csv"
    metrics.unlink() if text is None else metrics.write_text(text)
    assert fit(method, train, val, QUICK, tmp_path / "parts", device="cpu", resume=True) == whole
    assert metrics.read_text() == (tmp_path / "whole" / "metrics.csv").read_text()


def test_the_same_seed_gives_the_same_run_and_another_another(hearts, tmp_path):
    train, val, method = hearts(2, [0, 1, 2]), hearts(2, [5]), learned(NAMES[2])
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        fit(method, train, val, replace(QUICK, seed=seed), tmp_path / name, device="cpu")
    assert same(weights_of(tmp_path / "a"), weights_of(tmp_path / "b"))
    assert not same(weights_of(tmp_path / "a"), weights_of(tmp_path / "c"))


def test_recomputing_changes_nothing_but_memory(hearts, tmp_path):
    one, method = hearts(2, [0]), learned("R-L1-2x1-w4")
    for name, recompute in (("plain", False), ("again", True)):
        fit(method, one, one, replace(QUICK, steps=2, recompute=recompute), tmp_path / name, device="cpu")
    a, b = weights_of(tmp_path / "plain"), weights_of(tmp_path / "again")
    for key in a:
        torch.testing.assert_close(a[key], b[key])


def test_a_run_folder_says_what_was_done_and_holds_the_best_model(hearts, tmp_path):
    train, val = hearts(2, [0, 1]), replace(hearts(2, [5]), split="val")
    result = fit(learned("R-L1-1x1-w2"), train, val, QUICK, tmp_path / "run", device="cpu")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["method"] == "R-L1-1x1-w2"
    assert config["training"]["alpha"] == QUICK.alpha
    assert config["subjects"] == {"train": ["patient0", "patient1"], "val": ["patient5"]}
    model, card = load_weights(tmp_path / "run" / "weights.safetensors")
    assert card.method == "R-L1-1x1-w2"
    assert card.spacing_mm == (5.0, 5.0)
    assert result.best["val_dice"] == max(
        float(line.split(",")[-1]) for line in (tmp_path / "run" / "metrics.csv").read_text().splitlines()[1:]
    )
    assert model(val.samples[0].fixed, val.samples[0].moving).shape == (1, 2, 48, 48)
    assert list((tmp_path / "run" / "logs").glob("events*"))


def test_a_folder_with_a_run_is_not_overwritten(hearts, tmp_path):
    one = hearts(2, [0])
    fit(learned(NAMES[2]), one, one, QUICK, tmp_path, device="cpu")
    with pytest.raises(BadInput, match="--resume"):
        fit(learned(NAMES[2]), one, one, QUICK, tmp_path, device="cpu")
    with pytest.raises(BadInput, match="begun with method"):
        fit(learned("R-L2-1x1-w2"), one, one, QUICK, tmp_path, device="cpu", resume=True)
    with pytest.raises(BadInput, match=r"begun with alpha 0\.05, not 0\.2"):
        fit(learned(NAMES[2]), one, one, replace(QUICK, alpha=0.2), tmp_path, device="cpu", resume=True)
    assert fit(learned(NAMES[2]), one, one, QUICK, tmp_path, device="cpu", resume=True).is_finished


@pytest.mark.parametrize(
    ("shares", "answer"),
    [({"devices": 3}, "3 devices cannot share a batch of 2"), ({"devices": 0}, "1 at least"), ({"nodes": 0}, "1 at")],
)
def test_devices_that_cannot_share_a_batch_are_refused_before_anything_is_written(shares, answer, hearts, tmp_path):
    one = hearts(2, [0])
    with pytest.raises(BadInput, match=answer):
        fit(learned(NAMES[2]), one, one, QUICK, tmp_path / "run", device="cpu", **shares)
    assert not list(tmp_path.iterdir())


def test_a_run_that_diverges_says_so(hearts, tmp_path, monkeypatch):
    one = hearts(2, [0])
    monkeypatch.setattr("vrnet.training.fit.Trainer.learn", lambda self, number, I0, I1: torch.tensor(float("nan")))
    with pytest.raises(BadInput, match=r"the loss is nan after 3 steps: .* smaller --rate"):
        fit(learned("VoxelMorph-w2"), one, one, QUICK, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run" / "weights.safetensors").exists()


@pytest.mark.parametrize(
    ("told", "is_first"),
    [
        ({}, True),
        ({"LOCAL_RANK": "1"}, False),
        ({"LOCAL_RANK": "0", "NODE_RANK": "1"}, False),
        ({"SLURM_PROCID": "3", "LOCAL_RANK": "0"}, False),
        ({"RANK": "0", "LOCAL_RANK": "0", "SLURM_PROCID": "0"}, True),
    ],
)
def test_one_of_several_processes_is_the_first(told, is_first, monkeypatch):
    for name in ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert is_first_process() == is_first


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_wish_to_stop_and_a_second_ctrl_c_is_not_waited_for(number):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with asked_to_stop() as is_asked:
        assert not is_asked()
        signal.raise_signal(number)
        assert is_asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_the_card_says_how_images_were_scaled(hearts):
    cards = [
        card_of(learned(NAMES[2]), hearts(2, [0, 1], pairs_across_subjects=pairs_across_subjects), QUICK)
        for pairs_across_subjects in (False, True)
    ]
    assert [card.normalisation for card in cards] == ["jointly", "each"]
