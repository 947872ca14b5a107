import json
from base64 import b64decode
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from numpy.testing import assert_allclose
from PIL import Image

from tests.report.cines import SHAPE, SPACING, beating_film, without_labels, without_rv
from vrnet.cardiac.strain import strain
from vrnet.images.grid import Grid
from vrnet.report.cine import ASSUMED_CYCLE_MS, STRAIN_RANGE, cine_data, cycle_ms, material_points


@pytest.fixture(scope="module")
def film():
    return beating_film()


@pytest.fixture(scope="module")
def data(film):
    return cine_data(film)


def test_the_page_holds_the_points_to_a_hundredth_of_a_pixel(film, data):
    low, high = data["range"]
    for k, held in enumerate(data["points"]):
        words = np.frombuffer(b64decode(held["moved"]), "<u2").reshape(len(film), 2, held["count"])
        assert_allclose(low + words * ((high - low) / 65535), material_points(film.slices, k).moved, atol=0.01)


def test_the_page_holds_the_strain_of_voxels_to_half_a_percent(film, data):
    held = np.frombuffer(b64decode(data["points"][1]["strain"]["circumferential"]), np.uint8).reshape(len(film), -1)
    low, high = STRAIN_RANGE
    here = film.slices.strain.index[2] == 1
    assert_allclose(low + held * (high - low) / 255, film.slices.strain.circumferential[:, here], atol=0.51)


def test_a_sheet_holds_every_frame_of_its_slice(film, data):
    frames = film.slices.frames
    low, high = np.percentile(frames, (0.5, 99.5))
    sheet = np.asarray(Image.open(BytesIO(b64decode(data["sheets"][2].partition(",")[2]))), float)
    tiles = data["tiles"]
    for t in range(len(film)):
        row, column = divmod(t, tiles["columns"])
        tile = sheet[row * tiles["height"] :, column * tiles["width"] :][: tiles["height"], : tiles["width"]]
        expected = (255 * (frames[t, ..., 2].T - low) / (high - low)).clip(0, 255)
        assert np.abs(tile - expected).mean() < 4


def test_curves_are_those_that_were_measured(film, data):
    held = data["strain"]["green_radial"]
    assert_allclose(held["regions"]["basal"], film.strain.curve("green_radial", "basal"), atol=0.006)
    assert held["peaks"]["global"] == film.strain.peak("green_radial").frame
    assert_allclose(data["volumes"]["LV"], film.volumes.lv_ml, atol=0.006)
    assert len(data["segments"]) == 16


def test_what_is_not_known_is_left_out(film):
    blind = cine_data(without_rv(film))
    assert (blind["segments"], blind["times"], blind["cycle"]) == ([], None, ASSUMED_CYCLE_MS)
    assert blind["volumes"].keys() == {"LV", "wall"}
    assert not any(region.startswith("segment") for region in blind["strain"]["green_radial"]["regions"])
    bare = cine_data(without_labels(film))
    assert (bare["strain"], bare["volumes"], bare["labels"]) == (None, None, [])
    assert all(points["strain"] is None for points in bare["points"])


def test_one_slice_has_one_level_and_no_number_that_json_lacks(film):
    labels, fields = film.labels[..., 1], film.fields[:, :2, ..., 1]
    flat = replace(
        film, frames=film.frames[..., 1], fields=fields, labels=labels, grid=Grid.plain(SHAPE[:2], SPACING[:2]),
        strain=strain(fields, labels, SPACING[:2]),
    )  # fmt: skip
    data = cine_data(flat)
    assert json.loads(json.dumps(data, allow_nan=False))["depth"] == 1
    levels = {name for name in data["strain"]["green_radial"]["regions"] if not name.startswith("segment")}
    assert levels == {"global", "mid"}


def test_a_cycle_lasts_until_the_frame_after_the_last():
    assert cycle_ms((100.0, 300.0, 500.0)) == 600.0
