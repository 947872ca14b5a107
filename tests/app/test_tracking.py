from dataclasses import replace

import nibabel
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import ndimage

from vrnet import BadInput, Cine, Grid, Image, InputWarning, Transform, track
from vrnet.app.cine import (
    Tracking,
    film_of,
    interpret_labels,
    is_open,
    notes_on_tracking,
    open_slices,
    prepare_tracking,
    quality,
    summary,
    write_tracking,
)
from vrnet.app.console import tracking_table
from vrnet.cardiac.labels import heart_of
from vrnet.cardiac.wall import HeartLabels
from vrnet.data.labels import find_cavity
from vrnet.phantom import cycle
from vrnet.registration.arrays import Repair
from vrnet.registration.cine import TrackedFrames
from vrnet.report.cine import headline, volume_table

GRID = Grid.plain((96, 96, 3), (1.8, 1.8, 10.0))


@pytest.fixture(scope="module")
def beat():
    return cycle(2, GRID.shape, GRID.spacing, frames=5)


@pytest.fixture(scope="module")
def exact(beat):
    """The result of tracking that makes no mistake."""
    found = TrackedFrames(
        beat.fields.numpy(), np.full((2, 3, *GRID.shape), 0.1), "truth", None, "cpu", 2, (None,) * 5, 1.0
    )
    cine = Cine(beat.frames.numpy(), GRID, beat.times_ms)
    return Tracking(cine, 0, found, Image(beat.labels.numpy(), GRID), HeartLabels())


def test_a_frame_comes_back_to_the_reference(beat, exact):
    left = np.abs(exact.warped(2).array - beat.frames[0].numpy())[beat.labels.numpy() > 0].mean()
    assert left < 0.4 * (beat.frames[2] - beat.frames[0]).abs()[beat.labels > 0].mean()
    assert all(isinstance(transform, Transform) for transform in exact.transforms)


def test_volumes_and_strain_are_those_of_the_motion(beat, exact):
    assert_allclose(exact.volumes.lv_ml, beat.volumes.lv_ml, rtol=0.03)
    assert exact.strain.peak("green_circumferential").percent < -5
    assert exact.strain.times_ms == beat.times_ms


def test_closure_is_the_mean_length_in_mm_over_the_labels(exact):
    length = 0.1 * np.linalg.norm(GRID.spacing)
    assert_allclose([*exact.closure_mm.values()], [length, length], rtol=1e-6)


def test_frames_whose_folds_were_repaired_are_told(exact):
    repair = Repair(1.0, 2.5, 0.1, 0.2, 0.3, 0.4, (0, 0, 0))
    repairs = None, repair, None, replace(repair, changed_percent=4.0), None
    mended = replace(exact, found=replace(exact.found, repairs=repairs))
    (note,) = notes_on_tracking(mended)
    assert "in 2 of 5 frames" in note
    assert "frame 4, 4 %" in note  # as people count
    assert notes_on_tracking(exact) == []
    assert summary(mended)["frames_with_repaired_folds"] == [1, 3]


def test_without_labels_there_is_motion_alone(exact):
    bare = Tracking(exact.cine, 0, exact.found)
    assert (bare.labels, bare.volumes, bare.strain) == (None, None, None)


def test_a_lone_label_is_the_wall_and_what_it_encloses_the_cavity(beat):
    """A voxel that is missing in the wall is no cavity."""
    labels = beat.labels.numpy()
    inner = ndimage.binary_erosion(labels == 2, np.ones((3, 3, 1)))
    pit = np.zeros_like(inner)
    pit[tuple(np.argwhere(inner)[0])] = True
    wall = (labels == 2) & ~pit
    with pytest.warns(InputWarning, match="taken for the wall"):
        found, heart = interpret_labels(Image(wall.astype(np.uint8), GRID))
    assert (heart.wall, heart.lv) == (1, 3)
    assert_array_equal(found.array == heart.wall, wall)
    assert_array_equal(found.array == heart.lv, labels == 3)


def test_a_lone_3_is_the_cavity_unless_it_encloses_one(beat):
    labels = beat.labels.numpy()
    with pytest.warns(InputWarning, match="taken for the cavity"):
        found, heart = interpret_labels(Image(np.where(labels == 3, 3, 0), GRID))
    assert heart == HeartLabels(rv=None, wall=None, lv=3)
    assert_array_equal(found.array == 3, labels == 3)
    with pytest.warns(InputWarning, match="taken for the wall, and what it encloses is labelled 4"):
        assert interpret_labels(Image(np.where(labels == 2, 3, 0), GRID))[1] == HeartLabels(rv=None, wall=3, lv=4)


def test_a_papillary_muscle_left_out_makes_no_wall_of_a_cavity(beat):
    cavity = beat.labels.numpy() == 3
    middle = np.argwhere(cavity[..., 1]).mean(0).astype(int)
    cavity[middle[0] - 2 : middle[0] + 3, middle[1] - 2 : middle[1] + 3] = False
    with pytest.warns(InputWarning, match="taken for the cavity"):
        assert interpret_labels(Image(np.where(cavity, 3, 0), GRID))[1].wall is None


def test_a_lone_label_that_encloses_next_to_nothing_says_how_to_name_the_cavity_and_has_none(beat):
    """A pit of one voxel is no cavity."""
    disc = (beat.labels.numpy() == 3).astype(np.uint8)
    disc[(*np.argwhere(disc[..., 1]).mean(0).astype(int), 1)] = 0
    with pytest.warns(InputWarning, match='encloses next to nothing; if it is the cavity, give `label_names="1=LV"`'):
        assert (interpret_labels(Image(disc, GRID))[0].array != 3).all()


def test_a_pit_beside_the_middle_of_an_open_wall_is_no_cavity_and_a_small_one_in_the_middle_of_a_ring_is(beat):
    wall = (beat.labels.numpy() == 2).astype(np.uint8)
    x, y = (int(middle) for middle in np.argwhere(wall[..., 0]).mean(0))
    open_, ring = np.zeros_like(wall[..., 0]), np.zeros_like(wall[..., 0])
    open_[x - 9 : x + 10, y - 9 : y + 10], open_[x - 5 : x + 6, y - 5 :] = 1, 0
    open_[x - 7, y] = 0
    ring[x - 5 : x + 6, y - 5 : y + 6], ring[x, y] = 1, 0
    with pytest.warns(InputWarning, match="taken for the wall"):
        found, heart = interpret_labels(Image(np.stack([open_, ring, *np.moveaxis(wall, -1, 0)[2:]], -1), GRID))
    assert not (found.array[..., 0] == heart.lv).any()
    assert np.argwhere(found.array[..., 1] == heart.lv).tolist() == [[x, y]]
    assert open_slices(found, heart) == (0,)
    assert_array_equal(found.array[..., 2] == heart.lv, beat.labels.numpy()[..., 2] == 3)


def test_the_right_ventricle_alone_is_tracked_and_has_no_curves_by_slice(exact, tmp_path):
    labels = Image(np.where(exact.reference_labels.array == 1, 1, 0), GRID)
    tracked = Tracking(exact.cine, 0, exact.found, labels, HeartLabels(wall=None, lv=None))
    with pytest.warns(InputWarning, match="no strain is measured"):
        assert tracked.by_slice.slices == ()
    write_tracking(tracked, tmp_path, lambda part: None)
    assert not (tmp_path / "slices.csv").exists()
    assert (tmp_path / "volumes.csv").exists()


def test_the_cavity_alone_has_the_ejection_fraction_that_it_has_beside_the_wall(exact):
    """And what is written of it says why there is no strain."""
    cavity = Image(np.where(exact.reference_labels.array == 3, 1, 0), GRID)
    with pytest.warns(InputWarning, match="no strain is measured: the wall of the left ventricle is not labelled"):
        request = prepare_tracking(exact.cine, "TV-L1", cavity, 0, "auto", None, "cpu", "1=LV")
    tracked = Tracking(exact.cine, 0, exact.found, request.labels, request.heart, request.label_names)
    with pytest.warns(InputWarning, match="no strain is measured"):
        said = summary(tracked)
    expected = summary(exact)
    assert said["strain_not_measured"] == "the wall of the left ventricle is not labelled, and strain needs it"
    assert "strain" not in said
    assert "strain_not_measured" not in expected
    assert said["label_names"] == {"1": "LV"}
    for part in ("lv_ejection_fraction_percent", "lv_largest_ml", "lv_smallest_ml"):
        assert said["volumes"][part] == expected["volumes"][part]
    assert np.isnan([said["volumes"]["mass_g"], said["volumes"]["rv_ejection_fraction_percent"]]).all()


def test_a_wall_that_does_not_close_is_named(beat):
    """An arc, as at the outflow; and not a disc, as at the apex, nor a ring with a voxel far away."""
    wall = (beat.labels.numpy() == 2).astype(np.uint8)
    wall[0, 0, 0] = 1
    wall[: wall.shape[0] // 2, :, 1] = 0
    wall[..., 2] = ndimage.binary_fill_holes(wall[..., 2])
    with pytest.warns(InputWarning) as said:
        prepare_tracking(Cine(beat.frames.numpy(), GRID), "TV-L1", Image(wall, GRID), 0, "auto", None, "cpu")
    assert [str(each.message) for each in said if "does not close" in str(each.message)] == [
        "labels: in slice 2 the wall does not close: volumes and the ejection fraction lack the cavity there; "
        "to count it, label the cavity too"
    ]


@pytest.mark.parametrize("heart", [HeartLabels(lv=None), HeartLabels(rv=None, lv=None), HeartLabels()])
def test_a_ring_whose_inside_is_not_labelled_is_not_open(exact, heart):
    rings = np.where(exact.reference_labels.array == 3, 0, exact.reference_labels.array)
    assert open_slices(exact.reference_labels.with_array(rings), heart) == ()
    rings[..., 0] = exact.reference_labels.array[..., 0]
    assert open_slices(exact.reference_labels.with_array(rings), heart) == ()


@pytest.mark.parametrize("gap", [10, 30, 90])
@pytest.mark.parametrize("inner", [12, 16, 24])
def test_a_gap_in_a_thick_or_a_thin_wall_is_found(gap, inner):
    x, y = np.meshgrid(np.arange(64) - 31.5, np.arange(64) - 31.5, indexing="ij")
    ring = (np.hypot(x, y) < 28) & (np.hypot(x, y) >= inner)
    arc = ring & (np.degrees(np.abs(np.arctan2(y, x))) > gap / 2)
    assert is_open(arc, find_cavity(arc))
    assert not is_open(ring, find_cavity(ring))


def test_a_slice_whose_wall_is_open_is_told_beside_the_volumes(exact):
    labels = exact.reference_labels.array.copy()
    labels[: labels.shape[0] // 2, :, 1] = 0
    labels[..., 1][labels[..., 1] != 2] = 0
    found = replace(exact, reference_labels=exact.reference_labels.with_array(labels))
    said = "In slice 2 the wall does not close: volumes and the ejection fraction lack the cavity there."
    assert summary(found)["volumes"]["slices_whose_wall_is_open"] == (1,)
    assert said in volume_table(found.volumes).notes
    assert headline(film_of(found), quality(found))[0].detail.startswith("without slice 2, RV ")
    assert any("(without slice 2)" in cell for cell in tracking_table(found).columns[1].cells)
    assert exact.volumes.open_slices == ()


def test_a_heart_that_rests_has_no_strain_at_all(exact):
    """Not -4e-16 %, nor -0."""
    still = replace(exact, found=replace(exact.found, fields=np.zeros_like(exact.fields)))
    known = still.strain.percent[~np.isnan(still.strain.percent)]
    assert not known.any()
    assert not np.signbit(known).any()


def test_labels_are_named_whoever_numbered_them(exact):
    """Files name the parts of the heart that are there where nobody has."""
    assert summary(exact)["label_names"] == {"1": "RV", "2": "Myo", "3": "LV"}
    wall = replace(exact, heart=HeartLabels(rv=None, wall=2, lv=None))
    assert summary(wall)["label_names"] == {"2": "Myo"}
    assert "label_names" not in summary(Tracking(exact.cine, 0, exact.found))


def prepare(beat, labels, grid=GRID, **asked):
    arguments = {"frame": 0, "slices": "auto", "heart": None, "device": "cpu", **asked}
    return prepare_tracking(Cine(beat.frames.numpy(), GRID), "TV-L1", Image(labels, grid), **arguments)


def test_labels_of_other_numbers_are_refused_before_a_minute_is_spent(beat):
    labels = beat.labels.numpy() * 10
    with pytest.raises(BadInput, match=r"has the labels 10, 20, 30, and none of 1=RV,2=Myo,3=LV: say which is which"):
        prepare(beat, labels)
    with pytest.warns(InputWarning, match="has no label 40=LV"):
        assert prepare(beat, labels, label_names="20=wall,40=LV").heart == HeartLabels(None, 20, 40)
    assert prepare(beat, labels, label_names="20=Myocardium,30=Cavity").heart == HeartLabels(None, 20, 30)


def test_a_wall_that_encloses_the_rv_is_told_of(beat, recwarn):
    """As in files that count the LV as 1: its ejection fraction would be told as that of the RV."""
    prepare(beat, beat.labels.numpy())
    assert not [each for each in recwarn if "encloses" in str(each.message)]
    exchanged = np.array([0, 3, 2, 1])[beat.labels.numpy()]
    with pytest.warns(InputWarning, match=r'encloses label 1, taken for the RV.*`label_names="3=RV,2=Myo,1=LV"`'):
        prepare(beat, exchanged)
    assert prepare(beat, exchanged, label_names="3=RV,2=Myo,1=LV").heart == HeartLabels(3, 2, 1)


def test_labels_that_lie_elsewhere_are_refused_with_both_sizes(beat):
    other = Grid.plain(GRID.shape, (1.8, 1.8, 9.0))
    sizes = r"it has 96 x 96 x 3 voxels of 1\.8 x 1\.8 x 9 mm at 0, 0, 0, and that grid has .* x 10 mm"
    with pytest.raises(BadInput, match=f"is not on the grid of the frames of the cine: {sizes}"):
        prepare(beat, beat.labels.numpy(), other)


def test_a_slice_saved_as_a_stack_of_one_is_the_label_map_of_a_cine_of_one_slice(beat, tmp_path):
    """As NIfTI files have them: axes that run against those of the world, and an origin elsewhere."""
    affine = np.diag([-1.8, 1.8, 1.0, 1.0])
    affine[:2, 3] = 30.0, -40.0
    frames, labels = beat.frames.numpy()[..., 1], beat.labels.numpy()[..., 1]
    nibabel.save(nibabel.Nifti1Image(np.moveaxis(frames, 0, -1), affine), tmp_path / "cine.nii.gz")
    nibabel.save(nibabel.Nifti1Image(labels[..., None], affine), tmp_path / "labels.nii.gz")
    asked = "TV-L1", tmp_path / "labels.nii.gz", 0, "auto", None, "cpu"
    with pytest.warns(InputWarning, match="third is taken for time"):
        assert_array_equal(prepare_tracking(tmp_path / "cine.nii.gz", *asked).labels.array, labels)
    affine[0, 3] = 31.0
    nibabel.save(nibabel.Nifti1Image(labels[..., None], affine), tmp_path / "labels.nii.gz")
    with pytest.raises(BadInput, match="not on the grid"), pytest.warns(InputWarning):
        prepare_tracking(tmp_path / "cine.nii.gz", *asked)


def test_strain_of_a_volume_is_measured_in_the_slices_that_a_page_shows():
    """Which lie across the axis nearest to head-foot, wherever that is stored."""
    shape, spacing = (20, 44, 44), (3.0, 3.0, 3.0)
    axes = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], float)
    grid = Grid(shape, spacing, (0.0,) * 3, tuple(axes.ravel().tolist()))
    assert grid.across == 0
    _, x, y = np.meshgrid(*(np.arange(n) - (n - 1) / 2 for n in shape), indexing="ij")
    radius = np.hypot(x, y)
    labels = np.where(radius < 8, 3, np.where(radius < 14, 2, 0)).astype(np.uint8)
    found = TrackedFrames(
        np.zeros((2, 3, *shape)), np.zeros((2, 3, *shape)), "none", None, "cpu", None, (None, None), 1.0
    )
    cine = Cine(np.stack([labels, labels]).astype(np.float32), grid)
    tracked = Tracking(cine, 0, found, Image(labels, grid), HeartLabels(rv=None))
    assert sorted(tracked.strain.slices) == list(range(20))


def test_without_a_right_ventricle_the_terminal_says_that_there_are_no_segments(exact):
    labels = exact.reference_labels.array
    bare = exact.reference_labels.with_array(np.where(labels == 1, 0, labels))
    (note,) = notes_on_tracking(replace(exact, reference_labels=bare))
    assert note.startswith("Segments are not known: no right ventricle is labelled")


def test_muscle_in_the_cavity_is_evidence_of_motion_that_was_missed(exact):
    assert exact.muscle_in_cavity.whole.max() < 0.1
    still = replace(exact.found, fields=np.zeros_like(exact.fields))
    missed = Tracking(exact.cine, 0, still, exact.reference_labels, exact.heart)
    assert missed.evidence.whole.muscle_in_cavity.value == missed.muscle_in_cavity.whole.max() > 0.22
    assert any("looks like muscle" in reason for reason in missed.verdict.reasons)
    assert Tracking(exact.cine, 0, exact.found).muscle_in_cavity is None


def test_a_file_of_one_slice_is_tracked(beat, tmp_path):
    import SimpleITK as sitk

    frames = beat.frames.numpy()[:3, ::2, ::2, 1]
    sitk.WriteImage(sitk.GetImageFromArray(frames.transpose(0, 2, 1)), str(tmp_path / "cine.mha"))
    with pytest.warns(InputWarning, match="third is taken for time"):
        found = track(tmp_path / "cine.mha", "TV-L1")
    assert_array_equal(found.cine.frames, frames)
    assert found.fields.shape == (3, 2, 48, 48)
    assert found.folding_strict_percent == 0


def test_names_of_labels_say_what_is_what_and_are_shown(exact):
    """A structure that is no part of what is measured has its name too."""
    numbers = {1: 30, 2: 20, 3: 10}
    array = np.select([exact.reference_labels.array == old for old in numbers], [*numbers.values()])
    array[:4, :4] = 40
    names = "30=RV,20=myo,10=LV,40=liver"
    request = prepare_tracking(exact.cine, "TV-L1", Image(array, GRID), 0, "auto", None, "cpu", names)
    assert request.heart == HeartLabels(rv=30, wall=20, lv=10)
    tracked = Tracking(exact.cine, 0, exact.found, request.labels, request.heart, request.label_names)
    assert tracked.volumes.lv_ejection_fraction_percent == pytest.approx(exact.volumes.lv_ejection_fraction_percent)
    assert {name for name, _ in film_of(tracked).slices.structures.values()} == {"RV", "myo", "LV", "liver"}
    assert summary(tracked)["label_names"] == {"30": "RV", "20": "myo", "10": "LV", "40": "liver"}
    assert heart_of({2: "Myo"}) == HeartLabels(rv=None, wall=2, lv=None)
    assert heart_of({1: "cavity"}) == HeartLabels(rv=None, wall=None, lv=1)
    with pytest.raises(BadInput, match="named twice"):
        heart_of({1: "LV", 2: "Myo", 3: "lv"})
    with pytest.raises(BadInput, match="give `heart` or `label_names`"):
        track(exact.cine, labels=Image(array, GRID), heart=HeartLabels(), label_names=names)
