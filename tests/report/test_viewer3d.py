"""What the planes of a page hold, decoded by other means than the page's: base64, gzip, NumPy and nibabel."""

import gzip
import hashlib
import re
from base64 import b64decode, b85decode
from dataclasses import replace
from importlib.resources import files

import nibabel
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vrnet.images.grid import Grid
from vrnet.report import page as volumes
from vrnet.report import pair as pictures
from vrnet.report.page import is_volume, volume_data
from vrnet.report.pair import PageSlices, View, deformation, orient_for_viewing

SHAPE = (20, 18, 17)
OBLIQUE = (0.8, 0.6, 0.0, -0.6, 0.8, 0.0, 0.0, 0.0, -1.0)


@pytest.fixture
def pair(random):
    """Images that vary smoothly and a field, on an oblique grid, as they are shown."""
    fixed, moving, warped = np.cumsum(random(3, *SHAPE).numpy(), axis=1)
    labels = np.zeros(SHAPE, int)
    labels[4:9, 5:12, 3:8], labels[9:12, 5:12, 3:8] = 1000, -7
    grid = Grid(SHAPE, (1.0, 1.5, 1.2), (10.0, -20.0, 30.0), OBLIQUE)
    u = 0.3 * random(3, *SHAPE).numpy()
    return orient_for_viewing(View(fixed, moving, warped, u, grid, labels, np.roll(labels, 1, 0), labels))


@pytest.fixture
def data(pair):
    return volume_data(PageSlices(pair))


def unpack(text, shape, is_smooth):
    """The volume that a text of the page stands for."""
    packed = b85decode(text.encode().translate(bytes.maketrans(b",.:", b"&<>")))
    array = np.frombuffer(gzip.decompress(packed), np.uint8).reshape(shape, order="F")
    return array.cumsum(0, dtype=np.uint8).cumsum(1, dtype=np.uint8) if is_smooth else array


def test_the_page_has_every_voxel_of_the_images_and_the_labels(pair, data):
    low, high = PageSlices(pair).windows["fixed"]
    for name in ("fixed", "moving", "warped"):
        greys = 255 * (getattr(pair, name) - low) / (high - low)
        assert_allclose(unpack(data["smooth"][name], pair.fixed.shape, True), greys.clip(0, 255), atol=0.51)
    ranks = unpack(data["maps"]["fixed_labels"], pair.fixed.shape, False)
    assert_array_equal(np.array([0, -7, 1000])[ranks], pair.fixed_labels)


def test_the_header_puts_every_voxel_where_its_file_does(pair, data):
    """As nibabel reads it, which counts in RAS."""
    size = 352 + np.prod(pair.fixed.shape)
    image = nibabel.Nifti1Image.from_bytes(b64decode(data["header"]).ljust(size, b"\0"))
    assert image.shape == pair.fixed.shape
    assert image.get_data_dtype() == np.uint8
    index = np.argwhere(np.ones(pair.fixed.shape))[::97].astype(float)
    assert_allclose(nibabel.affines.apply_affine(image.affine, index) * (-1, -1, 1), pair.grid.points(index), atol=1e-4)
    in_lps = index @ np.array(data["to_lps"])[:, :3].T + np.array(data["to_lps"])[:, 3]
    assert_allclose(in_lps, pair.grid.points(index), atol=1e-9)


@pytest.mark.parametrize("most", [2**20, 1000])
def test_motion_and_determinants_are_sampled_evenly(monkeypatch, pair, most):
    monkeypatch.setattr(volumes, "MAX_MOTION_VOXELS", most)
    data = volume_data(PageSlices(pair))
    factor = data["motion_factor"]
    assert factor == (1 if most > pair.fixed.size else 2)
    sampled = (slice(None, None, factor),) * 3
    for i, u in enumerate(pair.field):
        found = (unpack(data["smooth"][f"u{i}"], data["motion_shape"], True) - 128.0) / 127 * data["largest"][i]
        assert_allclose(found, u[sampled], atol=data["largest"][i] / 254 + 1e-9)
    det = np.stack([deformation(pair.field, k).det for k in range(pair.fixed.shape[2])], axis=-1)[sampled]
    found = unpack(data["smooth"]["det"], data["motion_shape"], True) / 64 - 1
    assert_allclose(found, det.clip(-1, -1 + 255 / 64), atol=1 / 128 + 1e-6)
    coarse = nibabel.Nifti1Image.from_bytes(b64decode(data["motion_header"]).ljust(352 + found.size, b"\0"))
    last = np.array(found.shape) - 1.0
    assert_allclose(coarse.affine[:3, :3] @ last + coarse.affine[:3, 3],
                    pair.grid.points(factor * last[None])[0] * (-1, -1, 1), atol=1e-4)  # fmt: skip


def test_folds_are_those_of_each_slice_with_its_neighbours(monkeypatch, pair):
    """However the volume is cut into slabs."""
    field = 3 * pair.field
    expected = np.stack([deformation(field, k).folded for k in range(field.shape[3])], axis=-1)
    assert 0 < expected.mean() < 1
    for slices in (1, 5, 100):
        monkeypatch.setattr(pictures, "SLAB_SLICES", slices)
        assert_array_equal(PageSlices(replace(pair, field=field)).deformed.folded, expected)


def test_a_page_that_would_be_too_large_has_fewer_greys(monkeypatch, pair):
    slices = PageSlices(pair)
    exact = unpack(volume_data(slices)["smooth"]["fixed"], pair.fixed.shape, True)
    monkeypatch.setattr(volumes, "MAX_GREY_BYTES", 10)
    coarse = unpack(volume_data(slices)["smooth"]["fixed"], pair.fixed.shape, True)
    assert set(np.unique(coarse)) <= {*range(0, 256, 8), 255}
    assert np.abs(coarse.astype(int) - exact).max() <= 4


def test_motion_of_a_rough_field_is_sampled_at_fewer_voxels(monkeypatch, pair):
    slices = PageSlices(pair)
    fine = volume_data(slices)
    size = sum(len(fine["smooth"][name]) for name in ("u0", "u1", "u2", "det"))
    monkeypatch.setattr(volumes, "MAX_MOTION_BYTES", size // 4)
    coarse = volume_data(slices)
    assert (fine["motion_factor"], coarse["motion_factor"]) == (1, 2)
    found = (unpack(coarse["smooth"]["u0"], coarse["motion_shape"], True) - 128.0) / 127 * coarse["largest"][0]
    assert_allclose(found, pair.field[0, ::2, ::2, ::2], atol=coarse["largest"][0] / 254 + 1e-9)
    assert coarse["maps"] == fine["maps"], "folds are told at every voxel"


def test_the_peak_is_the_bright_voxel_that_moves_farthest(pair):
    """In mm, which differ along the axes; what is dark is background."""
    fixed, u = np.zeros(pair.fixed.shape), np.zeros_like(pair.field)
    fixed[4:12, 4:12, 4:12] = 1.0
    u[:, 2, 2, 2], u[0, 5, 6, 7], u[1, 8, 9, 10] = 9.0, 3.0, 3.0
    still = replace(pair, fixed=fixed, field=u)
    data = volume_data(PageSlices(still))
    expected = max(((5, 6, 7), 0), ((8, 9, 10), 1), key=lambda place: pair.grid.spacing[place[1]])
    assert data["peak"] == expected[0]
    assert data["peak_mm"] == pytest.approx(3 * pair.grid.spacing[expected[1]], rel=1e-5)


@pytest.mark.parametrize(
    ("shape", "spacing", "is_one"),
    [
        ((20, 20, 20), (1.0, 1.0, 2.0), True),
        ((20, 20, 20), (1.0, 1.0, 8.0), False),  # a stack
        ((20, 20, 9), (1.0, 1.0, 1.0), False),  # thin
        ((20, 20, 500), (1.0, 1.0, 1.0), False),  # long
        ((20, 20), (1.0, 1.0), False),
    ],
)
def test_planes_are_for_volumes(shape, spacing, is_one):
    image = np.zeros(shape)
    assert is_volume(View(image, image, image, np.zeros((len(shape), *shape)), Grid.plain(shape, spacing))) == is_one


def test_the_viewer_is_the_one_that_its_readme_names():
    vendor = files("vrnet.report") / "web" / "vendor"
    text = (vendor / "README.md").read_text()
    assert hashlib.sha256((vendor / "niivue.umd.js").read_bytes()).hexdigest() in text
    assert "BSD 2-Clause" in (vendor / "LICENSE").read_text()
    packed = b85decode(
        volumes.write_text(gzip.compress(volumes.NIIVUE.read_bytes(), 9, mtime=0))
        .encode()
        .translate(bytes.maketrans(b",.:", b"&<>"))
    )
    assert gzip.decompress(packed) == (vendor / "niivue.umd.js").read_bytes()
    assert not re.search("[<>&'\"]", volumes.write_text(gzip.compress(volumes.NIIVUE.read_bytes(), 9, mtime=0)))


@pytest.fixture
def brain():
    """A volume that is shown in planes, with a small mask in a corner of it."""
    generator, shape = np.random.default_rng(0), (40, 30, 20)
    images, mask = generator.uniform(0, 1, (3, *shape)), np.zeros(shape, bool)
    mask[4:9, 5:10, 12:17] = True
    return View(*images, np.zeros((3, *shape)), Grid.plain(shape, (1.0, 1.0, 1.0)), mask=mask)


def test_the_planes_of_a_volume_meet_in_the_mask(brain):
    inside, whole = (volume_data(PageSlices(replace(brain, mask=mask))) for mask in (brain.mask, None))
    assert (inside["start"], whole["start"]) == ([6, 7, 14], [20, 15, 10])
    assert ("mask" in inside["maps"], "mask" in whole["maps"]) == (True, False)
