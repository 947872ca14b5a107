from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.models import trained
from tests.paper.fake_results import write_result
from vrnet.data.dataset import Phantoms
from vrnet.errors import BadInput
from vrnet.files import write_json
from vrnet.methods.names import Identity
from vrnet.paper import pictures
from vrnet.paper.figures import (
    ALPHA_METHODS,
    ALPHAS,
    BOX_METHODS,
    COMPARED_METHODS,
    EFFICIENT_METHODS,
    draw_alpha,
    draw_boxplots,
    draw_cascades,
    draw_efficiency,
    draw_parameterisations,
)
from vrnet.paper.pictures import ROWS, cut_slice, draw_comparison, draw_denoising, field_states, slice_of
from vrnet.paper.specs import published_values

SCORES = [(0.7, 9.0), (0.8, 8.0), (0.9, 6.0)]
MEAN = 0.8


def worsen(by):
    """SCORES with Dice lower by so much, and distances larger by ten times that."""
    return [(dice - by, hd + 10 * by) for dice, hd in SCORES]


@pytest.fixture
def known(study):
    """A study in which methods have known scores: known({"TV-L1": 0.01}) is worse than SCORES by so much."""

    def make(losses):
        made = study()
        for name, by in losses.items():
            write_result(made.results, made.results.entry(name), worsen(by))
        return made

    return make


def test_alpha_draws_the_mean_distance_on_test_and_dice_on_validation(study):
    made, alphas = study(), ALPHAS[2]
    losses = {name: 0.01 * (np.arange(len(alphas)) + 10 * k) for k, name in enumerate(ALPHA_METHODS[2])}
    for name, by in losses.items():
        for value, loss in zip(alphas, by, strict=True):
            write_result(made.results, made.results.entry(name, alpha=value), worsen(loss), val_dice=0.6 + loss)
    figure, numbers = draw_alpha(made)
    assert [(row["method"], row["alpha"]) for row in numbers] == [(n, a) for n in losses for a in alphas]
    above, below = figure.axes
    for place, (name, by) in enumerate(losses.items()):
        np.testing.assert_allclose(above.get_lines()[place].get_ydata(), np.mean([9.0, 8.0, 6.0]) + 10 * by)
        np.testing.assert_allclose(below.get_lines()[place].get_ydata(), 0.6 + by)
        assert above.get_lines()[place].get_label() == name
    for ax in figure.axes:
        assert [label.get_text() for label in ax.get_xticklabels()] == [f"{value:g}" for value in alphas]


def test_cascades_draws_dice_against_their_number_beside_the_published(known):
    steps = {"1x1": 1, "2x1": 2, "2x2": 4, "3x2": 6}
    rc = {"VoxelMorph": 1} | {f"{n}xRC-Net": n for n in range(2, 8)}
    counts = rc | {f"{kind}-{name}": n for kind in ("R-L1", "R-L2") for name, n in steps.items()}
    counts |= {"C-L2-3x1": 3, "C-L2-6x1": 6}
    losses = {name: 0.001 * k for k, name in enumerate(counts)}
    figure, numbers = draw_cascades(known(losses))
    lines = figure.axes[0].get_lines()
    assert len(lines) == 7
    assert list(lines[0].get_xdata()) == [1, 2, 3, 4, 5, 6, 7]
    np.testing.assert_allclose(lines[0].get_ydata(), [MEAN - losses[name] for name in rc])
    assert lines[1].get_ydata()[:2] == pytest.approx([0.850, 0.864])
    assert list(lines[4].get_xdata()) == [1, 2, 4, 6]
    assert list(lines[5].get_ydata()) == pytest.approx([0.860, 0.850, 0.867, 0.872])
    for row in numbers:
        assert row["dice_mean"] == pytest.approx(MEAN - losses[row["method"]])
        assert row["cascades"] == counts[row["method"]]
    assert numbers[-1]["published"] is None
    assert numbers[0]["published"] == published_values("acdc")["VoxelMorph"]["dice_mean"].mean


def test_efficiency_draws_dice_against_the_number_of_training_subjects_without_images_of_what_is_measured(study):
    """Though not where a row is missing: images may have become more since they were counted."""
    made, asked = study(), []  # with two subjects to train on

    def split(name, purpose):
        asked.append(name)
        return made.split(name, purpose)

    for k, name in enumerate(EFFICIENT_METHODS[2]):
        write_result(made.results, made.results.entry(name), worsen(0.01 * k))
        write_result(made.results, made.results.entry(name, subjects=1), worsen(0.01 * k + 0.05))
    watched = replace(made, split=split)
    figure, numbers = draw_efficiency(watched)
    for k, line in enumerate(figure.axes[0].get_lines()):
        assert list(line.get_xdata()) == [0, 1]
        np.testing.assert_allclose(line.get_ydata(), [MEAN - 0.01 * k - 0.05, MEAN - 0.01 * k])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(EFFICIENT_METHODS[2])
    assert asked == ["train"]
    assert draw_efficiency(watched)[1] == numbers
    assert asked == ["train"]
    write_json({"train": 16}, made.results.out / "phantom" / "subjects.json")  # 2, 4 and 8: nothing was measured on
    assert draw_efficiency(watched)[1] == numbers
    assert asked == ["train"] * 2


def test_a_damaged_count_of_subjects_is_told(study):
    made = study()
    write_json({}, made.results.out / "phantom" / "subjects.json")
    with pytest.raises(BadInput, match=r"subjects\.json is damaged: restore it, or remove it and give the images"):
        draw_efficiency(made)


@pytest.mark.release
def test_parameterisations_and_boxplots_draw_one_box_per_method_and_structure(known):
    figure, numbers = draw_parameterisations(known({"R-L2-6x1-Θ1": 0.1, "R-L2-6x1": 0.0}))
    (ax,) = figure.axes
    heights = [box.get_path().vertices[:, 1] for box in ax.patches]
    np.testing.assert_allclose([(y.min(), y.max()) for y in heights], [(0.65, 0.75)] * 4 + [(0.75, 0.85)] * 4)
    assert [label.get_text() for label in ax.get_legend().get_texts()] == ["Θ1", "Θ2"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["LV", "Myo", "RV", "Avg"]
    assert [(row["method"], row["subject"]) for row in numbers] == [
        (m, f"s{k}") for m in ("Θ1", "Θ2") for k in range(3)
    ]
    figure, numbers = draw_boxplots(known({name: 0.01 * k for k, name in enumerate(BOX_METHODS[2])}))
    dice, hd = figure.axes
    assert len(dice.patches) == len(hd.patches) == len(BOX_METHODS[2]) * 4
    assert "3 test subjects" in dice.get_title()


@pytest.fixture
def ready(d, study, monkeypatch):
    """A study with all methods but SyN: VR-Nets and RC-Nets have random weights, the others move nothing."""
    made = study(d=d)

    def methods(study, names):
        found = [str(study.results.entry(name).method) for name in names]
        return [trained(name, d, made.test.samples[0].spacing) if name[0] in "RC2" else Identity() for name in found]

    monkeypatch.setattr(pictures, "ready_methods", methods)
    monkeypatch.setattr(pictures, "missing_package", lambda method: "antspyx" if str(method) == "SyN" else None)
    return made


@pytest.mark.release
def test_the_comparison_shows_the_images_then_one_column_per_method_that_can_run(ready):
    figure, numbers = draw_comparison(ready)
    names = [name for name in COMPARED_METHODS[ready.d] if name != "SyN"]
    grid = figure.axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == (len(ROWS), len(names) + 1) == (6, len(names) + 1)
    assert [ax.get_title() for ax in figure.axes[1 : grid.ncols]] == names
    assert [row["method"] for row in numbers] == names
    sample = ready.test.samples[1]
    labels = sample.fixed_labels[0, 0].numpy()
    k = ... if ready.d == 2 else (..., int((labels > 0).sum((0, 1)).argmax()))
    fixed, moving = sample.fixed[0, 0].numpy()[k], sample.moving[0, 0].numpy()[k]
    np.testing.assert_allclose(figure.axes[0].images[0].get_array(), fixed.T)
    np.testing.assert_allclose(figure.axes[2 * grid.ncols].images[0].get_array(), moving.T)
    np.testing.assert_allclose(figure.axes[5 * grid.ncols].images[0].get_array(), np.abs(moving - fixed).T, atol=1e-6)
    still = next(row for row in numbers if row["method"] == "FFD")  # here it moves nothing
    assert still["mean_difference"] == pytest.approx(np.abs(fixed - moving).mean(), abs=1e-6)
    assert any(abs(row["mean_difference"] - still["mean_difference"]) > 1e-6 for row in numbers)


@pytest.mark.release
def test_denoising_has_the_start_and_one_state_per_cascade(ready):
    figure, numbers = draw_denoising(ready)
    count = {2: 6, 3: 2}[ready.d]
    names = [f"R-L2-{count}x1", f"R-L2-{count}x1-noise"]
    assert [(row["method"], row["cascade"]) for row in numbers] == [(n, k) for n in names for k in range(count + 1)]
    grid = figure.axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == (4, count + 1)
    assert [ax.get_title() for ax in figure.axes[: count + 1]] == ["start", *(f"cascade {k + 1}" for k in range(count))]


def test_states_begin_with_the_noisy_guess_and_end_with_what_the_cascade_makes_of_it(ready, d):
    sample, method = ready.test.samples[0], trained("R-L2-2x1-w2", d, ready.test.samples[0].spacing)
    found = field_states(method, sample)
    I0, I1 = sample.fixed[:1], sample.moving[:1]
    with torch.inference_mode():
        guess = method.model.init(I0, I1, sample.spacing)
        noise = torch.from_numpy(found[0]) - torch.from_numpy(slice_of(guess[0], guess.shape[-1] // 2)[:2])
        first = guess + torch.randn(guess.shape, generator=torch.Generator().manual_seed(1))
        last = list(method.model.refine(first, I0, I1, sample.spacing))[-1].v
    assert noise.std().item() == pytest.approx(1.0, abs=0.1)
    np.testing.assert_allclose(found[-1], slice_of(last[0], last.shape[-1] // 2)[:2])


def test_a_cut_in_space_shows_the_slice_with_most_of_the_heart():
    sample = Phantoms("phantom3d", (16, 16, 16), 9.0).prepare("phantom-0003", "evaluation")
    u = torch.zeros(1, 3, 16, 16, 16)
    u[:, 0], u[:, 2] = 1.0, 5.0
    shown = cut_slice(sample, 0, u)
    assert shown.k == max(range(16), key=lambda k: int((sample.fixed_labels[0, 0, ..., k] > 0).sum()))
    assert shown.u.shape == (2, 16, 16)
    assert (shown.u[0] == 1).all()
    assert (shown.u[1] == 0).all()
    np.testing.assert_allclose(shown.image[:-1], sample.moving[0, 0, 1:, :, min(shown.k + 5, 15)].numpy(), atol=1e-6)
