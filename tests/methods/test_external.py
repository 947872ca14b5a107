"""External tools give fields in voxels, fixed to moving, as ours are."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import vrnet
from tests.methods.test_solvers import moved_texture
from vrnet.methods.external import Demons
from vrnet.methods.names import parse
from vrnet.methods.parameters import PerDimension
from vrnet.variational.linearize import Masks


@pytest.mark.release
@pytest.mark.parametrize("name", ["FFD(iterations=15)", "Demons", "SyN"])
def test_an_external_tool_recovers_a_known_motion(d, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    I0, I1, u = moved_texture(d)
    found = parse(name).build(d)(I0, I1, (4.0, 3.0, 3.5)[:d])[0].numpy()
    assert found.dtype == np.float32
    inside = (slice(6, -6),) * d
    before, after = (np.linalg.norm(error, axis=0)[inside].mean() for error in (u, found - u))
    assert after < before / 1.5
    assert not list(tmp_path.iterdir()), "nothing is left in the working directory"


@pytest.mark.release
def test_each_pair_of_a_batch_is_registered_by_itself():
    I0, I1, _ = moved_texture(2)
    both = parse("Demons").build(2)(torch.cat([I0, I1]), torch.cat([I1, I0]), None)
    alone = parse("Demons").build(2)(I1, I0, None)
    torch.testing.assert_close(both[1:], alone)


def test_a_parameter_may_have_a_value_for_each_dimension(d):
    I0, I1, _ = moved_texture(d)
    brief = Demons(sigma=PerDimension(1.0, 2.0), iterations=PerDimension((2,), (3,)))
    found, same, other = (
        method.build(d)(I0, I1, None)
        for method in (brief, Demons(sigma=d - 1.0, iterations=(d,)), replace(brief, sigma=4.0 - d))
    )
    torch.testing.assert_close(found, same)
    assert not torch.allclose(found, other)


@pytest.mark.release
@pytest.mark.parametrize("name", ["FFD(iterations=30)", "Demons", "SyN"])
def test_external_tools_keep_to_masks(name, tmp_path, monkeypatch):
    """What lies outside has no influence, and what lies inside has more than without masks."""
    monkeypatch.chdir(tmp_path)
    I0, I1, _ = moved_texture(2)
    inside = torch.zeros_like(I1)
    inside[..., 8:-8, 8:-8] = 1
    masks, bright = Masks(torch.ones_like(I0), inside), torch.where(inside > 0, I1, 3.0)
    pairs = [(I0[0, 0], image[0, 0]) for image in (I1, bright)]
    fields = [vrnet.register(*pair, name, spacing=(3.0, 3.0), moving_mask=inside[0, 0]).field for pair in pairs]
    assert torch.equal(*fields)
    find = parse(name).build(2)
    assert not torch.allclose(find(I0, I1, (3.0, 3.0), masks), find(I0, I1, (3.0, 3.0)), atol=1e-2)


def test_where_nothing_is_to_be_compared_no_tool_is_asked():
    I0, I1, _ = moved_texture(2)
    left, right = torch.zeros_like(I0), torch.zeros_like(I0)
    left[..., :8], right[..., -8:] = 1, 1
    assert not parse("Demons").build(2)(I0, I1, None, Masks(left, right)).any()
