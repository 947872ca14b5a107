import numpy as np
import pytest
import torch

from tests.data.making import assert_same, parts_of, random_sample
from vrnet.data.stored import arrays_of, load, sample_of, save


@pytest.mark.parametrize("has_labels", [False, True])
def test_images_come_back_to_half_a_step_and_all_else_to_the_bit(tmp_path, d, has_labels):
    sample = random_sample("é/1", 0, shape=(8, 6, 5)[:d], labels=has_labels, field=has_labels)
    save(sample, tmp_path / "x.npz")
    back = load(tmp_path / "x.npz")
    assert (back.name, back.spacing) == (sample.name, sample.spacing)
    for name, part in parts_of(sample).items():
        if part is None:
            assert getattr(back, name) is None
        elif name in ("fixed", "moving"):
            assert (getattr(back, name) - part).abs().max() <= 0.51 / 65535
        else:
            assert torch.equal(getattr(back, name), part)


def test_what_was_in_steps_stays_as_it_is():
    once = sample_of(arrays_of(random_sample("x", 1)))
    assert_same(sample_of(arrays_of(once)), once)
    steps = torch.arange(65536, dtype=torch.float64) / 65535
    images = {"fixed": steps.float()[None, None], "moving": steps.float()[None, None]}
    sample = type(once)("x", spacing=(1.0,), **images)
    assert (arrays_of(sample)["fixed"][0, 0] == np.arange(65536)).all()


def harmed(arrays, harm):
    changes = {
        "kind": {"fixed": arrays["fixed"].astype(np.float32)},
        "shape": {"moving": arrays["moving"][:1]},
        "labels": {"fixed_labels": arrays["fixed_labels"][..., :-1]},
        "field": {"field": arrays["field"][:, :1]},
        "spacing": {"spacing": np.ones(3)},
        "scalar": {"fixed": np.uint16(1)},
    }
    kept = {name: array for name, array in arrays.items() if name != harm}
    return kept | changes.get(harm, {})


@pytest.mark.parametrize("harm", ["kind", "shape", "labels", "field", "spacing", "scalar", "moving", "name"])
def test_other_arrays_are_no_sample(tmp_path, harm):
    np.savez(tmp_path / "x.npz", **harmed(arrays_of(random_sample("x", 0)), harm))
    assert load(tmp_path / "x.npz") is None


def test_a_damaged_file_is_no_sample(tmp_path):
    """Cut at any of 40 places, or with a byte changed at any of 40: nothing but the whole sample, or none."""
    sample = sample_of(arrays_of(random_sample("x", 0)))
    save(sample, path := tmp_path / "x.npz")
    whole = path.read_bytes()
    assert load(tmp_path / "none.npz") is None
    for at in range(0, len(whole), len(whole) // 40):
        path.write_bytes(whole[:at])
        assert load(path) is None
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        if (found := load(path)) is not None:  # the byte was one that a zip file holds twice, or not at all
            assert_same(found, sample)


def test_a_pickle_is_not_opened(tmp_path):
    np.savez(tmp_path / "x.npz", fixed=np.array([{}], dtype=object))
    assert load(tmp_path / "x.npz") is None
