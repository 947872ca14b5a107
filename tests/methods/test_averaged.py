from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

import vrnet
from tests.models import card, saved, trained
from vrnet import Grid, Image
from vrnet.errors import BadInput
from vrnet.methods.method import Averaged, AverageOverTurns
from vrnet.methods.names import parameters, parse, parse_method, parse_trainable, with_parameters
from vrnet.methods.weights import save_weights
from vrnet.variational.linearize import Masks

SIZE = {2: (20, 27), 3: (10, 7, 9)}
SQUARE = {2: (1.8, 1.8), 3: (1.8, 1.8, 4.0)}


def turned_views(d, is_square):
    """(there, back) for each symmetry: of arrays (*s), and of fields (*s, d) whose vectors turn with them; by NumPy."""
    for chosen, is_exchanged in product(product((False, True), repeat=d), (False, True) if is_square else (False,)):
        axes = tuple(np.flatnonzero(chosen))

        def there(I, axes=axes, is_exchanged=is_exchanged):
            I = np.flip(I, axes)
            return I.swapaxes(0, 1) if is_exchanged else I

        def back(u, axes=axes, is_exchanged=is_exchanged):
            u = u.swapaxes(0, 1)[..., ::-1] if is_exchanged else u
            return np.flip(u, axes) * np.where(np.isin(np.arange(u.shape[-1]), axes), -1, 1)

        yield there, back


def averaged_by_hand(find, I0, I1, is_square):
    """The mean of what is found, (d, *s), for every view of the pair."""
    views = list(turned_views(I0.ndim, is_square))
    found = [back(np.moveaxis(find(there(I0).copy(), there(I1).copy()), 0, -1)) for there, back in views]
    return np.moveaxis(sum(found) / len(views), -1, 0)


@pytest.mark.parametrize(
    ("d", "is_square"), [(2, True), (2, False), (3, False), pytest.param(3, True, marks=pytest.mark.release)]
)
def test_the_average_is_that_of_a_plain_loop(d, is_square, smooth_image):
    """By a network, which is not the same for a turned pair."""
    spacing = SQUARE[d] if is_square else (1.8, 1.9, 4.0)[:d]
    I0, I1 = (smooth_image(SIZE[d], 2, seed, torch.float32) for seed in (0, 1))
    model = trained("C-L2-2x1-w2", d).build(d)

    @torch.no_grad()
    def find(*pair):
        return model(*(torch.from_numpy(I)[None, None] for I in pair), spacing)[0].numpy()

    expected = averaged_by_hand(find, I0[0, 0].numpy(), I1[0, 0].numpy(), is_square and d == 2)
    with torch.no_grad():
        found, alone = AverageOverTurns(model)(I0, I1, spacing), model(I0, I1, spacing)
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-5)
    assert (found - alone).abs().max() > 0.1


def test_a_picture_is_seen_in_eight_ways_and_one_of_oblong_pixels_in_four(smooth_image):
    seen = []

    def look(I0, I1, spacing=None, masks=None):
        seen.append((tuple(I0.shape[2:]), spacing, I0.flatten()[0].item()))
        return torch.zeros(1, I0.dim() - 2, *I0.shape[2:])

    I = smooth_image(SIZE[2])
    AverageOverTurns(look)(I, I)
    assert len(set(seen)) == 8
    seen.clear()
    AverageOverTurns(look)(I, I, (1.0, 1.2))
    assert len(set(seen)) == 4
    assert {shape for shape, *_ in seen} == {SIZE[2]}
    seen.clear()
    AverageOverTurns(look, own_spacing=(1.0, 1.2))(I, I)
    assert len(seen) == 4
    seen.clear()
    AverageOverTurns(look)(*(smooth_image(SIZE[3]),) * 2, (1.0, 1.0, 1.0))
    assert len(set(seen)) == 8
    assert {shape for shape, *_ in seen} == {SIZE[3]}


def test_masks_turn_with_the_images(d, smooth_image):
    I = smooth_image(SIZE[d], 2)
    masks = Masks((I > 0.6).double(), (I < 0.4).double())

    def look(I0, I1, spacing, seen):
        assert torch.equal(seen.fixed > 0, I0 > 0.6)
        assert torch.equal(seen.moving > 0, I1 < 0.4)
        return torch.zeros(1, d, *I0.shape[2:])

    AverageOverTurns(look)(I, I, None, masks)


@pytest.mark.release
def test_an_iterative_method_is_the_same_turned(smooth_image):
    """TV-L1 does not know which way axes run, but for its forward differences."""
    I0 = smooth_image((40, 36), 3)[0, 0].float()
    I1 = torch.roll(I0, (1, -1), (0, 1))
    alone, mean = (vrnet.register(I0, I1, "TV-L1", average=average).field for average in (False, True))
    assert alone.abs().mean() > 0.5
    assert (alone - mean).abs().mean() < 0.02
    assert (alone - mean).abs().max() > 0


def test_the_field_of_an_equivariant_method_is_unchanged(d, smooth_image):
    """u = I0 ∇I1: gradients turn with the image."""

    class Along(nn.Module):
        def forward(self, I0, I1, spacing=None, masks=None):
            return I0 * torch.stack(torch.gradient(I1, dim=tuple(range(2, 2 + d))), 1)[:, :, 0]

    I0, I1 = smooth_image(SIZE[d], 2, 0), smooth_image(SIZE[d], 2, 1)
    torch.testing.assert_close(AverageOverTurns(Along())(I0, I1), Along()(I0, I1))


def test_names_say_that_a_method_is_averaged(tmp_path):
    for name in ("TV-L1+average", "TV-L1(lam=0.2)+average", "default+average", "short-axis+average"):
        assert str(parse(name)) == name
        assert parse(name) == Averaged(parse(name.removesuffix("+average")))
    assert str(parse_method("TV-L1", settings=["lam=0.2"], average=True).load()) == "TV-L1(lam=0.2)+average"
    assert str(parse_method("TV-L1+average", average=True).load()) == "TV-L1+average"
    weights = saved(tmp_path)
    for name in ("C-L2-2x1-w2", "default"):
        assert str(parse_method(name, weights, average=True).load()) == "C-L2-2x1-w2+average"
    with pytest.raises(BadInput, match="needs weights"):
        parse_method("C-L2-2x1-w2+average")
    with pytest.raises(BadInput, match="train C-L2-2x1"):
        parse_trainable("C-L2-2x1+average")


def without_flips(folder, flips=False):
    """The file of a model whose training had flips, or had none, or says nothing of them."""
    save_weights(trained().model, card(flips_in_training=flips), folder / "m.safetensors")
    return folder / "m.safetensors"


def refusals(name, weights=None):
    """What asks for a method averaged, by everything that can."""
    method = parse_method(name, weights).load()
    I = np.random.default_rng(0).random((20,) * method.dimensions[0], np.float32)
    yield lambda: parse_method(name, weights, average=True)
    yield lambda: parse_method(f"{name}+average", weights)
    yield lambda: Averaged(method)
    yield lambda: vrnet.register(I, I, method, average=True)
    yield lambda: vrnet.register_images(*[Image(I, Grid.plain(I.shape, (1.8,) * I.ndim))] * 2, method, average=True)


def test_a_network_whose_training_had_no_flips_is_not_averaged(tmp_path):
    """Of mirrored images it finds other motion: the mean of flips by the model of hippocampi had .10 less Dice."""
    for ask in (*refusals("default", without_flips(tmp_path)), *refusals("hippocampus")):
        with pytest.raises(BadInput, match=r"trained without mirrored images.* leave out `average=True`"):
            ask()
    for name in ("hippocampus+average", "Hippocampus+AVERAGE"):
        with pytest.raises(BadInput, match=r"^hippocampus was trained without mirrored images"):
            parse(name)


@pytest.mark.release
@pytest.mark.parametrize("flips", [True, None])
def test_a_network_whose_training_had_flips_or_says_nothing_of_them_is_averaged(flips, tmp_path):
    for ask in refusals("default", without_flips(tmp_path, flips)):
        assert ask() is not None


def test_in_all_else_it_is_the_method_itself():
    method = trained()
    properties = [name for name, value in vars(vrnet.Method).items() if isinstance(value, property)]
    properties += vrnet.Method.__annotations__
    own = {"summary", "details"}
    assert {"dimensions", "scaling", "masks", "devices", "is_network", "model"} <= set(properties)
    for name in set(properties) - own:
        assert getattr(Averaged(method), name) == getattr(method, name), name
    assert "averaged" in Averaged(method).summary
    assert Averaged(method).details.items() > method.details.items()


def test_pictures_in_the_world_are_averaged_as_arrays_are(smooth_image):
    fixed, moving = (smooth_image((24, 20), 2, seed, torch.float32)[0, 0].numpy() for seed in range(2))
    method, options = trained(), {"folds": "keep"}
    found = vrnet.register(fixed, moving, method, average=True, **options)
    expected = averaged_by_hand(lambda *pair: vrnet.register(*pair, method, **options).field, fixed, moving, True)
    np.testing.assert_allclose(found.field, expected, rtol=0, atol=1e-5)
    images = (vrnet.Image(I, vrnet.Grid.plain((24, 20), (1.8, 1.8))) for I in (fixed, moving))
    again = vrnet.register_images(*images, method, average=True, **options)
    assert found.method == again.method == "C-L2-2x1-w2+average"
    np.testing.assert_allclose(again.transform.in_voxels(), expected, rtol=0, atol=1e-4)


def test_slices_are_turned_within_themselves(smooth_image):
    """Flipped across, they stay in their places; so a stack is seen as each of its slices."""
    stack = np.stack([smooth_image((24, 20), 2, seed, torch.float32)[0, 0] for seed in range(4)], axis=-1)
    fixed, moving, method = stack[..., :2], stack[..., 2:], trained()
    find = vrnet.register(fixed, moving, Averaged(method), slice_axis=2, folds="keep").field
    total = 0
    for there, back in turned_views(2, True):
        field = vrnet.register(there(fixed).copy(), there(moving).copy(), method, slice_axis=2, folds="keep").field
        total = total + np.stack([back(np.moveaxis(u[:2], 0, -1)) for u in np.moveaxis(field, -1, 0)]) / 8
    np.testing.assert_allclose(np.moveaxis(find[:2], (0, -1), (-1, 0)), total, rtol=0, atol=1e-5)
    assert not find[2].any()


def test_what_can_be_set_of_an_averaged_method_is_what_can_be_set_of_it_alone():
    method = parse("TV-L1(lam=0.2)+average")
    assert parameters(method) == parameters(parse("TV-L1(lam=0.2)"))
    assert str(with_parameters(method, {"lam": 0.4})) == "TV-L1(lam=0.4)+average"
