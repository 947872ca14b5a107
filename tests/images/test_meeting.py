"""Things that lie apart in space are told of, and things that meet, however different in size, are not."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import vrnet
from vrnet.errors import InputWarning
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.transforms import Transform, load_chain


def grid_at(d, place, side=20, spacing=2.0):
    """A cube whose first voxel is at (place, place, …)."""
    return replace(Grid.plain((side,) * d, (spacing,) * d), origin=(float(place),) * d)


def ramp(grid):
    """An image whose value is the index along its first axis."""
    return Image(np.indices(grid.shape)[0].astype(np.int16), grid, "seg.nii.gz")


def shift(grid, by):
    return Transform(np.full((len(grid.shape), *grid.shape), float(by)), grid)


def told(function):
    """What a call warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(one.message) for one in caught if issubclass(one.category, InputWarning)]


@pytest.mark.parametrize("method", ["apply", "apply_labels"])
def test_an_image_that_lies_elsewhere_is_told_of(d, method):
    transform = shift(grid_at(d, 0), 3.0)
    (message,) = told(lambda: getattr(transform, method)(ramp(grid_at(d, 500))))
    assert "no place in seg.nii.gz" in message
    assert "empty" in message
    assert not told(lambda: getattr(shift(grid_at(d, 0), 500.0), method)(ramp(grid_at(d, 500))))


@pytest.mark.parametrize("sides", [(20, 3), (3, 60)], ids=["a small crop", "a small reference"])
def test_a_small_thing_within_a_large_one_is_no_reason_to_warn(d, sides):
    large, small = sides
    transform = shift(grid_at(d, 14, large), 0.5)
    assert not told(lambda: transform.apply(ramp(grid_at(d, 15, small))))


def test_a_crop_that_falls_between_the_points_that_are_tried_is_found(d):
    transform = shift(grid_at(d, 0, 64, 1.0), 0.0)
    assert not told(lambda: transform.apply(ramp(grid_at(d, 3.6, 2, 0.5))))


@pytest.fixture
def chain(d, tmp_path):
    """From a to b and from b to c, each on its grid, as files."""
    a, b = grid_at(d, 0, 20), grid_at(d, 0, 22)
    for name, grid in (("ab", a), ("bc", b)):
        shift(grid, 1.0).save(tmp_path / f"{name}.mha")
    return tmp_path / "ab.mha", tmp_path / "bc.mha", a


def test_a_chain_in_the_wrong_order_is_told_of(chain):
    ab, bc, a = chain
    assert not told(lambda: load_chain([ab, bc], a))
    (message,) = told(lambda: load_chain([bc, ab], a))
    assert "ab.mha is on the grid of the reference" in message
    first, second = Transform.load(bc), Transform.load(ab)
    assert any("transform 2 is on the grid" in said for said in told(lambda: vrnet.compose(first, second, grid=a)))
    assert not told(lambda: vrnet.compose(second, first))


def test_a_chain_whose_grids_do_not_meet_is_told_of(d, chain, tmp_path):
    ab, _, a = chain
    shift(grid_at(d, 900), 1.0).save(tmp_path / "far.mha")
    (message,) = told(lambda: load_chain([ab, tmp_path / "far.mha"], a))
    assert "in the grid of" in message
    assert "far.mha" in message
    (message,) = told(lambda: load_chain([tmp_path / "far.mha"], a))
    assert "nothing moves" in message


def test_a_chain_is_followed_to_where_it_leads(d, chain, tmp_path):
    """The second field lies far away, and the first leads there."""
    a = chain[2]
    shift(a, 900.0).save(tmp_path / "far.mha")
    shift(grid_at(d, 900), 1.0).save(tmp_path / "there.mha")
    assert not told(lambda: load_chain([tmp_path / "far.mha", tmp_path / "there.mha"], a))
