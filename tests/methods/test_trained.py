import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tests.models import Flow, card, saved, trained
from vrnet import BadInput, Trained, load_method
from vrnet.methods.names import parse_trainable
from vrnet.methods.weights import shape_at

OWN = {2: (2.0, 1.5), 3: (2.0, 1.5, 1.7)}
SHAPES = {2: (41, 30), 3: (25, 22, 30)}
SPACINGS = {
    "finer": (1.25, 1.1, 1.3),
    "coarser": (2.9, 2.5, 2.3),
    "mixed": (1.25, 2.6, 1.7),
    "the model's": (2.0, 1.5, 1.7),
    "nearly the model's": (2.06, 1.47, 1.7),
}
METHODS = ["C-L2-2x1-w2", "R-L1-1x2-w2", "U-L2-1x1-Θ1-w2", "VoxelMorph-w2", "Siamese-w2", "2xRC-Net-w2"]


def pair(d, smooth_image):
    return smooth_image(SHAPES[d], 2, 0, torch.float32), smooth_image(SHAPES[d], 2, 1, torch.float32)


@pytest.mark.parametrize("method", METHODS)
def test_a_model_saved_and_loaded_gives_the_same_field_to_the_bit(d, method, smooth_image, tmp_path):
    before, after = trained(method, d), load_method(saved(tmp_path, method, d))
    with torch.inference_mode():
        u, v = (model.build(d)(*pair(d, smooth_image), (1.1, 2.5, 3.0)[:d]) for model in (before, after))
    assert u.abs().max() > 0.05
    assert torch.equal(u, v)
    assert after.card == before.card
    assert after.file == "m.safetensors"


def test_weights_in_half_precision_give_nearly_the_same_field(d, smooth_image, tmp_path):
    whole = trained(d=d)
    half = load_method(saved(tmp_path, d=d, half=True))
    with torch.inference_mode():
        u, v = (model.build(d)(*pair(d, smooth_image), None) for model in (whole, half))
    assert 0 < (u - v).abs().max() < 5e-3 * u.abs().max()


def test_its_name_is_that_of_the_method_and_its_line_says_what_it_was_trained_for(tmp_path):
    model = load_method(str(saved(tmp_path, "VoxelMorph-w2")))
    assert str(model) == "VoxelMorph-w2"
    assert parse_trainable(str(model)) == parse_trainable("voxelmorph-W2")
    assert model.summary == "trained on phantoms: 2D at 1.8 x 1.8 mm"
    assert len(repr(model)) < 400


@pytest.mark.parametrize("spacing", SPACINGS.values(), ids=SPACINGS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_motion_in_mm_is_the_same_motion_in_mm_at_any_spacing(d, axis, spacing):
    """x ↦ 1.1 x + 0.7 mm along an axis: I1 is a ramp in mm, I0(x) = I1(1.1 x + 0.7), and Flow reads the motion off."""
    if axis >= d:
        pytest.skip("no such axis")
    h = spacing[:d]
    x = torch.arange(SHAPES[d][axis], dtype=torch.float32).view(-1, *[1] * (d - 1 - axis)) * h[axis]
    I1 = x.expand(1, 1, *SHAPES[d]).contiguous()
    u = Trained.of(card(d=d, spacing=OWN[d]), Flow(), "").build(d)(1.1 * I1 + 0.7, I1, h)
    assert u.shape == (1, d, *SHAPES[d])
    inside = (0, slice(None), *[slice(6, -6)] * d)
    found = u[inside].numpy() * np.reshape(h, (d, *[1] * d))
    expected = np.zeros_like(found)
    expected[axis] = 0.1 * I1[0, 0][inside[2:]] + 0.7
    assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("spacing", [None, SPACINGS["the model's"], SPACINGS["nearly the model's"]])
def test_images_at_about_the_model_s_spacing_are_left_as_they_are(d, spacing, smooth_image):
    """UK Biobank's 1.83 mm are as good as 1.8; without a spacing the model's is assumed."""
    flow, (I0, I1) = Flow(), pair(d, smooth_image)
    Trained.of(card(d=d, spacing=OWN[d]), flow, "").build(d)(I0, I1, spacing and spacing[:d])
    ((seen_0, seen_1, h),) = flow.seen
    assert (seen_0 is I0, seen_1 is I1, h) == (True, True, OWN[d])


@pytest.mark.parametrize("kind", ["finer", "coarser", "mixed"])
def test_a_model_sees_images_at_its_own_spacing(d, kind, smooth_image):
    """Within half a voxel over the whole extent, and as the model was told in training."""
    flow, h = Flow(), SPACINGS[kind][:d]
    Trained.of(card(d=d, spacing=OWN[d]), flow, "").build(d)(*pair(d, smooth_image), h)
    ((I0, I1, told),) = flow.seen
    extent = [(n - 1) * edge for n, edge in zip(SHAPES[d], h, strict=True)]
    assert I0.shape == I1.shape
    assert_allclose([(n - 1) * own for n, own in zip(I0.shape[2:], OWN[d], strict=True)], extent, atol=max(OWN[d]) / 2)
    assert told == OWN[d]


def test_no_axis_is_resized_to_a_single_voxel():
    assert shape_at((4.0, 4.0), (2, 30), (1.0, 1.0)) == (2, 8)


def test_a_shape_a_voxel_above_what_a_u_net_takes_is_cut_to_that():
    """185 voxels of 1.5625 mm are 160.7 of 1.8 mm, which would be padded to 176."""
    assert shape_at((1.8, 1.8), (185, 211), (1.5625, 1.40625)) == (160, 165)
    assert shape_at((1.8, 1.8), (161, 50), (1.8, 0.9)) == (161, 26)


def test_a_model_registers_images_of_its_own_dimension(d):
    model, other = trained(d=d), {2: 3, 3: 2}[d]
    with pytest.raises(BadInput, match=f"m.safetensors is a {d}D model") as raised:
        model.build(other)
    assert len(str(raised.value).splitlines()) == 1
    assert {2: "one by one", 3: "volumes"}[d] in str(raised.value)


@pytest.mark.parametrize("spacing", [(1.8e-3, 1.8e-3), (1.8, 1800.0)])
def test_spacings_that_cannot_be_millimetres_are_refused(spacing):
    I = torch.rand(1, 1, 8, 8)
    with pytest.raises(BadInput, match="are they in mm"):
        trained().build(2)(I, I, spacing)


def test_a_model_left_in_training_is_used_as_it_will_be(smooth_image):
    """Batch normalisation by what it has learned, not by the pair at hand."""
    model = trained("Siamese-w2")
    I0, I1 = pair(2, smooth_image)
    with torch.inference_mode():
        expected = model.model.eval()(I0, I1)
        model.model.train()
        assert torch.equal(model.build(2)(I0, I1), expected)
