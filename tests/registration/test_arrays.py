import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import ndimage

import vrnet
from tests.models import Flow, card, trained
from tests.phantoms import phantom
from vrnet import BadInput, InputWarning, Trained, parse, register
from vrnet.fields import calculus as fields
from vrnet.variational.data_terms import L1
from vrnet.variational.regularizers import TV
from vrnet.variational.solver import Energy

SOLVERS = ["TV-L1", "Diffusion-L2", "Gaussian-LNCC", "Bending-MIND", "Gaussian-NMI"]
"""One of each data term, and of each regulariser."""
SIZES = {2: (40, 36), 3: (24, 22, 20)}
SHIFT = (2, -1, 1)


@cache
def pair(d):
    """(fixed, moving): a texture and the same shifted, so that fixed(x) = moving(x + SHIFT)."""
    noise = np.random.default_rng(5).standard_normal([n + 8 for n in SIZES[d]])
    texture = ndimage.gaussian_filter(noise, 2.0).astype(np.float32)
    cut = [tuple(slice(4 + t, 4 + t + n) for t, n in zip(by, SIZES[d], strict=True)) for by in (SHIFT[:d], (0,) * d)]
    return tuple(np.ascontiguousarray(100 * texture[c]) for c in cut)


BRIEF = "TV-L1(warps=5)"
"""What the theorems below are about unless they name another method."""


def tv_l1(fixed, moving, **options):
    """The registration by TV-L1, with half the steps."""
    return vrnet.register(fixed, moving, BRIEF, **options)


@cache
def tv_l1_result(d):
    """The registration of the pair by TV-L1, made once."""
    return tv_l1(*pair(d))


def inside(d, margin=5):
    return (..., *[slice(margin, -margin)] * d)


def test_the_point_at_x_in_fixed_is_at_x_plus_field_in_moving(d):
    field = vrnet.register(*pair(d), "TV-L1").field
    found = np.median(field[inside(d)].reshape(d, -1), axis=1)
    assert_allclose(found, SHIFT[:d], atol=0.2)


def test_warped_is_moving_at_x_plus_field_in_its_own_intensities(d):
    (fixed, moving), result = pair(d), tv_l1_result(d)
    x = np.indices(fixed.shape) + result.field
    expected = ndimage.map_coordinates(moving.astype(np.float64), x, order=1, mode="nearest")
    assert_allclose(result.warped, expected, atol=1e-3 * np.ptp(moving))
    before, after = (np.abs(image - fixed)[inside(d)].mean() for image in (moving, result.warped))
    assert after < before / 3


def test_arrays_give_arrays(d):
    result = tv_l1_result(d)
    assert (result.field.shape, result.warped.shape) == ((d, *SIZES[d]), SIZES[d])
    for array in (result.field, result.warped, result.energies):
        assert isinstance(array, np.ndarray)
        assert array.dtype == np.float32
    assert result.method == BRIEF
    assert 0 < result.seconds < 60


def test_tensors_give_tensors_that_can_be_trained_on(d):
    result = tv_l1(*map(torch.from_numpy, pair(d)))
    assert_allclose(result.field, tv_l1_result(d).field)
    for tensor in (result.field, result.warped, result.energies):
        tensor.requires_grad_().square().sum().backward()
        assert tensor.grad.any()


@pytest.mark.parametrize(("a", "b"), [(0.001, 0.0), (37.0, -5.0), (1.0, 1e8), (1e39, 0.0)])
def test_a_common_change_of_brightness_and_contrast_does_not_matter(d, a, b):
    images = (a * image.astype(np.float64) + b for image in pair(d))
    assert_allclose(tv_l1(*images).field, tv_l1_result(d).field, atol=1e-4)


LAYOUTS = {
    "big-endian": lambda I: I.astype(">f4"),
    "negative strides": lambda I: np.flip(np.flip(I).copy()),
    "read-only": lambda I: np.frombuffer(I.tobytes(), np.float32).reshape(I.shape),
    "a transposed tensor": lambda I: torch.from_numpy(I.T.copy()).permute(*reversed(range(I.ndim))),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_in_memory_does_not_matter(layout):
    images = [LAYOUTS[layout](image) for image in pair(2)]
    assert_allclose(tv_l1(*images).field, tv_l1_result(2).field, atol=1e-4)


@pytest.mark.parametrize("convert", [lambda I: I.astype(np.float16), lambda I: torch.from_numpy(I).bfloat16()])
def test_half_precision_images_are_registered_in_single(convert):
    field = tv_l1(*map(convert, pair(2))).field
    assert field.dtype in (np.float32, torch.float32)
    assert np.abs(np.asarray(field) - tv_l1_result(2).field).mean() < 0.1


def test_the_images_are_left_as_they_were(d):
    images = [image.copy() for image in pair(d)]
    tv_l1(*images)
    for image, original in zip(images, pair(d), strict=True):
        assert np.array_equal(image, original)


def test_energies_start_with_no_motion_and_the_field_has_the_least(d):
    """By the equation 1/N Σ |I1(x + u) − I0| + λ |∇u|, on intensities scaled by their joint percentiles."""
    result, energy = tv_l1_result(d), Energy(L1(), TV(), vrnet.Variational().lam)
    low, high = np.percentile(np.stack(pair(d)), (1, 99))
    I0, I1 = (torch.tensor(np.clip((I - low) / (high - low), 0, 1))[None, None] for I in pair(d))
    u = torch.from_numpy(result.field)[None]
    I1w = fields.warp(I1, u)
    assert_allclose(result.energies[0], (I1 - I0).abs().mean(), rtol=1e-4)
    assert_allclose(result.energies.min(), energy(I0, I1w, u, (1.0,) * d).item(), rtol=1e-4)
    assert result.energies.min() < result.energies[0]


@pytest.mark.parametrize("order", [(1, 0), (1, 2, 0)])
def test_exchanging_the_axes_exchanges_the_components(order):
    d = len(order)
    turned = tv_l1(*(image.transpose(order) for image in pair(d))).field
    expected = tv_l1_result(d).field.transpose(0, *(1 + axis for axis in order))[list(order)]
    assert np.abs(turned - expected).mean() < 0.02


@pytest.mark.parametrize(("d", "axis"), [(2, 1), (3, 0)])
def test_mirroring_an_axis_negates_its_component(d, axis):
    field = np.flip(tv_l1(*(np.flip(image, axis) for image in pair(d))).field, 1 + axis).copy()
    field[axis] *= -1
    assert np.abs(field - tv_l1_result(d).field).mean() < 0.02


@pytest.mark.parametrize(("d", "method"), list(zip((2, 3, 2, 3, 2), SOLVERS, strict=True)))
def test_no_motion_gives_exactly_zero(d, method):
    _, image = pair(d)
    brief = replace(parse(method), warps=3, finest_warps=0)
    result = vrnet.register(image, image.copy(), brief)
    assert not result.field.any()
    assert np.array_equal(result.warped, image)
    assert result.energies[0] == 0
    assert result.method == str(brief)


def test_a_method_is_a_name_or_its_parameters():
    by_name, by_value = (vrnet.register(*pair(2), method) for method in ("diffusion-l1", vrnet.parse("Diffusion-L1")))
    assert np.array_equal(by_name.field, by_value.field)
    assert by_name.method == by_value.method == "Diffusion-L1"


@pytest.mark.usefixtures("as_users_run")
def test_progress_that_is_no_function_is_refused_before_any_work(d):
    with pytest.raises(vrnet.BadInput, match="progress is an int: give a function"):
        tv_l1(*pair(d), progress=3)


def test_progress_rises_to_one(d):
    seen = []
    tv_l1(*pair(d), progress=seen.append)
    assert seen == sorted(seen)
    assert len(seen) > 3
    assert 0 < seen[0] < seen[-1] == 1


@pytest.mark.parametrize(("shape", "method"), [((2, 2), "default"), ((2, 30), "TV-L1"), ((33, 2, 2), "default")])
def test_the_smallest_images_are_registered(shape, method):
    fixed, moving = np.random.default_rng(0).standard_normal((2, *shape))
    result = vrnet.register(fixed, moving, method)
    assert result.field.shape == (len(shape), *shape)
    assert np.isfinite(result.field).all()


@cache
def phantom_heart(spacing=1.8):
    """A phantom heart over the same extent, whatever the spacing."""
    return phantom(7, (int(159 * 1.8 / spacing) + 1,) * 2, spacing)


@cache
def default_result(spacing=1.8):
    """The registration of the phantom heart by the default, made once."""
    heart = phantom_heart(spacing)
    return vrnet.register(heart.fixed[0, 0], heart.moving[0, 0], spacing=(spacing,) * 2)


def test_the_default_in_2d_is_a_model_that_aligns_a_heart():
    """Dice of the three structures, and the mean absolute difference of the images."""
    result, seen = default_result(), phantom_heart()
    assert result.method == "short-axis"
    labels = [seen.moving_labels[0, 0], result.warp_labels(seen.moving_labels[0, 0])]
    before, after = (np.mean([dice(seen.fixed_labels[0, 0] == k, other == k) for k in (1, 2, 3)]) for other in labels)
    assert (before < 0.7, after > 0.93) == (True, True)
    after, before = ((image - seen.fixed[0, 0]).abs().mean() for image in (result.warped, seen.moving[0, 0]))
    assert after < 0.5 * before


def dice(a, b):
    return 2 * (a & b).sum().item() / (a.sum() + b.sum()).item()


def test_without_spacing_images_are_as_the_model_of_the_default_knows_them():
    alone = vrnet.register(phantom_heart().fixed[0, 0].numpy(), phantom_heart().moving[0, 0].double().numpy())
    assert_allclose(alone.field, default_result().field, atol=1e-2)  # in half precision, where there is one
    assert alone.energies.shape == (0,)


def test_the_default_at_another_spacing_finds_the_same_motion():
    """A heart drawn at 0.9 mm moves, in mm, as that drawn at 1.8 mm: within a tenth of its motion."""
    fine = fields.resize_field(default_result(0.9).field[None], (160, 160))[0]
    assert default_result(0.9).field.shape == (2, 319, 319)
    heart = phantom_heart().fixed_labels[0, 0] > 0
    apart, motion = (u.norm(dim=0)[heart].mean() for u in (fine - default_result().field, default_result().field))
    assert apart < 0.1 * motion


@pytest.mark.parametrize(
    ("options", "name"),
    [({}, "Gaussian-LNCC"),
     ({"slice_axis": 0, "spacing": (9.0, 1.8, 1.8)}, "short-axis"),
     ({"slice_axis": 0, "spacing": (1.8, 1.8, 90.0)}, "Gaussian-LNCC")],
)  # fmt: skip
def test_the_default_of_a_volume_is_a_solver_and_of_slices_of_a_heart_the_model(options, name):
    heart = phantom_heart()
    stacks = (np.stack([image[0, 0].numpy()] * 2) for image in (heart.fixed, heart.moving))
    images = [*stacks] if options else pair(3)
    result = vrnet.register(*images, **options)
    by_name = vrnet.register(*images, "short-axis" if name != "Gaussian-LNCC" else name, **options)
    assert result.method == by_name.method == name
    assert np.array_equal(result.field, by_name.field)


def image(shape=(12, 12), dtype=np.float32, **voxel):
    """Random noise; value=x puts x at one voxel."""
    noise = (100 * np.random.default_rng(0).random(shape)).astype(dtype)
    noise.flat[0] = voxel.get("value", noise.flat[0])
    return noise


def test_register_checks_its_images_and_its_method():
    with pytest.raises(vrnet.BadInput, match="fixed contains NaN"):
        vrnet.register(image(value=np.nan), image())
    with pytest.raises(vrnet.BadInput, match='no method is called "TVL1": did you mean TV-L1'):
        vrnet.register(image(), image(), "TVL1")


def test_the_result_carries_labels_and_images_as_the_calculus_does(smooth_image):
    fixed, moving = (smooth_image((40, 36), 3, seed)[0, 0].float().numpy() for seed in (0, 1))
    result = register(fixed, moving)
    u = torch.from_numpy(result.field)[None]
    np.testing.assert_allclose(result.warp(moving), result.warped, atol=1e-6)
    labels = (moving > 0.5).astype(np.int16)
    carried = result.warp_labels(labels)
    assert carried.dtype == np.int16
    np.testing.assert_array_equal(carried, fields.warp_labels(torch.from_numpy(labels)[None, None], u)[0, 0])
    np.testing.assert_allclose(result.determinant(), fields.determinant(fields.jacobian(u))[0])
    with pytest.raises(BadInput, match="moving's shape"):
        result.warp(moving[:-1])


@pytest.mark.parametrize("method", SOLVERS[1:4])
def test_one_bright_voxel_does_not_drag_the_field_along(method):
    fixed, moving = (image.copy() for image in pair(2))
    fixed[20, 20] = 1e4
    assert np.quantile(np.abs(register(fixed, moving, method).field), 0.99) < 8


@pytest.mark.parametrize("method", ["default", BRIEF])
def test_threads_are_left_as_they_were_even_by_several_at_once(method):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: register(*pair(2), method), range(2)))
        assert set(pool.map(lambda _: torch.get_num_threads(), range(4))) == {2}
    register(*pair(2), method)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["uint8", ">i2"])
def test_numbers_of_any_type_are_registered_as_float32(dtype):
    given = [(100 * image).astype(dtype) for image in pair(2)]
    found, expected = (tv_l1(*images) for images in (given, [image.astype("f4") for image in given]))
    assert found.warped.dtype == np.float32
    assert_array_equal(found.field, expected.field)


@pytest.mark.parametrize("dtype", ["uint8", ">i2"])
def test_label_arrays_of_any_type_and_layout_are_carried(dtype):
    labels = np.flip(np.arange(np.prod(SIZES[2])).reshape(SIZES[2]) % 200).astype(dtype)
    carried = tv_l1_result(2).warp_labels(labels)
    assert carried.dtype == labels.dtype.newbyteorder("=")
    assert_allclose(carried, tv_l1_result(2).warp_labels(np.ascontiguousarray(labels).astype(np.int32)))


def test_the_unit_of_the_spacing_does_not_matter_to_a_solver(d):
    h = (2.0, 1.0, 3.0)[:d]
    one, two = (tv_l1(*pair(d), spacing=tuple(k * edge for edge in h)).field for k in (1, 10))
    assert_allclose(one, two, atol=1e-5)


def test_slices_are_registered_as_images_of_their_own():
    fixed, moving = pair(3)
    for axis in range(3):
        field = tv_l1(fixed, moving, slice_axis=axis, folds="keep").field
        assert not field[axis].any(), "no motion across slices"
        within = [i for i in range(3) if i != axis]
        low, high = np.percentile(np.stack([fixed, moving]), (1, 99))
        scaled = [torch.tensor(np.clip((I - low) / (high - low), 0, 1)) for I in (fixed, moving)]
        for k in (0, 7):
            alone = [I.select(axis, k)[None, None] for I in scaled]
            with torch.inference_mode():
                expected = parse(BRIEF).build(2)(*alone)[0]
            assert_allclose(field.take(k, 1 + axis)[within], expected, atol=1e-4)


def test_slices_have_the_spacing_within_them():
    fixed, moving = (image[..., :1] for image in pair(3))
    flat = tv_l1(fixed[..., 0], moving[..., 0], spacing=(1.0, 2.0))
    stack = tv_l1(fixed, moving, spacing=(1.0, 2.0, 9.0), slice_axis=2)
    assert_allclose(stack.field[:2, ..., 0], flat.field, atol=1e-5)
    assert_allclose(stack.energies, flat.energies, atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"spacing": (1.0, 0.0)}, "spacing"), ({"spacing": (1.0,)}, "spacing"), ({"slice_axis": 0}, "only volumes have"),
     ({"device": "gpu"}, "device"), ({"folds": "mend"}, "folds is 'mend': give 'repair' or 'keep'")],
)  # fmt: skip
def test_impossible_options_are_answered_in_one_line(wrong, words, as_users_run):
    with pytest.raises(BadInput, match=words) as raised:
        vrnet.register(*pair(2), **wrong)
    assert len(str(raised.value).splitlines()) == 1


def test_files_are_answered_with_what_takes_them(as_users_run):
    with pytest.raises(BadInput, match=r"fixed is a str: .*vrnet\.register_images takes files"):
        register("ed.nii.gz", "es.nii.gz")


def test_cuda_where_there_is_none_is_bad_input():
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(BadInput, match="no CUDA"):
        vrnet.register(*pair(2), device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_finds_what_the_processor_finds(d):
    assert_allclose(tv_l1(*pair(d), device="cuda").field, tv_l1_result(d).field, atol=1e-2)


def test_no_registration_is_a_method_too(d):
    result = vrnet.register(*pair(d), "identity")
    assert not result.field.any()
    assert result.energies.shape == (0,)


@pytest.mark.parametrize(("shape", "axis"), [((12, 1), None), ((1, 12, 12), None), ((4, 1, 4), 2)])
def test_an_axis_of_one_voxel_shows_no_motion(shape, axis):
    with pytest.raises(BadInput, match="at least 2 voxels"):
        vrnet.register(image(shape), image(shape), "identity", slice_axis=axis)


@pytest.mark.parametrize("axis", [0, 2])
def test_the_spacing_within_slices_is_that_of_their_own_axes(axis):
    """A stack of equal slices across any axis, each with voxels twice as long as wide."""
    fixed, moving = (image[..., 3] for image in pair(3))
    flat = vrnet.register(fixed, moving, spacing=(1.0, 2.0)).field
    spacing = [1.0, 2.0]
    spacing.insert(axis, 7.0)
    images = (np.stack([image] * 2, axis=axis) for image in (fixed, moving))
    stack = vrnet.register(*images, spacing=tuple(spacing), slice_axis=axis).field
    within = [i for i in range(3) if i != axis]
    assert np.abs(stack.take(1, 1 + axis)[within] - flat).mean() < 5e-3


def rescaled_pair(d):
    """The pair as every method sees it: the 1st to 99th percentile of both together in [0, 1]."""
    low, high = np.percentile(np.stack(pair(d)), (1, 99))
    return [torch.tensor(np.clip((I - low) / (high - low), 0, 1), dtype=torch.float32) for I in pair(d)]


def test_a_trained_model_registers_arrays_at_its_own_spacing(d):
    """Without a spacing the model's is assumed; the images are scaled as for every method."""
    model, (fixed, moving) = trained(d=d), pair(d)
    result = vrnet.register(fixed, moving, model)
    with torch.inference_mode():
        expected = model.model(*(I[None, None] for I in rescaled_pair(d)), model.card.spacing_mm)[0]
    assert result.method == "C-L2-2x1-w2"
    assert result.energies.shape == (0,)
    assert np.abs(result.field).max() > 0.1
    assert_allclose(result.field, expected, atol=1e-5)
    assert np.array_equal(vrnet.register(fixed, moving, model, spacing=model.card.spacing_mm).field, result.field)
    assert_allclose(result.warped, fields.warp(*map(torch.from_numpy, (moving[None, None], result.field[None])))[0, 0])


@pytest.mark.parametrize(("d", "normalisation"), [(2, "jointly"), (3, "each")])
def test_a_model_sees_images_scaled_as_in_its_training(d, normalisation):
    """A second subject at half the brightness: the 1st to 99th percentile of both, or of each, in [0, 1]."""
    flow, images = Flow(), (pair(d)[0], pair(d)[1] / 2)
    vrnet.register(*images, Trained.of(card(d=d, normalisation=normalisation), flow, "w.safetensors"))
    sources = images if normalisation == "each" else [np.stack(images)] * 2
    for seen, image, source in zip(flow.seen[0], images, sources, strict=False):
        low, high = np.percentile(source, (1, 99))
        assert_allclose(seen[0, 0], np.clip((image - low) / (high - low), 0, 1), atol=1e-5)


@pytest.mark.parametrize("axis", [0, 2])
def test_a_2d_model_registers_slices_as_images_of_their_own(axis):
    """A few at a time, each with the spacing within it, with progress."""
    model, seen = trained(spacing=(1.0, 1.5)), []
    spacing = [1.3, 2.0]
    spacing.insert(axis, 9.0)
    field = vrnet.register(*pair(3), model, spacing=tuple(spacing), slice_axis=axis, progress=seen.append).field
    within = [i for i in range(3) if i != axis]
    with torch.inference_mode():
        expected = model.build(2)(*(I.select(axis, 7)[None, None] for I in rescaled_pair(3)), (1.3, 2.0))[0]
    assert_allclose(field.take(7, 1 + axis)[within], expected, atol=1e-4)
    assert not field[axis].any()
    assert seen == sorted(seen)
    assert (len(seen), seen[-1]) == (4, 1.0)


def test_a_network_sees_one_slice_at_a_time():
    flow = Flow()
    vrnet.register(*pair(3), Trained.of(card(), flow, "w.safetensors"), slice_axis=0)
    assert [tuple(I0.shape) for I0, _, _ in flow.seen] == [(1, 1, *SIZES[3][1:])] * SIZES[3][0]


def test_a_model_of_another_dimension_is_refused_in_one_line(d):
    other = {2: 3, 3: 2}[d]
    with pytest.raises(BadInput, match=f"is a {other}D model"):
        vrnet.register(*pair(d), trained(d=other))
    with pytest.raises(BadInput, match="is a 3D model"):
        vrnet.register(*pair(3), trained(d=3), slice_axis=2)


def test_a_learned_method_without_weights_is_refused():
    with pytest.raises(BadInput, match="VoxelMorph is learned and needs weights"):
        vrnet.register(*pair(2), "voxelmorph")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_model_works_on_the_device_that_is_named(d):
    model, h = trained(d=d), (1.2, 2.5, 4.0)[:d]
    there, here, again = (vrnet.register(*pair(d), model, spacing=h, device=k).field for k in ("cuda", "cpu", "cuda"))
    assert_allclose(there, here, atol=2e-2)
    assert_allclose(there, again, atol=1e-4)


@pytest.mark.parametrize(("name", "dtype"), [("TV-L1", np.uint64), ("Gaussian-LNCC", np.float64)])
def test_a_brightness_that_single_precision_cannot_hold_changes_nothing(name, dtype, as_users_run):
    """But for rounding: the numbers are whole, and double precision holds them with and without the offset."""
    rng = np.random.default_rng(0)
    a, b = (np.round(500 * ndimage.gaussian_filter(rng.standard_normal((24, 20)), 2)) + 200 for _ in range(2))
    plain = vrnet.register(a, b, name)
    bright = vrnet.register(*((image + 2**40).astype(dtype) for image in (a, b)), name)
    assert_allclose(bright.field, plain.field, atol=1e-3)
    assert_allclose(bright.warped - 2.0**40, plain.warped, atol=0.1)
    assert bright.warped.dtype == np.float64


def spacing_warnings(method, spacing, **options):
    """What a registration of images with this spacing warns of."""
    I = pair(3)[0][:4, :4, :4]  # which is few voxels at any spacing
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        register(I, I, method, spacing=spacing, folds="keep", **options)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    ("spacing", "average", "is_told"),
    [((1.76, 1.76, 10.0), False, True), ((1.76, 1.76, 10.0), True, True), ((2.9, 1.0, 0.35), False, False),
     (None, False, False)],
)  # fmt: skip
def test_voxels_far_coarser_or_finer_than_those_of_training_are_told(spacing, average, is_told):
    said = spacing_warnings(trained(d=3, spacing=(1.0, 1.0, 1.0)), spacing, average=average)
    who = "C-L2-2x1-w2+average" if average else "C-L2-2x1-w2"
    words = f"{who} was trained on voxels of 1 x 1 x 1 mm; these are of 1.76 x 1.76 x 10 mm, three or more times"
    assert [one.startswith(words) for one in said] == [True] * is_told
