import pytest

from vrnet.errors import BadInput
from vrnet.registration.arrays import check_axes


@pytest.mark.parametrize(
    ("shape", "slice_axis", "words"),
    [((12, 12), 0, "only volumes have slices"), ((4, 4, 4), 3, "only volumes have slices"),
     ((4, 4, 4), 1.5, "give 0, 1 or 2"),
     ((12, 1), None, "at least 2 voxels"), ((1, 4, 4), None, "at least 2 voxels"), ((4, 1, 4), 2, "at least 2 voxels")],
)  # fmt: skip
def test_every_axis_but_the_one_across_slices_has_two_voxels(shape, slice_axis, words, as_users_run):
    with pytest.raises(BadInput, match=words):
        check_axes(shape, slice_axis)
    check_axes((1, 4, 4), 0)
