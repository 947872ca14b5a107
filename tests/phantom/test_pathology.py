import pytest
import torch

from vrnet.errors import BadInput
from vrnet.phantom.anatomy import RandomSource
from vrnet.phantom.cycle import NORMAL, PATHOLOGIES, Infarct, anterior_insertion, find_pathology


@pytest.fixture
def heart():
    return NORMAL.draw_heart(RandomSource.seeded(1))


def at(heart, psi_deg):
    """The direction at an angle from the anterior insertion along the septum."""
    angle = torch.tensor(anterior_insertion(heart) - torch.pi * psi_deg / 180)
    return torch.stack([angle.cos(), angle.sin()])


def test_the_anterior_insertion_is_where_the_right_ventricle_ends(heart):
    angle = torch.tensor(anterior_insertion(heart)).double() + torch.tensor([-0.01, 0.01]).double()
    epi = heart.radii(angle.cos())[1]
    p = torch.stack([epi * angle.cos(), epi * angle.sin(), torch.full_like(epi, heart.belly)])
    inside, outside = heart.right_ventricle(p)
    assert inside < 0 < outside


@pytest.mark.parametrize(("segment", "psi", "level"), [(1, 330, 0), (8, 30, 1), (10, 150, 1), (14, 60, 2)])
def test_an_infarct_is_in_its_segment_and_nowhere_else(heart, segment, psi, level):
    infarct = Infarct.of(heart, [segment], remaining=0.2, is_stack=True)
    third = (heart.belly + heart.length - heart.base) / 3
    z = heart.base + third * (torch.arange(3) + 0.5)
    inside = [infarct(at(heart, psi)[:, None].expand(2, 3).float(), z)[k].item() for k in range(3)]
    assert inside[level] == pytest.approx(0.2, abs=0.1)
    assert [share for k, share in enumerate(inside) if k != level] == pytest.approx([1, 1], abs=0.01)
    assert infarct(at(heart, psi + 180)[:, None].expand(2, 3).float(), z).tolist() == pytest.approx([1] * 3, abs=0.01)


def test_neighbouring_segments_of_an_infarct_are_joined(heart):
    infarct = Infarct.of(heart, (7, 8), remaining=0.0, is_stack=False)
    assert infarct(at(heart, 0.0)[:, None].float(), torch.zeros(1)).item() == pytest.approx(0, abs=0.01)


def test_an_infarct_that_a_slice_cannot_show_is_refused(heart):
    with pytest.raises(BadInput, match="7 to 12"):
        Infarct.of(heart, (1, 2), 0.2, is_stack=False)
    with pytest.raises(BadInput, match="1 to 16"):
        Infarct.of(heart, (17,), 0.2, is_stack=True)


def test_dilated_hearts_are_wide_and_thin_and_hypertrophic_ones_narrow_and_thick():
    drawn = {name: p.draw_heart(RandomSource.seeded(0)) for name, p in PATHOLOGIES.items()}
    assert drawn["hypertrophic"].endo < drawn["normal"].endo < drawn["dilated"].endo
    assert drawn["dilated"].wall < drawn["normal"].wall < drawn["hypertrophic"].wall


def test_an_unknown_pathology_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match="normal, dilated, hypertrophic, infarct"):
        find_pathology("healthy")
