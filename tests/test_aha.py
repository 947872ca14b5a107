"""The segments as Cerqueira et al. number them: six basal, six mid, four apical ones, which cover the wall once."""

import pytest

from vrnet.vocabulary import SEGMENTS, level_of_slice


def test_each_direction_at_each_level_is_in_one_segment():
    for level in range(3):
        for psi in range(360):
            holds = [
                s
                for s in SEGMENTS
                if s.level == level and abs((psi + 0.5 - s.centre_deg + 180) % 360 - 180) < s.half_width_deg
            ]
            assert len(holds) == 1


def test_the_numbers_are_those_of_the_paper():
    names = {s.number: s.name for s in SEGMENTS}
    assert sorted(names) == list(range(1, 17))
    assert (names[1], names[8], names[10], names[14]) == (
        "basal anterior",
        "mid anteroseptal",
        "mid inferior",
        "apical septal",
    )


def test_the_septum_begins_at_the_anterior_insertion():
    starts = {s.number: (s.centre_deg - s.half_width_deg) % 360 for s in SEGMENTS}
    assert (starts[2], starts[3], starts[4], starts[1]) == (0, 60, 120, 300)
    assert (starts[14], starts[15], starts[16], starts[13]) == (15, 105, 195, 285)


@pytest.mark.parametrize(("n", "levels"), [(1, "1"), (2, "02"), (3, "012"), (9, "000111222"), (10, "0001111222")])
def test_levels_are_thirds(n, levels):
    assert "".join(str(level_of_slice(k, n)) for k in range(n)) == levels
