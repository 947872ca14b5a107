"""Data sets by name, their splits, phantoms and hippocampi. Samples depend on where tissue is, and not on the order in
which files store axes."""

from functools import cache
from itertools import permutations

import nibabel
import numpy as np
import pytest
import torch

from tests.data.conftest import affine_of, assert_same, heart, write, write_acdc, write_splits, write_ukbb
from tests.phantoms import phantom
from vrnet import BadInput
from vrnet.data.dataset import DATASETS, PHANTOMS_3D, Hippocampus, Phantoms, find_dataset
from vrnet.data.manifest import SubjectFolder
from vrnet.fields.calculus import warp_labels


def test_each_name_builds_a_data_set_of_that_name(tmp_path):
    write(tmp_path / "a.nii.gz", np.arange(4096).reshape(16, 16, 16), np.eye(4))
    (tmp_path / "pairs.csv").write_text("fixed,moving\na.nii.gz,a.nii.gz\n")
    roots = {"folder": tmp_path, "file": tmp_path / "pairs.csv", None: None}
    for name, (summary, reads, _) in DATASETS.items():
        assert find_dataset(name, roots[reads]).name == name
        assert summary


def test_what_cannot_be_built_says_what_to_do(tmp_path):
    (tmp_path / "pairs.csv").write_text("")
    for name, root, split_file, message in (
        ("acdc4d", tmp_path, None, 'no data set "acdc4d": choose one of acdc, acdc-cycles'),
        (str(tmp_path / "pairs.csv"), None, None, "manifest, and name the file or folder with `root=.*pairs.csv`"),
        (str(tmp_path), None, None, "one of acdc,.*, and name the file or folder with `root=.*`"),
        ("acdc", None, None, "read from a folder, and there is none: name it with `root`"),
        ("manifest", None, None, "read from a file"),
        ("phantom", tmp_path, None, "made on the spot: leave `root` out"),
        ("ukbb", tmp_path / "none", None, "read from a folder, and there is no "),
        ("ukbb", tmp_path / "pairs.csv", None, "read from a folder, and there is no "),
        ("manifest", tmp_path, None, "read from a file, and there is no "),
        ("phantom3d", None, tmp_path / "pairs.csv", "takes no file of splits"),
    ):
        with pytest.raises(BadInput, match=message):
            find_dataset(name, root, split_file)


def test_another_file_of_splits_takes_the_place_of_the_folder_s(tmp_path):
    (tmp_path / "mine.csv").write_text("subject,split\na,fold1\nb,fold2\n")
    assert find_dataset("acdc", tmp_path, tmp_path / "mine.csv").subjects("fold2") == ["b"]
    with pytest.raises(BadInput, match=r"there is no .*split\.csv"):
        find_dataset("acdc", tmp_path).subjects("fold2")


def test_a_split_is_listed_in_the_order_of_the_file(tmp_path):
    (tmp_path / "split.csv").write_text("\ufeffpatient,group,split\nb,NOR,test\nc,NOR,train\na,DCM, test\n", "utf-8")
    assert SubjectFolder(tmp_path).subjects("test") == ["b", "a"]


def test_an_unknown_split_is_answered_with_those_there(tmp_path):
    (tmp_path / "split.csv").write_text("subject,split\na,train\nb,test\n")
    with pytest.raises(BadInput, match=r'"val" of .*split\.csv.*\(test, train\)'):
        SubjectFolder(tmp_path).subjects("val")


@pytest.mark.parametrize("text", [None, "subject\na\n", b"\xff\xfe\x00"])
def test_a_file_that_is_missing_or_of_another_form_is_answered_with_the_form(tmp_path, text):
    path = tmp_path / "split.csv"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadInput, match='two columns, the lines "subject,split", "patient001,train"') as error:
        SubjectFolder(tmp_path).subjects("train")
    assert "\n" not in str(error.value)


def test_nobody_is_in_two_splits(tmp_path):
    (tmp_path / "split.csv").write_text("subject,split\na,train\nb,test\na,test\n")
    with pytest.raises(BadInput, match='lists "a" 2 times'):
        SubjectFolder(tmp_path).subjects("train")


def test_a_subject_without_a_split_is_named(tmp_path):
    (tmp_path / "split.csv").write_text("subject,split\na,train\nb,\n")
    with pytest.raises(BadInput, match="does not say in which split b is: fill the column in"):
        SubjectFolder(tmp_path).subjects("train")


def test_names_of_several_lines_are_told_in_one(tmp_path):
    (tmp_path / "split.csv").write_text('subject,split\n"a\nb",train\n"a\nb",test\n')
    with pytest.raises(BadInput, match=r"\\n") as error:
        SubjectFolder(tmp_path).subjects("train")
    assert str(error.value).isprintable()


def test_a_subject_is_the_phantom_of_its_seed():
    data = Phantoms()
    assert data.subjects("val") == [f"phantom-{seed}" for seed in range(1000, 1010)]
    sample, made = data.prepare("phantom-1003", "evaluation"), phantom(1003)
    for name in ("fixed", "moving", "fixed_labels", "moving_labels", "field"):
        assert torch.equal(getattr(sample, name), getattr(made, name))
    assert sample.spacing == (1.8, 1.8)
    assert data.sources("phantom-1003", "evaluation") == []


def test_the_field_brings_the_moving_labels_onto_the_fixed(d):
    data = Phantoms(shape={2: (96, 96), 3: (48, 48, 48)}[d], spacing={2: 2.4, 3: 4.8}[d])
    sample = data.prepare("phantom-0001", "evaluation")
    inside = sample.fixed_labels > 0
    warped = warp_labels(sample.moving_labels, sample.field)
    assert (warped == sample.fixed_labels)[inside].float().mean() > 0.9


@pytest.mark.parametrize("data", [Phantoms(), PHANTOMS_3D()])
def test_no_patient_is_in_two_splits(data):
    splits = [data.subjects(split) for split in ("train", "val", "test")]
    assert [len(split) for split in splits] == list(data.counts.values())
    assert len({name for split in splits for name in split}) == sum(data.counts.values())
    with pytest.raises(BadInput, match="choose one of train, val, test"):
        data.subjects("tset")


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


@pytest.mark.parametrize(
    ("name", "purpose"),
    [("acdc", "training"), ("acdc3d", "evaluation"), ("ukbb", "evaluation"), ("cmr3d", "training"),
     ("hippocampus", "evaluation"), ("manifest", "training")],
)  # fmt: skip
def test_the_order_of_the_axes_changes_no_bit_of_a_sample(name, purpose, tmp_path):
    root = write_folder(name, tmp_path)
    expected = find_dataset(name, root).prepare("s", purpose)
    store_otherwise(tmp_path, ORDERS[2])
    assert_same(find_dataset(name, root).prepare("s", purpose), expected)


@pytest.mark.parametrize("name", ["acdc", "manifest"])
def test_the_way_that_axes_run_changes_a_sample_by_rounding_alone(name, tmp_path):
    root = write_folder(name, tmp_path)
    expected = find_dataset(name, root).prepare("s", "evaluation")
    store_otherwise(tmp_path, (1, 2, 0), (-1, 1, -1))
    found = find_dataset(name, root).prepare("s", "evaluation")
    for part in ("fixed", "moving"):
        torch.testing.assert_close(getattr(found, part), getattr(expected, part), atol=1e-4, rtol=0)
        labels = getattr(found, f"{part}_labels"), getattr(expected, f"{part}_labels")
        assert (labels[0] != labels[1]).float().mean() < 1e-4


def test_phases_and_labels_of_a_subject_may_be_stored_each_in_its_own_way(tmp_path):
    root = write_folder("acdc", tmp_path)
    expected = find_dataset("acdc", root).prepare("s", "evaluation")
    for order, path in zip(ORDERS, sorted(tmp_path.rglob("*.nii.gz")), strict=False):
        image = nibabel.load(path)
        turn = np.array([[order.index(axis), 1] for axis in range(3)])
        nibabel.save(nibabel.Nifti1Image(np.asarray(image.dataobj), image.affine).as_reoriented(turn), path)
    assert_same(find_dataset("acdc", root).prepare("s", "evaluation"), expected)


# Hippocampi.

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
