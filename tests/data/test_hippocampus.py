import nibabel
import numpy as np
import pytest
import torch

from tests.data.conftest import write, write_splits
from vrnet import BadInput
from vrnet.data.dataset import Hippocampus

SIZES = {"h1": (35, 51, 36), "h2": (34, 50, 41), "h3": (31, 40, 24), "h4": (35, 50, 36)}


def images_of(name):
    random = np.random.default_rng(len(name) + int(name[1:]))
    image = random.integers(0, 200, SIZES[name]) * int(name[1:])
    labels = np.zeros(SIZES[name], int)
    labels[10:20, 15:25, 8:14], labels[10:20, 25:35, 8:14] = 1, 2
    return image, labels


@pytest.fixture
def root(tmp_path):
    for name in SIZES:
        image, labels = images_of(name)
        write(tmp_path / "images" / f"{name}.nii.gz", image, np.eye(4))
        write(tmp_path / "labels" / f"{name}.nii.gz", labels, np.eye(4), np.uint8)
    write_splits(tmp_path, train=["h4"], test=["h3", "h1", "h2"])
    return tmp_path


def test_each_is_paired_with_the_next_of_its_split_and_the_last_with_the_first(root):
    data = Hippocampus(root)
    samples = {name: data.prepare(name, "evaluation") for name in data.subjects("test")}
    for fixed, moving in (("h3", "h1"), ("h1", "h2"), ("h2", "h3")):
        assert torch.equal(samples[fixed].moving, samples[moving].fixed)
        assert torch.equal(samples[fixed].moving_labels, samples[moving].fixed_labels)
        files = [f"images/{fixed}", f"images/{moving}", f"labels/{fixed}", f"labels/{moving}"]
        assert data.sources(fixed, "evaluation") == [root / f"{file}.nii.gz" for file in files]
        assert data.sources(fixed, "training") == data.sources(fixed, "evaluation")
    with pytest.raises(BadInput, match="alone in the split"):
        data.sources("h4", "training")


def test_labels_are_needed_to_be_measured_on_and_not_to_be_trained_on(root):
    data, labelled = Hippocampus(root), Hippocampus(root).prepare("h3", "training")
    (root / "labels" / "h1.nii.gz").unlink()
    assert len(data.sources("h3", "training")) == 2
    assert len(data.sources("h3", "evaluation")) == 4
    sample = data.prepare("h3", "training")
    assert sample.fixed_labels is sample.moving_labels is None
    assert torch.equal(sample.moving, labelled.moving)


def test_every_voxel_is_kept_as_it_is_about_the_centre(root):
    """The grid has 1 mm too: images are padded and turned to the axes of LPS, which NIfTI's oppose, never blurred."""
    for name in ("h3", "h1", "h2"):
        sample = Hippocampus(root).prepare(name, "evaluation")
        assert sample.fixed.shape == sample.fixed_labels.shape == (1, 1, 48, 64, 48)
        assert sample.spacing == (1.0, 1.0, 1.0)
        image, labels = (part[::-1, ::-1] for part in images_of(name))
        low, high = np.percentile(image, (1, 99))
        scaled = np.clip((image - low) / (high - low), 0, 1)
        seen = sample.fixed_labels[0, 0].numpy()
        offset = np.argwhere(seen == 1).min(0) - np.argwhere(labels == 1).min(0)
        assert (np.abs(offset - (np.array([48, 64, 48]) - image.shape) / 2) <= 0.5).all()
        moved = tuple(slice(o, o + m) for o, m in zip(offset, image.shape, strict=True))
        assert (seen[moved] == labels).all()
        assert seen.sum() == labels.sum()
        np.testing.assert_allclose(sample.fixed[0, 0].numpy()[moved], scaled, atol=1e-4)


@pytest.mark.release
def test_no_real_hippocampus_is_cut(data_root):
    data = Hippocampus(data_root / "hippocampus")
    assert [len(data.subjects(split)) for split in ("train", "val", "test")] == [140, 20, 40]
    for path in sorted((data_root / "hippocampus" / "images").glob("*.nii.gz")):
        assert (np.array(nibabel.load(path).shape) <= data.shape).all()
    for name in data.subjects("test")[:3]:
        labels = nibabel.load(data_root / "hippocampus" / "labels" / f"{name}.nii.gz").get_fdata()
        sample = data.prepare(name, "evaluation")
        for value in data.structures.values():
            assert (sample.fixed_labels == value).sum() == (labels == value).sum()
