"""Strain of hearts whose motion is known, as cines of two frames; each is measured once."""

from dataclasses import replace

import numpy as np
import pytest

from tests.data.conftest import heart, write_acdc, write_splits
from vrnet.data.prepared import Source
from vrnet.errors import BadInput
from vrnet.paper import strain as module
from vrnet.paper.budget import BUDGETS
from vrnet.paper.strain import cavities, find_subjects, lost_at_base, measure, phantom_subject, strain_rows
from vrnet.phantom.cycle import cycle


def test_a_beating_stack_has_about_its_exact_strain_and_ejection():
    """Voxels of 4 mm blur the radial strain of a wall of 11 mm: it is found, and no more is claimed."""
    row = measure(phantom_subject(1, "normal"), "TV-L1", "cpu")
    beat = cycle(1, (32, 32, 3), (4.0, 4.0, 12.0), frames=6)
    inside = beat.labels == 2
    around = beat.strain.circumferential[beat.end_systole][inside].mean()
    assert row["green_circumferential"] == pytest.approx(float(around), abs=3)
    assert row["green_radial"] > 10
    assert row["ejection_labels"] == pytest.approx(beat.volumes.ejection_fraction_percent, abs=3)
    assert row["ejection_tracked"] == pytest.approx(row["ejection_labels"], abs=8)
    assert row["ejection_tracked"] == pytest.approx(
        100 * (1 - row["systole_tracked_ml"] / row["diastole_ml"]), abs=0.01
    )
    assert row["slices"] == 3
    assert row["lost_at_base_percent"] == 0


@pytest.mark.parametrize("base_to_apex", [(1, 2, 3), (3, 2, 1)])
def test_basal_slices_without_a_cavity_at_end_systole_are_lost_and_apical_ones_are_not(base_to_apex):
    diastole, systole = np.array([10, 30, 40, 20, 0]), np.array([0, 0, 20, 0, 0])
    if base_to_apex[0] > 1:
        diastole, systole = diastole[::-1], systole[::-1]
    assert lost_at_base(diastole, systole, base_to_apex) == 40


def test_cavities_are_counted_slice_by_slice_at_both_phases():
    beat = phantom_subject(1, "normal").read()
    for found, labels in zip(cavities(beat, 2), beat.labels, strict=True):
        assert found.tolist() == [(labels.array[:, :, k] == 3).sum() for k in range(3)]
    assert [found.tolist() for found in cavities(beat, None)] == [[(each.array == 3).sum()] for each in beat.labels]


def test_what_is_measured_is_kept_and_read_without_images(study, monkeypatch):
    made, measured = study(), []

    def count(subject, method, device):
        measured.append(subject.name)
        return {"subject": subject.name, "group": subject.group, "slices": len(measured)}

    monkeypatch.setattr(module, "measure", count)
    first = strain_rows(made, "TV-L1")
    assert [row["slices"] for row in first] == list(range(1, 9))
    assert strain_rows(made, "TV-L1") == first
    assert len(measured) == 8


def of_folder(study, source):
    made = study(replace(BUDGETS["quick"], phantoms=None))
    return replace(made, results=replace(made.results, data="acdc"), source=source)


def test_results_that_are_there_need_no_images_and_others_do(study):
    made = of_folder(study, Source("acdc"))
    assert find_subjects(made, is_measured=True) == []
    with pytest.raises(BadInput, match="give the folder of ACDC as `root`"):
        find_subjects(made, is_measured=False)


def test_other_data_than_acdc_is_refused(study):
    made = of_folder(study, Source("ukbb"))
    with pytest.raises(BadInput, match="not on ukbb"):
        find_subjects(replace(made, results=replace(made.results, data="ukbb")), is_measured=False)


def test_patients_of_all_splits_have_their_group(study, tmp_path):
    images, labels = heart(3, slices=3, shown=range(3), size=(40, 36))
    for name in ("patient001", "patient002"):
        write_acdc(tmp_path, name, images, labels)
    write_splits(tmp_path, train=["patient001"], test=["patient002"])
    found = find_subjects(of_folder(study, Source("acdc", tmp_path)), is_measured=False)
    assert [(subject.name, subject.group, subject.split) for subject in found] == [
        ("patient001", "NOR", "train"), ("patient002", "NOR", "test")
    ]  # fmt: skip
    beat = found[1].read()
    assert len(beat.cine) == 2
    assert all(labels.grid.matches(beat.cine.grid) for labels in beat.labels)
