"""Samples depend on where tissue is, and not on the order of the axes in which files store it."""

from functools import cache
from itertools import permutations

import nibabel
import numpy as np
import pytest
import torch

from tests.data.conftest import affine_of, assert_same, heart, write, write_acdc, write_splits, write_ukbb
from vrnet.data.dataset import find_dataset

SPACING = (1.4, 1.4, 9.0)
ORDERS = list(permutations(range(3)))[1:]


@cache
def subject():
    return heart(3, size=(72, 66))


def write_folder(name, root):
    """A data set with two subjects that are stored obliquely; the file that names them, or the folder."""
    images, labels = subject()
    affine = affine_of(SPACING)
    if name in ("acdc", "acdc3d"):
        write_acdc(root, "s", images, labels, affine)
    elif name in ("ukbb", "cmr3d"):
        write_ukbb(root / "s", images, labels, affine)
    elif name == "hippocampus":
        for key, image, mask in zip("st", images, labels, strict=True):
            write(root / "images" / f"{key}.nii.gz", image, affine)
            write(root / "labels" / f"{key}.nii.gz", np.minimum(mask, 2), affine, np.uint8)
    else:
        write_ukbb(root, images, labels, affine)
        row = "s,sa_ED.nii.gz,sa_ES.nii.gz,label_sa_ED.nii.gz,label_sa_ES.nii.gz"
        (root / "pairs.csv").write_text(f"name,fixed,moving,fixed_labels,moving_labels\n{row}")
        return root / "pairs.csv"
    write_splits(root, test=["s", "t"] if name == "hippocampus" else ["s"])
    return root


def store_otherwise(root, order, signs=(1, 1, 1)):
    """Permute and turn round the axes of every NIfTI file of a folder, by nibabel."""
    turn = np.array([[order.index(axis), signs[order.index(axis)]] for axis in range(3)])
    for path in root.rglob("*.nii.gz"):
        image = nibabel.load(path)
        nibabel.save(nibabel.Nifti1Image(np.asarray(image.dataobj), image.affine).as_reoriented(turn), path)


@pytest.mark.parametrize("purpose", ["training", "evaluation"])
@pytest.mark.parametrize("name", ["acdc", "acdc3d", "ukbb", "cmr3d", "hippocampus", "manifest"])
def test_the_order_of_the_axes_changes_no_bit_of_a_sample(name, purpose, tmp_path):
    root = write_folder(name, tmp_path)
    expected = find_dataset(name, root).prepare("s", purpose)
    for order in ORDERS[::2]:
        write_folder(name, tmp_path)
        store_otherwise(tmp_path, order)
        assert_same(find_dataset(name, root).prepare("s", purpose), expected)


@pytest.mark.parametrize("name", ["acdc", "acdc3d", "ukbb", "cmr3d", "hippocampus", "manifest"])
def test_the_way_that_axes_run_changes_a_sample_by_rounding_alone(name, tmp_path):
    root = write_folder(name, tmp_path)
    expected = find_dataset(name, root).prepare("s", "evaluation")
    store_otherwise(tmp_path, (1, 2, 0), (-1, 1, -1))
    found = find_dataset(name, root).prepare("s", "evaluation")
    for part in ("fixed", "moving"):
        torch.testing.assert_close(getattr(found, part), getattr(expected, part), atol=1e-4, rtol=0)
        labels = getattr(found, f"{part}_labels"), getattr(expected, f"{part}_labels")
        assert (labels[0] != labels[1]).float().mean() < 1e-4
    assert found.spacing == expected.spacing


def test_phases_and_labels_of_a_subject_may_be_stored_each_in_its_own_way(tmp_path):
    root = write_folder("acdc", tmp_path)
    expected = find_dataset("acdc", root).prepare("s", "evaluation")
    for order, path in zip(ORDERS, sorted(tmp_path.rglob("*.nii.gz")), strict=False):
        image = nibabel.load(path)
        turn = np.array([[order.index(axis), 1] for axis in range(3)])
        nibabel.save(nibabel.Nifti1Image(np.asarray(image.dataobj), image.affine).as_reoriented(turn), path)
    assert_same(find_dataset("acdc", root).prepare("s", "evaluation"), expected)
