import pytest

from vrnet import BadInput
from vrnet.training.loss import parse_sum
from vrnet.variational.data_terms import DATA_TERMS, LNCC, MIND, NMI


@pytest.mark.parametrize(
    "made",
    [
        "NMI(bins=1)",
        "NMI(bins=100000)",
        "LNCC(radii=(-1.0,))",
        "LNCC(radii=())",
        "LNCC(radii=0)",
        "LNCC(radii=(2,1e9))",
        "LNCC(epsilon=-1)",
        "MIND(radius=-2)",
        "MIND(distance=-1)",
        "MIND(distance=1e9)",
        "Remap(radii=())",
    ],
)
def test_numbers_that_make_no_sense_are_bad_input_that_says_what_would(made):
    term, name = made.split("(")[0], made.split("(")[1].split("=")[0]
    with pytest.raises(BadInput, match=rf"^{name} of {term} is .*: give .* from .* to "):
        parse_sum(made, DATA_TERMS)


def test_numbers_at_the_ends_of_what_may_be_are_taken():
    assert NMI(bins=2).bins == 2
    assert MIND(distance=0.0, radius=0.0).radius == 0
    assert LNCC(radii=(1.0, 1000.0), epsilon=0.0).radii == (1, 1000)
