import numpy as np
import torch

from vrnet.verdict.evidence import range_of_moving


def spread_over(low, high):
    """A thousand intensities, evenly from low to high."""
    return torch.from_numpy(np.linspace(low, high, 1000))


def test_the_range_of_moving_is_that_of_warped_where_hardly_any_of_it_was_seen_before():
    """As where headers put it beside fixed: all that is seen before is an even border."""
    seen = range_of_moving(spread_over(10, 11), spread_over(0, 300))
    assert seen.width > 250
    assert abs(seen.middle - 150) < 5
    for after in (spread_over(0, 150), spread_over(0, 10), spread_over(40, 60)):
        assert abs(range_of_moving(spread_over(0, 100), after).middle - 50) < 2
