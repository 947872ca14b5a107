"""An argument that a function does not have is answered with what to write instead."""

import re
from inspect import signature

import numpy as np
import pytest

from vrnet import BadInput, register, register_images, track

IMAGES = np.eye(32), np.eye(32)[::-1]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lam": 0.2}, r'method="TV-L1\(lam=0.2\)"'),
        ({"width": 8}, "has no argument width: it has fixed"),
        ({"affine": "rigid"}, r"register_images\(fixed, moving, affine='rigid'\)"),
        ({"spacin": (1, 1)}, "did you mean spacing?"),
        ({"mask": IMAGES[0]}, "did you mean fixed_mask or moving_mask?"),
        ({"fixed_labels": IMAGES[0]}, r"result\.metrics\(fixed_labels, moving_labels\)"),
        ({"fixed_label": IMAGES[0]}, r"result\.metrics\(fixed_labels, moving_labels\)"),
        ({"nonsense": IMAGES[0]}, "has no argument nonsense: it has fixed, moving, method, spacing"),
    ],
)
def test_what_to_write_instead_is_said(given, words):
    with pytest.raises(TypeError, match=words) as told:
        register(*IMAGES, **given)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("function", "inputs"), [(register, IMAGES), (register_images, IMAGES), (track, IMAGES[:1])])
def test_every_argument_is_listed(function, inputs):
    listed = ", ".join(signature(function).parameters)
    with pytest.raises(TypeError, match=re.escape(f"{function.__name__}() has no argument devise")) as told:
        function(*inputs, devise="cpu")
    assert str(told.value).endswith(f": did you mean device? It has {listed}")


def test_of_images_too():
    with pytest.raises(TypeError, match="did you mean folds"):
        register_images(*IMAGES, fold="keep")
    with pytest.raises(TypeError, match=r"result\.metrics"):
        register_images(*IMAGES, moving_labels=IMAGES[0])
    with pytest.raises(TypeError, match=r"written afterwards, by result\.report"):
        register_images(*IMAGES, report=True)


def test_files_given_as_arrays_are_answered_with_what_takes_them(as_users_run):
    with pytest.raises(BadInput, match=r"fixed is a str: .*vrnet\.register_images takes files"):
        register("ed.nii.gz", "es.nii.gz")
