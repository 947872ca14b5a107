import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import torch

from tests.data.making import brightest, spots, write
from vrnet import BadInput
from vrnet.data.manifest import Manifest

LPS = np.array([-1, -1, 1])


def listing(folder, *lines):
    (folder / "pairs.csv").write_text("\n".join(lines))
    return folder / "pairs.csv"


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 1000, shape)


def straight(spacing, origin=(0, 0, 0)):
    affine = np.diag([*spacing, 1.0])
    affine[:3, 3] = origin
    return affine


def test_volumes_of_any_grid_come_to_one_with_their_landmarks(tmp_path):
    """A landmark lies as far from the centre of fixed as its world coordinates (LPS) say, in either image."""
    grids = {
        "a_fixed": (straight((1.5, 1.5, 1.5)), (50, 44, 40)),
        "a_moving": (straight((-2, 2, 2.5), (80, -10, 0)), (45, 40, 30)),
        "b_fixed": (straight((2, -2, 2), (7, 60, 3)), (40, 30, 28)),
        "b_moving": (straight((1, 1, 1)), (90, 64, 62)),
    }
    marks = {"a_fixed": (30, 40, 25), "a_moving": (40, 30, 33), "b_fixed": (40, 30, 30), "b_moving": (50, 36, 26)}
    for name, (affine, shape) in grids.items():
        write(tmp_path / f"{name}.nii.gz", spots(affine, shape, marks[name]), affine)
    data = Manifest.read(listing(tmp_path, "fixed,moving", *(f"{n}_fixed.nii.gz,{n}_moving.nii.gz" for n in "ab")))
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
    data = Manifest.read(listing(tmp_path, "fixed,moving,name,split", "a.png,b.png,first,train", "c.png,d.png,,val"))
    assert (data.spacing, data.shape) == ((1.0, 1.0), (64, 64))
    assert (data.subjects("train"), data.subjects("val")) == (["first"], ["pair002"])
    assert data.prepare("first", "training").fixed.shape == (1, 1, 64, 64)


def test_thick_stacks_are_registered_slice_by_slice(tmp_path):
    """Whichever axis the slices lie across; those that show nothing are left out."""
    image = noise(40, 30, 6)
    image[..., 5] = 0
    write(tmp_path / "a.nii.gz", image, straight((1.5, 1.5, 8)))
    write(tmp_path / "b.nii.gz", image.transpose(2, 0, 1), straight((8, 1.5, 1.5)))
    data = Manifest.read(listing(tmp_path, "fixed,moving", "a.nii.gz,a.nii.gz", "b.nii.gz,b.nii.gz"))
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
    sample = Manifest.read(listing(tmp_path, "fixed,moving", "a.nii.gz,b.nii.gz")).prepare("pair001", "training")
    bright = (sample.fixed > 0.2) & (sample.fixed < 0.9)
    assert (sample.moving / sample.fixed)[bright].median() == pytest.approx(0.5, abs=0.02)


def test_labels_come_along_to_be_measured_on_and_name_themselves(tmp_path):
    labels = np.zeros((32, 32, 16), int)
    labels[4:12, 4:12, 4:12], labels[20:28, 4:12, 4:12] = 7, 41
    for name in "ab":
        write(tmp_path / f"{name}.nii.gz", noise(32, 32, 16), np.eye(4))
        write(tmp_path / f"{name}_seg.nii.gz", labels * (labels == 7) if name == "a" else labels, np.eye(4))
    columns = "fixed,moving,fixed_labels,moving_labels"
    data = Manifest.read(
        listing(tmp_path, columns, "a.nii.gz,b.nii.gz,a_seg.nii.gz,b_seg.nii.gz", "a.nii.gz,b.nii.gz,,")
    )
    assert data.structures == {"7": 7, "41": 41}
    sample = data.prepare("pair001", "evaluation")
    assert [(sample.fixed_labels == 7).sum(), (sample.moving_labels == 41).sum()] == [512, 512]
    assert data.prepare("pair001", "training").fixed_labels is None
    assert data.prepare("pair002", "evaluation").fixed_labels is None
    assert len(data.sources("pair001", "evaluation")) == 4
    assert len(data.sources("pair002", "evaluation")) == len(data.sources("pair001", "training")) == 2


@pytest.mark.parametrize("line", ["a.nii.gz,a.nii.gz,seg.nii.gz,", "a.nii.gz,a.nii.gz,,seg.nii.gz"])
def test_labels_of_one_image_alone_are_not_measured(tmp_path, line):
    write(tmp_path / "a.nii.gz", noise(16, 16, 16), np.eye(4))
    write(tmp_path / "seg.nii.gz", noise(16, 16, 16) % 3, np.eye(4))
    data = Manifest.read(listing(tmp_path, "fixed,moving,fixed_labels,moving_labels", line))
    assert [path.name for path in data.sources("pair001", "evaluation")] == ["a.nii.gz", "a.nii.gz"]
    sample = data.prepare("pair001", "evaluation")
    assert (sample.fixed_labels, sample.moving_labels) == (None, None)


def test_without_a_column_of_labels_there_are_no_structures(tmp_path):
    write(tmp_path / "a.nii.gz", noise(16, 16, 16), np.eye(4))
    assert Manifest.read(listing(tmp_path, "fixed,moving", "a.nii.gz,a.nii.gz")).structures == {}


def test_without_a_column_of_splits_all_is_trained_on_and_nothing_else(tmp_path):
    write(tmp_path / "a.nii.gz", noise(16, 16, 16), np.eye(4))
    data = Manifest.read(listing(tmp_path, "fixed,moving", "a.nii.gz,a.nii.gz"))
    assert data.subjects("train") == ["pair001"]
    with pytest.raises(BadInput, match='no column split, so all is in "train"'):
        data.subjects("val")


def test_pairs_that_do_not_fit_the_first_are_refused_by_name(tmp_path):
    write(tmp_path / "volume.nii.gz", noise(16, 16, 16), np.eye(4))
    write(tmp_path / "stack.nii.gz", noise(16, 16, 4), straight((1, 1, 9)))
    write(tmp_path / "far.nii.gz", noise(16, 16, 16), straight((1, 1, 1), (500, 0, 0)))
    sitk.WriteImage(sitk.GetImageFromArray(noise(16, 16).astype(np.uint8)), tmp_path / "flat.png")
    pairs = [f"volume.nii.gz,{other}" for other in ("volume.nii.gz", "far.nii.gz", "flat.png")]
    data = Manifest.read(listing(tmp_path, "fixed,moving", *pairs, "stack.nii.gz,stack.nii.gz", "volume.nii.gz,"))
    reasons = ("do not overlap", "is 3D and .*flat.png 2D", "registered in 2D, and .* first pair in 3D", "not named in")
    for number, reason in enumerate(reasons, start=2):
        with pytest.raises(BadInput, match=reason):
            data.prepare(f"pair{number:03d}", "training")


def test_a_file_that_lists_no_pairs_is_answered_with_the_form(tmp_path):
    with pytest.raises(BadInput, match='a line a pair, "fixed,moving,split"'):
        Manifest.read(listing(tmp_path, "fixed,moving"))
    wanted = "fixed and moving and, where wanted, fixed_labels, moving_labels, split, name"
    with pytest.raises(BadInput, match=f"has the columns reference, Moving: they should be {wanted}"):
        Manifest.read(listing(tmp_path, "reference,Moving", "a,b"))
    with pytest.raises(BadInput, match="paths are relative to"):
        Manifest.read(listing(tmp_path, "fixed,moving", "nowhere.nii.gz,nowhere.nii.gz"))
    with pytest.raises(BadInput, match='lists "x" 2 times'):
        Manifest.read(listing(tmp_path, "fixed,moving,name", "a,b,x", "a,c,x"))


@pytest.mark.parametrize(("mark", "called"), [(";", "semicolons"), ("\t", "tabs")])
def test_columns_separated_otherwise_are_named(tmp_path, mark, called):
    with pytest.raises(BadInput, match=f"separated by {called}: separate them by commas"):
        Manifest.read(listing(tmp_path, mark.join(("fixed", "moving")), mark.join("ab")))


@pytest.mark.parametrize(("name", "meant"), [("fixed_label", "fixed_labels"), ("Split", "split"), ("names", "name")])
def test_a_column_with_nearly_the_right_name_is_not_passed_over(tmp_path, name, meant):
    with pytest.raises(BadInput, match=f'has a column "{name}": did you mean "{meant}"'):
        Manifest.read(listing(tmp_path, f"fixed,moving,{name}", "a,b,c"))


def test_columns_of_the_owner_s_own_are_passed_over(tmp_path):
    write(tmp_path / "a.nii.gz", noise(16, 16, 16), np.eye(4))
    data = Manifest.read(listing(tmp_path, "fixed,moving,site,age", "a.nii.gz,a.nii.gz,here,50"))
    assert data.subjects("train") == ["pair001"]
