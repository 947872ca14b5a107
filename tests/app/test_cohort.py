"""The page of a cohort names what ran."""

from vrnet.app.cohort import methods_of


def test_the_methods_that_ran_are_named_as_people_know_them_the_most_frequent_first():
    """What is asked for may be `default`, which comes to one method for stacks and to another for volumes."""
    rows = [{"method": "Gaussian-LNCC"}, {"method": "short-axis"}, {"status": "failed"}, {"method": "short-axis"}]
    assert methods_of(rows) == "short-axis (C-L2-3x1-w12), Gaussian-LNCC"
    assert methods_of([{"status": "to do"}]) == ""
