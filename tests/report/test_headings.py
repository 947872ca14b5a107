"""Every measure of a cohort's table has a heading in words, with its unit."""

import pytest

from vrnet.app import subject as cohort_works
from vrnet.cardiac.strain import MEASURES
from vrnet.cohort.results import FIRST, LAST
from vrnet.report.cohort import heading


def test_every_column_that_we_make_has_a_heading():
    twice = [f"{name}_{when}" for name in ("ncc", "mae", *cohort_works.OVERLAPS) for when in ("before", "after")]
    peaks = [f"peak_{measure.name}_percent" for measure in MEASURES]
    ours = *FIRST, *LAST, *twice, *peaks, *cohort_works.FIELD, *cohort_works.VOLUMES, "closure_forward_mm", "dice_LV"
    assert [name for name in ours if heading(name) == name or "_" in heading(name)] == []
    units = {"_mm": "(mm)", "_percent": "(%)", "_ml": "(ml)", "_g": "(g)"}
    for name in ours:
        for end, unit in units.items():
            assert (f"{end}_" in f"{name}_") == (unit in heading(name)), name


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("surface_mm_after", "Surface distance after (mm)"),
        ("dice_Myo", "Dice of Myo after"),
        ("my_scanner", "My_scanner"),
    ],
)
def test_a_heading_is_words_and_a_unit(column, words):
    assert heading(column) == words
