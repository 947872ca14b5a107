import numpy as np
import pytest
import torch

from vrnet.errors import BadInput
from vrnet.images.image import as_tensors, check_spacing, field_tensor


def image(shape=(12, 12), dtype=np.float32, **voxel):
    """Random noise; value=x puts x at one voxel."""
    noise = (100 * np.random.default_rng(0).random(shape)).astype(dtype)
    noise.flat[0] = voxel.get("value", noise.flat[0])
    return noise


BAD = {
    "shapes that differ": (image((12, 12)), image((12, 13)), "one grid"),
    "dimensions that differ": (image((12, 12)), image((12, 12, 12)), "one grid"),
    "NaN": (image(value=np.nan), image(), "fixed contains NaN"),
    "infinity": (image(), image(value=np.inf), "moving contains NaN or infinite"),
    "minus infinity in a tensor": (torch.from_numpy(image(value=-np.inf)), torch.from_numpy(image()), "infinite"),
    "constant": (image(), np.full((12, 12), 3.5, np.float32), r"moving is constant \(3.5\)"),
    "1D": (image((12,)), image((12,)), "1 dimensions"),
    "4D": (image((1, 1, 12, 12)), image((1, 1, 12, 12)), "4 dimensions"),
    "0D": (np.float32(1)[None].reshape(()), image(), "0 dimensions"),
    "complex": (image(), image(dtype=np.complex64), "complex64.*real numbers"),
    "complex tensor": (torch.from_numpy(image()).cfloat(), torch.from_numpy(image()), "complex64.*real numbers"),
    "text": (image(), image().astype(str), "real numbers"),
    "a list": (image().tolist(), image(), "fixed is a list"),
    "nothing": (image(), None, "moving is a NoneType"),
    "an empty axis": (image((12, 12))[:0], image((12, 12))[:0], "no voxels"),
}


def test_bad_input_is_answered_in_one_line():
    for fixed, moving, words in BAD.values():
        with pytest.raises(BadInput, match=words) as raised:
            as_tensors(fixed, moving)
        assert len(str(raised.value).splitlines()) == 1


def test_a_good_pair_becomes_tensors_of_its_values(d):
    fixed, moving = image((12,) * d), image((12,) * d, np.float64)
    I0, I1 = as_tensors(fixed, moving)
    assert (I0.dtype, I1.dtype) == (torch.float32, torch.float64)
    np.testing.assert_array_equal(I0, fixed)
    np.testing.assert_array_equal(I1, moving)


@pytest.mark.parametrize(
    "spacing",
    [(1.0,), (1.0, 0.0), (1.0, np.nan), 1.5, ("1", "1")],
)
def test_a_spacing_is_one_positive_number_per_axis(spacing):
    with pytest.raises(BadInput, match="give 2 numbers above zero, one per axis"):
        check_spacing(spacing, 2)
    check_spacing((1.0, 2.0), 2)
    check_spacing(None, 2)


def test_a_field_has_one_component_per_axis_of_its_images(d):
    shape = (4, 5, 6)[:d]
    good = np.zeros((d, *shape), np.float16)
    assert field_tensor(good, shape).dtype == torch.float32
    for bad in (good[0], good[:1], np.moveaxis(good, 0, -1), None, good.tolist(), good + np.nan):
        with pytest.raises(BadInput, match=r"the field .*: give"):
            field_tensor(bad, shape)
