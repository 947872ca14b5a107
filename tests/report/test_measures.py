import numpy as np
import pytest

from vrnet.report.measures import Row, by_structure, headline, number, summary, title

METRICS = {
    "method": "TV-L1",
    "device": "cpu",
    "seconds": 0.4,
    "slice_by_slice": True,
    "shape": [160, 160],
    "similarity": {"mae_before": 12.345, "mae_after": 4.0, "ncc_before": 0.5, "ncc_after": None},
    "folding_percent": 0.0,
    "folding_strict_percent": 0.02,
    "dice": {"before": {"1": 0.6, "30": None, "mean": 0.62}, "after": {"1": 0.9, "30": None, "mean": 0.881}},
    "target_registration_error_mm": {"before": 8.0, "after": 2.5},
}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.6239, "0.624"), (0, "0.000"), (12.345, "12.3"), (98765.4, "98765"), (0.00012345, "0.00012"), (-1.5, "-1.50"),
     (np.float32(2), "2.00"), (None, "–"), (np.inf, "–")],
)  # fmt: skip
def test_a_number_has_three_digits_and_no_number_is_a_dash(value, text):
    assert number(value) == text


def test_the_headline_has_the_few_measures_that_tell_most():
    assert headline(METRICS) == [
        Row("Mean Dice", "0.620", "0.881"),
        Row("Mean |difference|", "12.3", "4.00"),
        Row("Folded, strict count", "–", "0.020 %"),
        Row("Folded, central differences", "–", "0.000 %"),
        Row("Time", "–", "0.400 s"),
    ]


def test_a_difference_is_in_the_headline_where_the_method_compares_intensities():
    """Of structure the correlation is; of opposite contrasts neither, whatever the method."""
    alike = {"mae_before": 9.0, "mae_after": 4.0, "ncc_before": 0.5, "ncc_after": 0.8}
    names = {
        (of_structure, sign): [
            row.name for row in headline({"similarity": alike | {"ncc_after": sign}}, compares_structure=of_structure)
        ]
        for of_structure in (False, True)
        for sign in (0.8, -0.8)
    }
    assert names[False, 0.8] == ["Mean |difference|"]
    assert names[True, 0.8] == ["Correlation"]
    assert not any(found for (_, sign), found in names.items() if sign < 0)


def test_every_measure_has_a_row_and_nothing_else_has():
    rows = {row.name: (row.before, row.after) for row in summary(METRICS)}
    assert rows == {
        "Dice": ("0.620", "0.881"),
        "Target registration error (mm)": ("8.00", "2.50"),
        "Mean absolute difference": ("12.3", "4.00"),
        "Normalised cross-correlation": ("0.500", "–"),
        "Folded, central differences (%)": ("–", "0.000"),
        "Folded, strict count (%)": ("–", "0.020"),
    }
    assert next(iter(rows)) == "Dice"


def test_rows_that_compare_images_say_where_and_keep_their_place():
    """Structures and folds are those of the whole images."""
    metrics = {"folding_percent": 0.0, "similarity": {"mae_after": 4.0, "ncc_after": 0.9}, "dice": METRICS["dice"]}
    names = [row.name for row in summary(metrics | {"masks": {"fixed": "a.nii.gz", "moving": None}})]
    compared = ["Mean absolute difference, inside the mask", "Normalised cross-correlation, inside the mask"]
    assert names == ["Dice", *compared, "Folded, central differences (%)"]
    both = metrics | {"masks": {"fixed": "a.nii.gz", "moving": "b.nii.gz"}}
    assert any(row.name.endswith(", inside the masks") for row in summary(both))
    assert not any("mask" in row.name for row in summary(metrics))


def test_a_structure_that_is_absent_has_dashes():
    assert by_structure(METRICS) == {
        "dice": [Row("label 1", "0.600", "0.900", label="1"), Row("label 30", "–", "–", label="30")]
    }


def test_structures_are_called_by_their_names_where_these_are_known():
    rows = by_structure(METRICS | {"label_names": {"30": "wall"}})["dice"]
    assert [(row.name, row.label) for row in rows] == [("label 1", "1"), ("wall", "30")]
    assert summary(METRICS | {"label_names": {"30": "wall"}}) == summary(METRICS)


def test_of_two_dice_each_says_which_it_is():
    both = METRICS | {"dice_mean_over_slices": {"before": {"1": 0.4, "mean": 0.4}, "after": {"1": 0.5, "mean": 0.5}}}
    names = ["Dice, whole volume", "Dice, mean over slices"]
    assert [row.name for row in summary(both)][:2] == [title(key, both) for key in by_structure(both)] == names
    assert [row.name for row in headline(both)][:2] == [f"Mean {name}" for name in names]


def test_what_became_worse_is_marked_and_what_cannot_be_read_off_is_not():
    """More overlap and less distance are better; a change beyond the last digit shown is none."""
    worse = {"before": {"mean": 0.62}, "after": {"mean": 0.619}}
    found = headline(METRICS | {"dice": worse, "similarity": {"mae_before": 4.0, "mae_after": 4.0001}})
    assert [row.name for row in found if row.warning == "worse"] == ["Mean Dice"]
    farther = {"known_motion": {"end_point_error_mm_before": 1.0, "end_point_error_mm_after": 2.0}}
    assert [(row.name, row.before, row.after, row.warning) for row in headline(farther)] == [
        ("From the true motion", "1.00", "2.00 mm", "worse")
    ]


def test_tables_mark_what_became_worse_by_the_direction_of_each_measure():
    """Less overlap, correlation or more distance and difference."""
    rises = {"before": {"1": 1.0, "2": 3.0, "mean": 2.0}, "after": {"1": 2.0, "2": 2.5, "mean": 2.25}}
    keys = ("dice", "hausdorff_mm", "hausdorff95_mm", "surface_hausdorff_mm", "mean_surface_distance_mm")
    alike = {"mae_before": 1, "mae_after": 2, "ncc_before": 1, "ncc_after": 2}
    metrics = dict.fromkeys(keys, rises) | {"similarity": alike}
    distances = [title(key) for key in keys[1:]]
    assert {row.name for row in summary(metrics) if row.warning == "worse"} == {*distances, title("mae")}
    marks = {key: [row.warning for row in rows] for key, rows in by_structure(metrics).items()}
    assert marks == {key: ["worse", ""] for key in keys[1:]} | {"dice": ["", "worse"]}


def test_folds_beyond_the_limit_of_failure_are_marked_in_header_and_table():
    for percent, word in ((15.0, ""), (15.1, "too many")):
        metrics = {"folding_percent": 0.0, "folding_strict_percent": percent}
        assert [row.warning for row in headline(metrics)] == [word, ""]
        assert {row.warning for row in summary(metrics) if "strict" in row.name} == {word}


def test_lengths_of_arrays_without_a_spacing_are_in_voxels():
    contours = {"before": {"1": 8.0, "mean": 8.0}, "after": {"1": 2.5, "mean": 2.5}}
    metrics = METRICS | {"hausdorff_mm": contours}
    names = [
        *(row.name for row in summary(metrics, "voxels")),
        *(title(key, metrics, "voxels") for key in by_structure(metrics)),
    ]
    assert not any("mm" in name for name in names)
    assert names.count("Hausdorff distance, contours (voxels)") == 2
    assert [row.name for row in summary(metrics, "voxels")][1].startswith("Hausdorff"), "in the order of millimetres"
    assert Row("Mean Hausdorff, contours", "8.00", "2.50 voxels") in headline(metrics, "voxels")
