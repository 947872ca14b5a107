import json
from dataclasses import asdict, replace

import jaxtyping
import pytest
import torch
from safetensors.torch import load_file, save_file

from vrnet import BadInput
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


def test_the_card_is_plain_text_in_the_header(saved):
    raw = saved[0].read_bytes()
    assert b"C-L2-2x1-w4" in raw[:2000]
    assert b"phantoms" in raw[:2000]


def header(**changes):
    values = {"method": CARD.method, "dimension": 2, "spacing_mm": [1.8, 1.8], "normalisation": "each"}
    return {"vrnet": json.dumps({**values, "trained_on": "", "version": "0.1.0", **changes})}


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (None, "does not hold a model of vrnet"),
        ({"vrnet": "{"}, "does not hold a model of vrnet"),
        ({"vrnet": "{}"}, "does not hold a model of vrnet"),
        (header(method="R-L1-6x1-w8"), "of another model"),
        (header(method="VoxelMorph-w4000"), "of another model"),
        (header(method="TV-L1"), 'a model called "TV-L1", which this vrnet does not know'),
        (header(method="R-L1-0x1"), "no steps"),
        (header(dimension=4), "does not hold a model of vrnet"),
        (header(dimension=3), "does not hold a model of vrnet"),
        (header(spacing_mm=[1.8, 0]), "does not hold a model of vrnet"),
        (header(normalisation="as it comes"), "does not hold a model of vrnet"),
        (header(spacing_mm="ab"), "does not hold a model of vrnet"),
        ({"vrnet": "[]"}, "does not hold a model of vrnet"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path, metadata, words):
    save_file({"x": torch.zeros(3)}, tmp_path / "m.safetensors", metadata=metadata)
    with pytest.raises(BadInput, match=words) as raised:
        load_weights(tmp_path / "m.safetensors")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(saved, value):
    path, model = saved
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] = value
    with pytest.raises(BadInput, match="NaN or infinite"):
        save_weights(model, CARD, path)
    assert load_weights(path)[1] == CARD, "the old file stays"
    save_file(model.state_dict(), path, metadata={"vrnet": json.dumps(asdict(CARD))})
    with pytest.raises(BadInput, match="not finite"):
        load_weights(path)


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
    with pytest.raises(BadInput, match="does not hold a model"):
        load_weights(tmp_path / "m.safetensors")
    with pytest.raises(BadInput, match=r"is a folder: .* give .*weights\.safetensors"):
        load_weights(tmp_path)
    with pytest.raises(BadInput, match="no ending"):
        save_weights(torch.nn.Linear(1, 1), CARD, tmp_path / "m.pt")
