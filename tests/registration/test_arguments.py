"""An argument that a function does not have is answered with what to write instead."""

import numpy as np
import pytest

from vrnet import register, register_images

IMAGES = np.eye(32), np.eye(32)[::-1]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lam": 0.2}, r'method="TV-L1\(lam=0.2\)"'),
        ({"affine": "rigid"}, r"register_images\(fixed, moving, affine='rigid'\)"),
        ({"spacin": (1, 1)}, "did you mean spacing?"),
    ],
)
def test_what_to_write_instead_is_said(given, words):
    with pytest.raises(TypeError, match=words):
        register(*IMAGES, **given)


def test_of_images_too():
    with pytest.raises(TypeError, match="did you mean folds"):
        register_images(*IMAGES, fold="keep")
