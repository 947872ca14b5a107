import hashlib
import json
import os
from dataclasses import asdict, replace

import jaxtyping
import pytest
import torch
from safetensors.torch import load_file, save_file

from vrnet import BadInput
from vrnet.files import checksum, write_tensors
from vrnet.methods.bundled import BUNDLED, SHORT_AXIS
from vrnet.methods.names import parse_trainable
from vrnet.methods.weights import Card, load_weights, save_weights

CARD = Card("C-L2-2x1-w4", 2, (1.8, 1.8), "jointly", "phantoms", "0.1.0")


@pytest.fixture
def saved(tmp_path):
    """(path, model): a model of random weights on disk."""
    torch.manual_seed(1)
    model = parse_trainable(CARD.method).build(2)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    save_weights(model, CARD, tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors", model


def test_a_model_comes_back_as_it_was(saved, random):
    path, model = saved
    again, card = load_weights(path)
    I0, I1 = random(1, 1, 20, 20).float(), random(1, 1, 20, 20).float()
    assert card == CARD
    assert not again.training
    with torch.no_grad():
        assert torch.equal(again(I0, I1), model(I0, I1))


def test_reading_draws_no_random_numbers(saved):
    """A model of every kind of layer is built without them."""
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    load_weights(saved[0])
    assert torch.equal(torch.rand(3), expected)


def test_half_precision_takes_half_the_room_and_nearly_the_same_weights(saved, tmp_path):
    path, model = saved
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


def test_the_card_is_plain_text_in_the_header(saved):
    raw = saved[0].read_bytes()
    assert b"C-L2-2x1-w4" in raw[:2000]
    assert b"phantoms" in raw[:2000]


def header(**changes):
    return {"vrnet": json.dumps(asdict(CARD) | changes)}


NOT_OURS = "was not written by vrnet"
WRONG_KEY = "m.safetensors is not as vrnet writes it, "


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({}, NOT_OURS),
        ({"vrnet": "{"}, 'has no JSON under "vrnet"'),
        ({"vrnet": "[" * 100_000}, 'has no JSON under "vrnet"'),
        ({"vrnet": "[]"}, WRONG_KEY + "Expected `object`"),
        ({"vrnet": "{}"}, WRONG_KEY + ".*missing required field `method`"),
        (header(colour="red"), WRONG_KEY + "the key 'colour' is not known"),
        (header(method=3), WRONG_KEY + "Expected `str`, got `int`"),
        (header(method="a\nb"), "no line of text"),
        (header(version="x" * 9999), "no line of text"),
        (header(method="R-L1-6x1-w8"), "of another model"),
        (header(method="VoxelMorph-w4000"), "of another model"),
        (header(method="TV-L1"), 'a model called "TV-L1", which this vrnet does not know'),
        (header(method="../../etc/passwd"), "which this vrnet does not know"),
        (header(method="R-L1-0x1"), "m.safetensors .*no steps"),
        (header(method="R-L2-1000000x1000"), "100 at most"),
        (header(method="R-L2-" + "9" * 900 + "x1"), "which this vrnet does not know"),
        (header(method="R-L2-1x1-w-3"), "which this vrnet does not know"),
        (header(method="R-L2-1x1(theta=-1)"), "no θ above zero"),
        (header(dimension=4), WRONG_KEY + ".*4 with"),
        (header(dimension=3), WRONG_KEY + ".*3 with"),
        (header(dimension=2.0), "Expected `int`, got `float`"),
        (header(dimension=True), "Expected `int`, got `bool`"),
        (header(spacing_mm=[1.8, 0]), WRONG_KEY),
        (header(spacing_mm=[1.8, 1e-30]), WRONG_KEY),
        (header(spacing_mm=[1.8, float("nan")]), "no finite number"),
        (header(spacing_mm="ab"), "Expected `array`"),
        (header(normalisation="as it comes"), "Invalid enum value 'as it comes'"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path, metadata, words):
    write_tensors({"x": torch.zeros(3)}, tmp_path / "m.safetensors", metadata)
    with pytest.raises(BadInput, match=words) as raised:
        load_weights(tmp_path / "m.safetensors")
    assert len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < 1500


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(saved, value, monkeypatch):
    path, model = saved
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] = value
    with pytest.raises(BadInput, match="NaN or infinite"):
        save_weights(model, CARD, path)
    assert load_weights(path)[1] == CARD, "the old file stays"
    with monkeypatch.context() as patched:
        patched.setattr("vrnet.files.are_finite", lambda tensors: True)
        save_weights(model, CARD, path)
    with pytest.raises(BadInput, match="NaN or infinite: give a file"):
        load_weights(path)


def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(saved):
    """As of the padding of the header, a bit may mean nothing."""
    path, model = saved
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


def test_another_card_on_the_same_weights_is_refused(saved):
    path, model = saved
    said = {"sha256": checksum(model.state_dict(), header()), **header(spacing_mm=[1.8, 1.9])}
    save_file(model.state_dict(), path, metadata=said)
    with pytest.raises(BadInput, match="is damaged, its content is not that of its checksum"):
        load_weights(path)


def test_a_file_larger_than_memory_is_refused_before_it_is_read(saved, monkeypatch):
    monkeypatch.setattr("vrnet.devices.available_memory", lambda: 1000.0)
    with pytest.raises(BadInput, match="GB are free"):
        load_weights(saved[0])


def test_a_pipe_is_no_model(tmp_path):
    os.mkfifo(tmp_path / "m.safetensors")
    with pytest.raises(BadInput, match="no ordinary file"):
        load_weights(tmp_path / "m.safetensors")


def test_the_shipped_model_has_a_checksum_that_sha256sum_would_give():
    """Computed here by NumPy from the payload of the file, in the order of the names."""
    raw = BUNDLED[SHORT_AXIS].file.read_bytes()
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


@pytest.mark.parametrize("spacing", [(), (1.8,), (1.0,) * 4, (1.0, -1.0), (0.0, 1.0, 1.0), (1.0, float("nan"))])
def test_a_card_is_of_two_or_three_dimensions_with_a_spacing_each(spacing):
    with pytest.raises(BadInput, match="with a spacing each"):
        replace(CARD, dimension=len(spacing), spacing_mm=spacing)
    with pytest.raises(BadInput, match="with a spacing each"):
        replace(CARD, dimension=3)


def test_a_card_knows_two_ways_to_scale_images(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # types are not enforced where vrnet is used
    with pytest.raises(BadInput, match='jointly or each, not "as it comes"'):
        replace(CARD, normalisation="as it comes")


def test_a_loaded_model_does_not_change_with_its_file(saved):
    path, model = saved
    again, _ = load_weights(path)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(bytes(path.stat().st_size // 2))
    for a, b in zip(again.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_loaded_model_can_be_trained_further(saved, random):
    again, _ = load_weights(saved[0])
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
