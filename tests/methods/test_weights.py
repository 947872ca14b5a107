import hashlib
import json
import os
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from benchmarks.template import fields_to
from numpy.testing import assert_allclose
from safetensors.torch import load_file, save_file

import vrnet
from tests.models import Flow, card, saved, trained
from vrnet import BadInput, Trained, load_method
from vrnet.fields.calculus import warp
from vrnet.files import checksum, write_tensors
from vrnet.methods.names import SHORT_AXIS, bundled_file, find_base, parse_trainable
from vrnet.methods.weights import Card, load_weights, make_solver, save_weights, shape_at, template_shape
from vrnet.variational.data_terms import LNCC
from vrnet.variational.initialisers import ThroughTemplate

CARD = Card("C-L2-2x1-w4", 2, (1.8, 1.8), "jointly", "phantoms", "0.1.0")


@pytest.fixture
def stored(tmp_path):
    """(path, model): a model of random weights on disk."""
    torch.manual_seed(1)
    model = parse_trainable(CARD.method).build(2)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    save_weights(model, CARD, tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors", model


def test_reading_draws_no_random_numbers(stored):
    """A model of every kind of layer is built without them."""
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    load_weights(stored[0])
    assert torch.equal(torch.rand(3), expected)


def test_half_precision_takes_half_the_room_and_nearly_the_same_weights(stored, tmp_path):
    path, model = stored
    save_weights(model, CARD, tmp_path / "half.safetensors", half=True)
    assert (tmp_path / "half.safetensors").stat().st_size < 0.6 * path.stat().st_size
    again, _ = load_weights(tmp_path / "half.safetensors")
    for a, b in zip(again.parameters(), model.parameters(), strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)


def test_counts_keep_their_type(tmp_path):
    model = parse_trainable("Siamese-w4").build(2)
    save_weights(model, Card("Siamese-w4", 2, (1.8, 1.8), "jointly", "", ""), tmp_path / "s.safetensors", half=True)
    kinds = {tensor.dtype for tensor in load_file(tmp_path / "s.safetensors").values()}
    assert kinds == {torch.float16, torch.int64}
    load_weights(tmp_path / "s.safetensors")


def test_weights_of_siamese_from_before_tanh_are_refused(tmp_path):
    """Their last layer, head.2, found voxels: it would move everything many times as far."""

    def former(name):
        return name.replace("head", "head.2").replace("mix", "head")

    model, path = parse_trainable("Siamese-w4").build(2), tmp_path / "s.safetensors"
    old = {former(name): tensor for name, tensor in model.state_dict().items()}
    write_tensors(old, path, {"vrnet": json.dumps(asdict(replace(CARD, method="Siamese-w4")))})
    with pytest.raises(BadInput, match=r"do not fit Siamese-w4: .*another version"):
        load_weights(path)


def header(**changes):
    return {"vrnet": json.dumps(asdict(CARD) | changes)}


NOT_OURS = "was not written by vrnet"
WRONG_KEY = "m.safetensors is not as vrnet writes it, "


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({}, NOT_OURS),
        ({"vrnet": "{"}, 'has no JSON under "vrnet"'),
        ({"vrnet": "{}"}, WRONG_KEY + ".*missing required field `method`"),
        (header(colour="red"), WRONG_KEY + "the key 'colour' is not known"),
        (header(method="a\nb"), "no line of text"),
        (header(method="R-L1-6x1-w8"), "do not fit"),
        (header(method="VoxelMorph-w4000"), "do not fit"),
        (header(method="TV-L1"), 'a model called "TV-L1", which this vrnet does not know'),
        (header(method="R-L2-1000000x1000"), "100 at most"),
        (header(dimension=3), WRONG_KEY + ".*3 with"),
        (header(spacing_mm=[1.8, 0]), WRONG_KEY),
        (header(spacing_mm=[1.8, float("nan")]), "no finite number"),
        (header(normalisation="as it comes"), "Invalid enum value 'as it comes'"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path, metadata, words):
    write_tensors({"x": torch.zeros(3)}, tmp_path / "m.safetensors", metadata)
    with pytest.raises(BadInput, match=words) as raised:
        load_weights(tmp_path / "m.safetensors")
    assert len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < 1500


def test_weights_that_are_not_finite_are_refused(stored, monkeypatch):
    path, model = stored
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] = float("nan")
    with pytest.raises(BadInput, match="NaN or infinite"):
        save_weights(model, CARD, path)
    assert load_weights(path)[1] == CARD, "the old file stays"
    with monkeypatch.context() as patched:
        patched.setattr("vrnet.files.are_finite", lambda tensors: True)
        save_weights(model, CARD, path)
    with pytest.raises(BadInput, match="NaN or infinite: give a file"):
        load_weights(path)


@pytest.mark.release
def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(stored):
    """As of the padding of the header, a bit may mean nothing."""
    path, model = stored
    whole, expected = path.read_bytes(), model.state_dict()
    start = 8 + int.from_bytes(whole[:8], "little")
    places = [*range(0, start, 331), *range(start, len(whole), len(whole) // 30)]
    refused = 0
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        try:
            again, card = load_weights(path)
        except BadInput:
            refused += 1
        else:
            assert card == CARD
            assert all(torch.equal(tensor, expected[name]) for name, tensor in again.state_dict().items())
            assert place < start
    assert refused > 0.9 * len(places)


def test_another_card_on_the_same_weights_is_refused(stored):
    path, model = stored
    said = {"sha256": checksum(model.state_dict(), header()), **header(spacing_mm=[1.8, 1.9])}
    save_file(model.state_dict(), path, metadata=said)
    with pytest.raises(BadInput, match="is damaged, its content is not that of its checksum"):
        load_weights(path)


def test_a_pipe_is_no_model(tmp_path):
    os.mkfifo(tmp_path / "m.safetensors")
    with pytest.raises(BadInput, match="no ordinary file"):
        load_weights(tmp_path / "m.safetensors")


def test_the_shipped_model_has_a_checksum_that_sha256sum_would_give():
    """Computed here by NumPy from the payload of the file, in the order of the names."""
    raw = bundled_file(SHORT_AXIS).read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    layouts = json.loads(raw[8:start])
    said = layouts.pop("__metadata__")
    found, names = said.pop("sha256"), {"F16": "torch.float16"}
    about = {name: [names[layout["dtype"]], layout["shape"]] for name, layout in layouts.items()}
    digest = hashlib.sha256(json.dumps([said, about], sort_keys=True).encode())
    for name in sorted(layouts):
        first, last = layouts[name]["data_offsets"]
        digest.update(raw[start + first : start + last])
    assert found == digest.hexdigest()


def test_a_card_is_of_two_or_three_dimensions_with_a_spacing_each():
    for spacing in ((1.0,) * 4, (1.0, -1.0), (1.0, float("nan"))):
        with pytest.raises(BadInput, match="with a spacing each"):
            replace(CARD, dimension=len(spacing), spacing_mm=spacing)
    with pytest.raises(BadInput, match="with a spacing each"):
        replace(CARD, dimension=3)


def test_a_card_names_a_segmenter_in_the_box_or_beside_the_weights(tmp_path):
    assert (CARD.channels, CARD.segmenter) == ("", "")
    card = replace(CARD, channels="anatomy", segmenter="segmenter.safetensors", cross_fitted=True)
    save_weights(parse_trainable(card.method).build(2), card, tmp_path / "m.safetensors")
    found = load_method(tmp_path / "m.safetensors")
    assert found.card == card
    assert found.details["channels"] == "anatomy (cross-fitted)"
    for wrong in ({"segmenter": "../s.safetensors"}, {"channels": "smoke"}):
        with pytest.raises(BadInput, match="in the box or beside the weights"):
            replace(card, **wrong)


def test_a_loaded_model_does_not_change_with_its_file(stored):
    path, model = stored
    again, _ = load_weights(path)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(bytes(path.stat().st_size // 2))
    for a, b in zip(again.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_loaded_model_can_be_trained_further(stored, random):
    again, _ = load_weights(stored[0])
    I0, I1 = random(1, 1, 20, 20).float(), random(1, 1, 20, 20).float()
    again(I0, I1).square().sum().backward()
    assert all(parameter.grad is not None for parameter in again.parameters())


def test_no_file_and_no_model_are_refused(tmp_path):
    with pytest.raises(BadInput, match="there is no"):
        load_weights(tmp_path / "m.safetensors")
    (tmp_path / "m.safetensors").write_bytes(b"not a model")
    with pytest.raises(BadInput, match="is damaged, or no file of tensors: give a file"):
        load_weights(tmp_path / "m.safetensors")
    with pytest.raises(BadInput, match=r"is a folder: .* give .*weights\.safetensors"):
        load_weights(tmp_path)
    with pytest.raises(BadInput, match="no ending"):
        save_weights(torch.nn.Linear(1, 1), CARD, tmp_path / "m.pt")


# Learned methods with their weights.

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


@pytest.mark.parametrize(("d", "method"), [(2 + k % 2, method) for k, method in enumerate(METHODS)])
def test_a_model_saved_and_loaded_gives_the_same_field_to_the_bit(d, method, smooth_image, tmp_path):
    before, after = trained(method, d), load_method(saved(tmp_path, method, d))
    with torch.inference_mode():
        u, v = (model.build(d)(*pair(d, smooth_image), (1.1, 2.5, 3.0)[:d]) for model in (before, after))
    assert u.abs().max() > 0.05
    assert torch.equal(u, v)
    assert after.card == before.card
    assert after.file == "m.safetensors"


def test_its_name_is_that_of_the_method_and_its_line_says_what_it_was_trained_for(tmp_path):
    model = load_method(str(saved(tmp_path, "VoxelMorph-w2")))
    assert str(model) == "VoxelMorph-w2"
    assert parse_trainable(str(model)) == parse_trainable("voxelmorph-W2")
    assert model.summary == "trained on phantoms: 2D at 1.8 x 1.8 mm"
    assert len(repr(model)) < 400


@pytest.mark.parametrize(
    ("d", "axis", "kind"),
    [
        (2, 0, "finer"),
        (2, 1, "coarser"),
        (2, 0, "the model's"),
        (3, 0, "mixed"),
        (3, 1, "nearly the model's"),
        (3, 2, "finer"),
    ],
)
def test_a_motion_in_mm_is_the_same_motion_in_mm_at_any_spacing(d, axis, kind):
    """x ↦ 1.1 x + 0.7 mm along an axis: I1 is a ramp in mm, I0(x) = I1(1.1 x + 0.7), and Flow reads the motion off."""
    h = SPACINGS[kind][:d]
    x = torch.arange(SHAPES[d][axis], dtype=torch.float32).view(-1, *[1] * (d - 1 - axis)) * h[axis]
    I1 = x.expand(1, 1, *SHAPES[d]).contiguous()
    u = Trained.of(card(d=d, spacing=OWN[d]), Flow(), "").build(d)(1.1 * I1 + 0.7, I1, h)
    assert u.shape == (1, d, *SHAPES[d])
    inside = (0, slice(None), *[slice(6, -6)] * d)
    found = u[inside].numpy() * np.reshape(h, (d, *[1] * d))
    expected = np.zeros_like(found)
    expected[axis] = 0.1 * I1[0, 0][inside[2:]] + 0.7
    assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("spacing", [None, SPACINGS["nearly the model's"]])
def test_images_at_about_the_model_s_spacing_are_left_as_they_are(d, spacing, smooth_image):
    """UK Biobank's 1.83 mm are as good as 1.8; without a spacing the model's is assumed."""
    flow, (I0, I1) = Flow(), pair(d, smooth_image)
    Trained.of(card(d=d, spacing=OWN[d]), flow, "").build(d)(I0, I1, spacing and spacing[:d])
    ((seen_0, seen_1, h),) = flow.seen
    assert (seen_0 is I0, seen_1 is I1, h) == (True, True, OWN[d])


@pytest.mark.parametrize("kind", ["finer", "mixed"])
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


# Templates.

TEMPLATE_SHAPE = {2: (32, 28), 3: (32, 28, 30)}


@pytest.fixture
def kept(smooth_image, tmp_path, d):
    """(path, model): a template on disk."""
    image = ((smooth_image(TEMPLATE_SHAPE[d], sigma=3).float() - 0.5) * 20).sigmoid()
    model = ThroughTemplate(image, torch.ones_like(image), make_solver)
    name = f"Template-{'x'.join(map(str, TEMPLATE_SHAPE[d]))}"
    card = Card(name, d, (1.0,) * d, "each", "blobs, train: 5 subjects, 2 rounds", "0.5.0", flips_in_training=False)
    save_weights(model, card, tmp_path / "t.safetensors")
    return tmp_path / "t.safetensors", model


def test_names_of_templates_say_their_shape():
    for name, shape in (("Template-48x64x48", (48, 64, 48)), ("template-9x7", (9, 7))):
        assert template_shape(name) == shape
        assert find_base(name) is None, "it is not named but read from a file"
    for name in ("Template", "Template-5", "Template-5x5x5x5", "Template-12345x5", "Template-05x5", "Template-٥x5"):
        assert template_shape(name) is None


@pytest.mark.release
def test_it_comes_back_as_it_was(kept, smooth_image, d):
    path, model = kept
    again, _ = load_weights(path)
    I0, I1 = (smooth_image(TEMPLATE_SHAPE[d], seed=k).float() for k in (1, 2))
    assert torch.equal(again(I0, I1), model(I0, I1))


def test_a_file_of_another_shape_is_refused(kept, d):
    path, model = kept
    other = Card(f"Template-{'x'.join(['9'] * d)}", d, (1.0,) * d, "each", "blobs", "0.5.0")
    save_weights(model, other, path)
    with pytest.raises(BadInput, match="do not fit"):
        load_weights(path)


def test_what_a_file_holds_is_a_method_without_a_network(kept, d):
    found = vrnet.load_method(kept[0])
    assert found.dimensions == (d,)
    assert (found.is_network, found.card.flips_in_training, found.scaling) == (False, False, "each")
    assert found.masks == vrnet.parse("Gaussian-LNCC").masks


@pytest.mark.release
def test_what_one_way_finds_the_other_takes_back(kept, d):
    """An image registered to itself hardly moves away from its border, however far it lies from the template."""
    path, model = kept
    image = warp(model.image, torch.full((1, d, *TEMPLATE_SHAPE[d]), 1.5))
    inside = (..., *[slice(8, -8)] * d)
    onward = fields_to(model, image)[inside].abs().mean()
    found = vrnet.register(image[0, 0], image[0, 0], method=vrnet.load_method(path))
    assert onward > 0.3
    assert found.field[inside].abs().mean() < onward / 4


def test_the_solver_is_that_of_local_correlation_with_smaller_boxes(d):
    plain, own = vrnet.parse("Gaussian-LNCC").build(d), make_solver(d)
    assert own.energy.data == LNCC(radii=(2.0, 4.0))
    assert own.energy.lam == {2: 0.7, 3: 0.65}[d]
    steps = [[type(part) for part in solver.modules()] for solver in (plain, own)]
    assert steps[0] == steps[1]
    assert {step.first.data.term for level in own.cascade.steps for step in level} == {own.energy.data}


@pytest.mark.release
def test_through_the_template_in_the_box_hippocampi_meet_better_than_directly(data_root, as_users_run):
    from vrnet.data.dataset import find_dataset
    from vrnet.evaluation.pair import overlap
    from vrnet.fields.calculus import warp_labels

    pairs = find_dataset("hippocampus", data_root / "hippocampus")
    dice = {"hippocampus-template": 0.0, "Gaussian-LNCC": 0.0}
    names = pairs.subjects("val")[:6]
    for sample in (pairs.prepare(name, "evaluation") for name in names):
        for method in dice:
            found = vrnet.register(sample.fixed[0, 0], sample.moving[0, 0], method=method, spacing=sample.spacing)
            warped = warp_labels(sample.moving_labels, found.field[None])
            maps = (labels[0, 0].numpy() for labels in (sample.fixed_labels, sample.moving_labels, warped))
            dice[method] += overlap(*maps, sample.spacing)["dice"]["after"]["mean"] / len(names)
    assert dice["hippocampus-template"] > dice["Gaussian-LNCC"] + 0.005
