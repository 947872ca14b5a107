import time

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import torch

from tests.data.conftest import brightest, spots, write
from vrnet import BadInput, Grid, Image
from vrnet.data.manifest import MAX_HEADERS, Manifest
from vrnet.data.prepared import prepare_split
from vrnet.images.io import write_image

LPS = np.array([-1, -1, 1])


def write_listing(folder, *lines):
    (folder / "pairs.csv").write_text("\n".join(lines))
    return folder / "pairs.csv"


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 1000, shape)


def axis_aligned(spacing, origin=(0, 0, 0)):
    affine = np.diag([*spacing, 1.0])
    affine[:3, 3] = origin
    return affine


def test_volumes_of_any_grid_come_to_one_with_their_landmarks(tmp_path):
    """A landmark lies as far from the centre of fixed as its world coordinates (LPS) say, in either image."""
    grids = {
        "a_fixed": (axis_aligned((1.5, 1.5, 1.5)), (50, 44, 40)),
        "a_moving": (axis_aligned((-2, 2, 2.5), (80, -10, 0)), (45, 40, 30)),
        "b_fixed": (axis_aligned((2, -2, 2), (7, 60, 3)), (40, 30, 28)),
        "b_moving": (axis_aligned((1, 1, 1)), (90, 64, 62)),
    }
    marks = {"a_fixed": (30, 40, 25), "a_moving": (40, 30, 33), "b_fixed": (40, 30, 30), "b_moving": (50, 36, 26)}
    for name, (affine, shape) in grids.items():
        write(tmp_path / f"{name}.nii.gz", spots(affine, shape, marks[name]), affine)
    pairs = [f"{name}_fixed.nii.gz,{name}_moving.nii.gz" for name in "ab"]
    data = Manifest.read(write_listing(tmp_path, "fixed,moving", *pairs))
    assert data.spacing == (1.5, 1.5, 1.5)
    assert data.shape == (64, 48, 48)  # b is 80x60x56 mm
    for pair, name in (("pair001", "a"), ("pair002", "b")):
        sample = data.prepare(pair, "training")
        affine, shape = grids[f"{name}_fixed"]
        middle = nibabel.affines.apply_affine(affine, (np.array(shape) - 1) / 2)
        for part in ("fixed", "moving"):
            index = brightest(getattr(sample, part)[0, 0].numpy())
            found = (index - (np.array(data.shape) - 1) / 2) * 1.5
            np.testing.assert_allclose(found, LPS * (marks[f"{name}_{part}"] - middle), atol=0.3)


def test_pictures_are_registered_in_2d(tmp_path):
    for name, shape in (("a", (40, 30)), ("b", (40, 30)), ("c", (50, 60)), ("d", (50, 60))):
        sitk.WriteImage(sitk.GetImageFromArray(noise(*shape).astype(np.uint8).T), tmp_path / f"{name}.png")
    pairs = "a.png,b.png,first,train", "c.png,d.png,,val"
    data = Manifest.read(write_listing(tmp_path, "fixed,moving,name,split", *pairs))
    assert (data.spacing, data.shape) == ((1.0, 1.0), (64, 64))
    assert (data.subjects("train"), data.subjects("val")) == (["first"], ["pair002"])
    assert data.prepare("first", "training").fixed.shape == (1, 1, 64, 64)


def test_thick_stacks_are_registered_slice_by_slice(tmp_path):
    """Whichever axis the slices lie across; those that show nothing are left out."""
    image = noise(40, 30, 6)
    image[..., 5] = 0
    write(tmp_path / "a.nii.gz", image, axis_aligned((1.5, 1.5, 8)))
    write(tmp_path / "b.nii.gz", image.transpose(2, 0, 1), axis_aligned((8, 1.5, 1.5)))
    data = Manifest.read(write_listing(tmp_path, "fixed,moving", "a.nii.gz,a.nii.gz", "b.nii.gz,b.nii.gz"))
    assert (data.spacing, data.shape) == ((1.5, 1.5), (48, 32))
    for name in data.subjects("train"):
        sample = data.prepare(name, "training")
        assert sample.fixed.shape == (5, 1, 48, 32)
        assert torch.equal(sample.fixed, sample.moving)
    low, high = np.percentile(image, (1, 99))
    seen = np.clip((image[::-1, ::-1, 0] - low) / (high - low), 0, 1)
    np.testing.assert_allclose(data.prepare("pair001", "training").fixed[0, 0, 4:44, 1:31], seen, atol=1e-3)


def test_both_images_share_one_scaling(tmp_path):
    image = noise(24, 24, 24)
    write(tmp_path / "a.nii.gz", image, np.eye(4))
    write(tmp_path / "b.nii.gz", image // 2, np.eye(4))
    sample = Manifest.read(write_listing(tmp_path, "fixed,moving", "a.nii.gz,b.nii.gz")).prepare("pair001", "training")
    bright = (sample.fixed > 0.2) & (sample.fixed < 0.9)
    assert (sample.moving / sample.fixed)[bright].median() == pytest.approx(0.5, abs=0.02)


def test_labels_come_along_and_name_themselves(tmp_path):
    labels = np.zeros((32, 32, 16), int)
    labels[4:12, 4:12, 4:12], labels[20:28, 4:12, 4:12] = 7, 41
    for name in "ab":
        write(tmp_path / f"{name}.nii.gz", noise(32, 32, 16), np.eye(4))
        write(tmp_path / f"{name}_seg.nii.gz", labels * (labels == 7) if name == "a" else labels, np.eye(4))
    columns = "fixed,moving,fixed_labels,moving_labels"
    data = Manifest.read(
        write_listing(tmp_path, columns, "a.nii.gz,b.nii.gz,a_seg.nii.gz,b_seg.nii.gz", "a.nii.gz,b.nii.gz,,")
    )
    for purpose in ("evaluation", "training"):
        for _ in range(2):  # found, then recalled
            assert prepare_split(data, "train", purpose, tmp_path / "cache").structures == {"7": 7, "41": 41}
        sample = data.prepare("pair001", purpose)
        assert [(sample.fixed_labels == 7).sum(), (sample.moving_labels == 41).sum()] == [512, 512]
        assert data.prepare("pair002", purpose).fixed_labels is None
        assert [len(data.sources(name, purpose)) for name in ("pair001", "pair002")] == [4, 2]


def test_labels_of_one_image_alone_are_not_measured(tmp_path):
    write(tmp_path / "a.nii.gz", noise(16, 16, 16), np.eye(4))
    write(tmp_path / "seg.nii.gz", noise(16, 16, 16) % 3, np.eye(4))
    data = Manifest.read(write_listing(tmp_path, "fixed,moving,fixed_labels", "a.nii.gz,a.nii.gz,seg.nii.gz"))
    assert [path.name for path in data.sources("pair001", "evaluation")] == ["a.nii.gz", "a.nii.gz"]
    sample = data.prepare("pair001", "evaluation")
    assert (sample.fixed_labels, sample.moving_labels) == (None, None)


def test_without_a_column_of_splits_all_is_trained_on_and_nothing_else(tmp_path):
    write(tmp_path / "a.nii.gz", noise(16, 16, 16), np.eye(4))
    data = Manifest.read(write_listing(tmp_path, "fixed,moving", "a.nii.gz,a.nii.gz"))
    assert data.subjects("train") == ["pair001"]
    with pytest.raises(BadInput, match=r'no column split, so all is in "train": add one to have a "val" too$'):
        data.subjects("val")
    with pytest.raises(BadInput, match=r'a "test" too, or give `split="train"`$'):
        data.subjects("test")


def test_pairs_that_do_not_fit_the_first_are_refused_by_name(tmp_path):
    write(tmp_path / "volume.nii.gz", noise(16, 16, 16), np.eye(4))
    write(tmp_path / "stack.nii.gz", noise(16, 16, 4), axis_aligned((1, 1, 9)))
    write(tmp_path / "far.nii.gz", noise(16, 16, 16), axis_aligned((1, 1, 1), (500, 0, 0)))
    sitk.WriteImage(sitk.GetImageFromArray(noise(16, 16).astype(np.uint8)), tmp_path / "flat.png")
    pairs = [f"volume.nii.gz,{other}" for other in ("volume.nii.gz", "far.nii.gz", "flat.png")]
    data = Manifest.read(write_listing(tmp_path, "fixed,moving", *pairs, "stack.nii.gz,stack.nii.gz", "volume.nii.gz,"))
    reasons = ("do not overlap", "is 3D and .*flat.png 2D", "registered in 2D, and .* first pair in 3D", "not named in")
    for number, reason in enumerate(reasons, start=2):
        with pytest.raises(BadInput, match=reason):
            data.prepare(f"pair{number:03d}", "training")


def test_a_file_that_lists_no_pairs_is_answered_with_the_form(tmp_path):
    with pytest.raises(BadInput, match='one row per pair, "fixed,moving,split"'):
        Manifest.read(write_listing(tmp_path, "fixed,moving"))
    with pytest.raises(BadInput, match="no pairs of images in the columns reference, Moving: give it one row per pair"):
        Manifest.read(write_listing(tmp_path, "reference,Moving", "a,b"))
    (tmp_path / "text.nii.gz").write_text("no image")
    unreadable = Manifest.read(write_listing(tmp_path, "fixed,moving", *["text.nii.gz,text.nii.gz"] * 3))
    with pytest.raises(BadInput, match=r"^no fixed image .* can be read: its paths are relative to"):
        prepare_split(unreadable, "train", "training", tmp_path / "cache")
    with pytest.raises(BadInput, match='lists "x" 2 times'):
        Manifest.read(write_listing(tmp_path, "fixed,moving,name", "a,b,x", "a,c,x"))


def test_columns_separated_otherwise_are_named(tmp_path):
    with pytest.raises(BadInput, match="separated by semicolons: separate them by commas"):
        Manifest.read(write_listing(tmp_path, "fixed;moving", "a;b"))


def test_a_column_with_nearly_the_right_name_is_not_passed_over(tmp_path):
    with pytest.raises(BadInput, match='has a column "fixed_label": did you mean fixed_labels'):
        Manifest.read(write_listing(tmp_path, "fixed,moving,fixed_label", "a,b,c"))


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        (("subject,fixed,moving", "anna,a.nii.gz,a.nii.gz", "bela,a.nii.gz,a.nii.gz"), ["anna", "bela"]),
        (("subject,fixed,moving", "anna,a.nii.gz,a.nii.gz", "anna,a.nii.gz,a.nii.gz"), ["pair001", "pair002"]),
        (("subject,name,fixed,moving", "anna,one,a.nii.gz,a.nii.gz"), ["one"]),
    ],
)
def test_pairs_of_a_cohort_s_list_have_the_names_of_their_subjects_if_these_differ(tmp_path, lines, names):
    write(tmp_path / "a.nii.gz", noise(16, 16, 16), np.eye(4))
    assert Manifest.read(write_listing(tmp_path, *lines)).subjects("train") == names


@pytest.mark.release
def test_a_hundred_thousand_rows_are_refused_within_five_seconds_where_no_file_is_there(tmp_path):
    """Few files are looked for, however many are listed."""
    lines = (f"{name}/sa_ED.nii.gz,{name}/sa_ES.nii.gz,train,{name}" for name in range(100_000))
    start = time.process_time()
    data = Manifest.read(write_listing(tmp_path, "fixed,moving,split,name", *lines))
    with pytest.raises(
        BadInput, match=rf"^no fixed image .*tried: {MAX_HEADERS}.* can be read: its paths are relative"
    ):
        prepare_split(data, "train", "training", tmp_path / "cache")
    assert time.process_time() - start < 5


def test_of_a_long_file_some_headers_are_read_evenly_spread(tmp_path, monkeypatch):
    """The first among them, which gives the spacing."""
    names = [f"{number}.nii.gz" for number in range(100)]
    for number, name in enumerate(names):
        write(tmp_path / name, noise(16, 16, 16), axis_aligned((1.0 + number / 100,) * 3))
    monkeypatch.setattr("vrnet.data.manifest.MAX_HEADERS", 10)
    data = Manifest.read(write_listing(tmp_path, "fixed,moving", *(f"{name},{name}" for name in names)))
    assert [grid.spacing[0] for grid in data.grids] == pytest.approx([1.0 + k / 10 for k in range(10)])
    assert (data.spacing, data.shape) == ((1.0, 1.0, 1.0), (32, 32, 32))


@pytest.mark.parametrize(
    ("shape", "spacing", "expected", "common"),
    [
        ((50, 40), (1.0, 1.0), (1.0, 1.0), (64, 48)),
        ((30, 40, 50), (1.0, 1.2, 1.0), (1.0, 1.2, 1.0), (32, 48, 64)),
        ((60, 50, 9), (1.367, 1.367, 8.0), (1.37, 1.37), (64, 64)),
        ((60, 50, 1), (1.5, 1.5, 1.5), (1.5, 1.5), (64, 64)),
        ((128, 96, 16), (1.2, 1.2, 1.2), (1.2, 1.2, 1.2), (128, 96, 16)),  # in a header a little more
    ],
)
def test_the_grid_leaves_out_the_axis_across_slices_and_has_room_in_multiples_of_16(
    tmp_path, shape, spacing, expected, common
):
    write_image(Image(noise(*shape).astype(np.int16), Grid.plain(shape, spacing)), tmp_path / "a.mha")
    data = Manifest.read(write_listing(tmp_path, "fixed,moving", "a.mha,a.mha"))
    assert (data.spacing, data.shape) == (expected, common)
    sample = data.prepare("pair001", "training")
    assert sample.fixed.shape == (shape[2] if len(expected) < len(shape) else 1, 1, *common)
