"""Whatever is in an image or transform file: it is read, or refused in one line; quickly, in little memory, and no
other file's content comes out."""

import pytest

from tests.fuzz.cases import check
from tests.fuzz.image_seeds import SEEDS


@pytest.mark.release
@pytest.mark.parametrize("kind", SEEDS)
def test_three_hundred_damaged_files_crash_nothing(kind, tmp_path):
    check("image_worker", kind, 300, tmp_path)


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", SEEDS)
def test_ten_thousand_damaged_files_crash_nothing(kind, tmp_path):
    check("image_worker", kind, 10_000, tmp_path)
