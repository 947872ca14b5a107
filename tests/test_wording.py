from vrnet.wording import in_runs, numbered


def test_neighbouring_numbers_are_named_together():
    assert in_runs([4, 5, 6, 8, 10, 11]) == "4 to 6, 8, 10 to 11"


def test_slices_are_counted_from_one_whatever_their_order():
    assert numbered("slice", [11]) == "slice 12"
    assert numbered("slice", (11, 3, 1, 2)) == "slices 2 to 4, 12"
