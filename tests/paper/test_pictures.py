import numpy as np
import pytest
import torch

from tests.models import trained
from vrnet.data.phantoms import Phantoms
from vrnet.data.protocols import Sample
from vrnet.methods.baselines import Identity
from vrnet.paper import figures as pictures
from vrnet.paper.figures import (
    COMPARED_METHODS,
    ROWS,
    cut_slice,
    draw_comparison,
    draw_denoising,
    field_states,
    find_field,
    motion_in_slice,
    roughness,
)
from vrnet.paper.study import Study


@pytest.fixture
def ready(d, study, monkeypatch):
    """A study with all methods but SyN: VR-Nets and RC-Nets have random weights, the others move nothing."""
    made = study(d=d)

    def methods(self, entries):
        names = [str(entry.method) for entry in entries]
        return [trained(name, d, made.test.samples[0].spacing) if name[0] in "RC2" else Identity() for name in names]

    monkeypatch.setattr(Study, "methods", methods)
    monkeypatch.setattr(Study, "can_run", lambda self, name: name != "SyN")
    return made


def test_the_comparison_has_six_rows_and_one_column_per_method_that_can_run_beside_the_first(ready):
    figure, numbers = draw_comparison(ready)
    names = [name for name in COMPARED_METHODS[ready.d] if name != "SyN"]
    grid = figure.axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == (len(ROWS), len(names) + 1) == (6, len(names) + 1)
    assert [ax.get_title() for ax in figure.axes[1 : grid.ncols]] == names
    assert [row["method"] for row in numbers] == names


def test_the_comparison_shows_the_images_and_measures_their_difference(ready):
    figure, numbers = draw_comparison(ready)
    sample = ready.test.samples[1]
    labels = sample.fixed_labels[0, 0].numpy()
    k = ... if ready.d == 2 else (..., int((labels > 0).sum((0, 1)).argmax()))
    fixed, moving = sample.fixed[0, 0].numpy()[k], sample.moving[0, 0].numpy()[k]
    columns = figure.axes[0].get_gridspec().ncols
    np.testing.assert_allclose(figure.axes[0].images[0].get_array(), fixed.T)
    np.testing.assert_allclose(figure.axes[2 * columns].images[0].get_array(), moving.T)
    still = next(row for row in numbers if row["method"] == "FFD")  # here it moves nothing
    assert still["mean_difference"] == pytest.approx(np.abs(fixed - moving).mean(), abs=1e-6)
    assert any(abs(row["mean_difference"] - still["mean_difference"]) > 1e-6 for row in numbers)


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
        noise = torch.from_numpy(found[0]) - torch.from_numpy(motion_in_slice(guess, guess.shape[-1] // 2))
        first = guess + torch.randn(guess.shape, generator=torch.Generator().manual_seed(pictures.NOISE_SEED))
        last = list(method.model.refine(first, I0, I1, sample.spacing))[-1].v
    assert noise.std().item() == pytest.approx(1.0, abs=0.1)
    np.testing.assert_allclose(found[-1], motion_in_slice(last, last.shape[-1] // 2))


def test_a_start_that_is_noise_gets_no_more_noise(ready, d):
    sample = ready.test.samples[0]
    method = trained("R-L2-2x1-noise-w2", d, sample.spacing)
    method.model.eval()
    with torch.inference_mode():
        noise = method.model.init(sample.fixed[:1], sample.moving[:1], sample.spacing)
    np.testing.assert_array_equal(field_states(method, sample)[0], motion_in_slice(noise, noise.shape[-1] // 2))


def test_roughness_is_the_mean_of_all_slopes():
    """u = (a x, b y): |∂u| is a, 0, 0 and b."""
    x, y = np.meshgrid(np.arange(7.0), np.arange(5.0), indexing="ij")
    assert roughness(np.stack([0.3 * x, -0.5 * y])) == pytest.approx((0.3 + 0.5) / 4)
    assert roughness(np.ones((2, 4, 4))) == 0


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


def test_a_field_is_that_of_the_pair_asked_for(ready, d):
    sample, method = ready.test.samples[0], trained("VoxelMorph-w2", d, ready.test.samples[0].spacing)
    images = torch.cat([sample.moving, sample.fixed]), torch.cat([sample.fixed, sample.moving])
    two = Sample("two", *images, sample.spacing)
    with torch.inference_mode():
        expected = method.build(d)(sample.fixed, sample.moving, sample.spacing)
    torch.testing.assert_close(find_field(method, two, 1), expected)
