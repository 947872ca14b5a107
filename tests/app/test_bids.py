"""Names of subjects as BIDS has them: letters and digits of ASCII."""

from dataclasses import replace
from pathlib import Path

import pytest

from vrnet import BadInput
from vrnet.app.layouts import as_bids
from vrnet.cohort.table import CohortTable, Subject


def table(*names):
    files = {"fixed": "/a.nii", "moving": "/b.nii"}
    return CohortTable(Path("pairs.csv"), (), tuple(Subject(name, files) for name in names))


def test_names_keep_their_letters_and_digits():
    named = as_bids(table("patient_01", "sub-02", "Zoë"))
    assert [one.name for one in named.subjects] == ["sub-patient01", "sub-02", "sub-Zo"]
    assert [replace(one, name="") for one in named.subjects] == [
        replace(one, name="") for one in table("", "", "").subjects
    ]


def test_names_without_any_are_refused_by_their_rows():
    with pytest.raises(BadInput, match=r'pairs\.csv has 2 rows whose subject has none .*\(row 2 "张三"; 4 "__"\)'):
        as_bids(table("p1", "张三", "p2", "__"))


def test_names_that_would_be_the_same_are_refused():
    with pytest.raises(BadInput, match="with the subject of another"):
        as_bids(table("p-1", "p_1"))
