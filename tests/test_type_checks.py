import pytest
import torch
from beartype import beartype
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from tests.type_checks import CHECKED_CALLS, check_first_calls
from vrnet.fields.calculus import warp
from vrnet.images.grid import Grid

I, u = torch.zeros(1, 1, 8, 8), torch.zeros(1, 2, 8, 8)


@pytest.mark.parametrize("calls", [0, CHECKED_CALLS - 1])
def test_a_shape_that_does_not_fit_is_refused_at_the_first_calls_of_a_test(calls):
    for _ in range(calls):
        warp(I, u)
    with pytest.raises(TypeCheckError):
        warp(I, u[..., 1:])


def test_a_type_that_does_not_fit_is_refused_where_an_object_is_made():
    with pytest.raises(TypeCheckError):
        Grid("8x8", (1.0, 1.0), (0.0, 0.0), (1.0, 0.0, 0.0, 1.0))


def test_later_calls_are_not_checked_and_do_the_same():
    @check_first_calls(typechecker=beartype)
    def double(x: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
        return 2 * x

    for _ in range(CHECKED_CALLS):
        with pytest.raises(TypeCheckError):
            double(torch.ones(2, 3))
    assert torch.equal(double(torch.ones(2, 3)), torch.full((2, 3), 2.0))


def test_a_function_that_is_made_again_and_again_is_one_function():
    """As one within another, which is made at each call of that: to build its check takes longer than most calls."""

    def make():
        @check_first_calls(typechecker=beartype)
        def double(x: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
            return 2 * x

        return double

    for _ in range(CHECKED_CALLS):
        with pytest.raises(TypeCheckError):
            make()(torch.ones(2, 3))
    assert torch.equal(make()(torch.ones(2, 3)), torch.full((2, 3), 2.0))
