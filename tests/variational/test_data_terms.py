import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from vrnet import BadInput
from vrnet.fields.calculus import gradient, scale, smooth, warp
from vrnet.training.loss import parse_sum
from vrnet.variational.cascade import DataStep
from vrnet.variational.contrast import conditional_mean, learn_curves, trust
from vrnet.variational.data_terms import DATA_TERMS, L1, L2, LNCC, MIND, NMI, BothContrastsLNCC, Remap
from vrnet.variational.linearize import REMEMBERED, Linearization

SHAPE = {2: (3, 4), 3: (2, 3, 2)}
ROOM = {2: (12, 10), 3: (8, 9, 7)}
PAIRED = [("L1", 2), ("L2", 3), ("LNCC", 2), ("MIND", 3), ("NMI", 2), ("Remap", 3)]
"""Each data term in one dimension: what they share is tested in both."""


def expansion(residual, J, at, h):
    """A linearisation for data terms, which look at no image once it is expanded."""
    return Linearization(residual, residual, residual, at, h, residual=residual, J=J)


@pytest.fixture
def problem(d, h, random):
    """(v, lin): a linearised pair with gradients of order one."""
    shape = SHAPE[d]
    parts = random(2, 1, *shape), random(2, 1, d, *shape), random(2, d, *shape)
    return random(2, d, *shape), expansion(*parts, h)


def repeat(part, times):
    """A batch, so many times over."""
    return part.repeat(times, *[1] * (part.dim() - 1))


def energy(u, v, lin, theta, s):
    """1/s Σ|ρ(u)|^s + θ/2 |u − v|², at each voxel, with the length taken in space."""
    return lin.rho(u).abs().pow(s).sum(1) / s + theta / 2 * scale(u - v, lin.h).square().sum(1)


@pytest.mark.parametrize(("channels", "d"), [(1, 2), (3, 3)])
def test_the_l2_prox_solves_its_normal_equations(d, h, random, channels):
    """(JᵀJ + θH)(u − u^ω) = θH(v − u^ω) − Jᵀρ(u^ω), voxel by voxel, with H = diag(h²)."""
    shape, v = SHAPE[d], random(2, d, *SHAPE[d])
    lin = expansion(random(2, channels, *shape), random(2, channels, d, *shape), random(2, d, *shape), h)
    theta = torch.tensor(0.3, dtype=torch.float64)
    J, H = lin.J.movedim((1, 2), (-2, -1)), torch.tensor(lin.h, dtype=torch.float64).square()
    right = theta * H * (v - lin.at).movedim(1, -1) - (J.mT @ lin.residual.movedim(1, -1)[..., None])[..., 0]
    normal = J.mT @ J + theta * torch.diag(H)
    expected = lin.at + torch.linalg.solve(normal, right).movedim(-1, 1)
    torch.testing.assert_close(L2().prox(v, lin, theta), expected)


@pytest.mark.parametrize(("theta", "d"), [(0.05, 2), (5.0, 3)])
def test_the_l1_prox_beats_every_point_of_a_brute_force_search(problem, theta):
    v, lin = problem
    theta = torch.tensor(theta, dtype=torch.float64)
    u = L1().prox(v, lin, theta)
    reached = energy(u, v, lin, theta, s=1)
    generator, tries = torch.Generator().manual_seed(1), 500
    u, v, reached, residual, J, at = (repeat(part, tries) for part in (u, v, reached, lin.residual, lin.J, lin.at))
    many = expansion(residual, J, at, lin.h)
    for size in (10, 1, 0.1, 0.01, 0.001):
        other = u + size * torch.randn(u.shape, generator=generator, dtype=u.dtype)
        assert (reached <= energy(other, v, many, theta, s=1) + 2e-4).all()


def test_the_l1_prox_of_one_channel_is_the_thresholding_formula(d, random):
    shape, h = SHAPE[d], (1.0,) * d
    lin = expansion(random(1, 1, *shape), random(1, 1, d, *shape), random(1, d, *shape), h)
    v, theta = random(1, d, *shape), torch.tensor(0.2, dtype=torch.float64)
    J, rho = lin.J[:, 0], lin.rho(v)
    z = theta * rho / (J.square().sum(1, keepdim=True) + 1e-5)
    torch.testing.assert_close(L1().prox(v, lin, theta), v - z / z.abs().clamp(min=1) * J / theta)


def test_equal_channels_act_as_one_with_the_sum_of_their_weights(d, h, random):
    """Two copies of a channel double its squares, which is one channel with θ halved."""
    shape, v = SHAPE[d], random(1, d, *SHAPE[d])
    parts = random(1, 1, *shape), random(1, 1, d, *shape)
    one, theta = expansion(*parts, v, h), torch.tensor(0.4, dtype=torch.float64)
    two = expansion(*(part.repeat(1, 2, *[1] * (part.dim() - 2)) for part in parts), v, h)
    torch.testing.assert_close(L2().prox(v, two, theta), L2().prox(v, one, theta / 2))


@pytest.mark.parametrize(("term", "d"), [(L1(), 2), (L1(), 3), (L2(), 3)])
def test_without_image_gradient_nothing_moves(d, h, random, term):
    shape, v = SHAPE[d], random(1, d, *SHAPE[d])
    flat = expansion(random(1, 1, *shape), torch.zeros(1, 1, d, *shape).double(), v, h)
    assert torch.equal(term.prox(v, flat, torch.tensor(0.1)), v)


@pytest.mark.parametrize(("term", "channels", "d"), [(L1(), 1, 2), (L1(), 1, 3), (L2(), 3, 3)])
def test_gradients_flow_through_the_prox_and_to_theta(d, h, random, term, channels):
    voxels = (2,) + (1,) * (d - 1)
    at = random(1, d, *voxels)
    log_theta = DataStep(term, theta=0.7).double().log_theta

    def through(v, residual, J, log_theta):
        return term.prox(v, expansion(residual, J, at, h), log_theta.exp())

    inputs = random(1, d, *voxels), random(1, channels, *voxels), random(1, channels, d, *voxels), log_theta
    assert gradcheck(through, tuple(x.detach().requires_grad_() for x in inputs))


@pytest.mark.parametrize(("term", "s", "d"), [(L1(), 1, 2), (L2(), 2, 3)])
def test_the_value_is_the_power_of_the_difference_and_squares_of_further_channels(d, random, term, s):
    I0, I1w = random(2, 3, *SHAPE[d]), random(2, 3, *SHAPE[d])
    expected = (I1w - I0)[:, 0].abs().pow(s) / s + (I1w - I0)[:, 1:].square().sum(1) / 2
    torch.testing.assert_close(term.value(I1w, I0, (1.0,) * d), expected)


@pytest.fixture
def vector_images(images, random):
    """(I0, I1, v): the images with two further channels each."""
    I0, I1, v = images
    return *(torch.cat([I, smooth(random(2, 2, *I.shape[2:]), 0.7)], 1) for I in (I0, I1)), v


@pytest.mark.parametrize(("per_voxel", "d"), [(False, 2), (True, 3)])
def test_an_l2_step_of_several_channels_is_that_of_vector_images(d, h, vector_images, random, per_voxel):
    """(Σ ∇m ∇mᵀ + θH)(u − v) = −Σ ∇m ρ_m(v), over all channels m of the images: the paper's Appendix 1."""
    I0, I1, at = vector_images
    v, I1w = at + 0.3 * random(*at.shape), warp(I1, at)
    theta = torch.rand(2, 1, *ROOM[d], dtype=torch.float64) + 0.1 if per_voxel else torch.tensor(0.3).double()
    vector = expansion(I1w - I0, gradient(I1w), at, h)
    torch.testing.assert_close(L2().prox(v, L2().linearize(I0, I1, at, h), theta), L2().prox(v, vector, theta))


@pytest.mark.parametrize(("theta", "d"), [(0.05, 2), (2.0, 3)])
def test_an_l1_step_beside_further_channels_beats_every_point_of_a_brute_force_search(h, vector_images, random, theta):
    """min_u |ρ₁(u)| + ½ Σ |ρ_m(u)|² + θ/2 |u − v|²."""
    I0, I1, at = vector_images
    I1w, v = warp(I1, at), at + 0.3 * random(*at.shape)
    all_channels = expansion(I1w - I0, gradient(I1w), at, h)

    def energy(u):
        rho = all_channels.rho(u)
        return rho[:, 0].abs() + rho[:, 1:].square().sum(1) / 2 + theta / 2 * scale(u - v, h).square().sum(1)

    u = L1().prox(v, L1().linearize(I0, I1, at, h), torch.tensor(theta, dtype=torch.float64))
    reached = energy(u)
    assert (reached < energy(v) - 1e-3).any()
    for size in (1, 0.1, 0.01, 0.001):
        for _ in range(50):
            assert (reached <= energy(u + size * random(*u.shape)) + 2e-4).all()


@pytest.mark.parametrize(("name", "d"), PAIRED)
def test_further_channels_add_their_squares_to_every_data_term(d, h, vector_images, name):
    """The energy of the images by themselves, and ½ Σ |ρ|²; the expansion likewise."""
    (I0, I1, v), term = vector_images, DATA_TERMS[name]
    lin, own, I1w = term.linearize(I0, I1, v, h), term.linearize(I0[:, :1], I1[:, :1], v, h), warp(I1, v)
    torch.testing.assert_close(lin.I1w, I1w)
    squares = (I1w - I0)[:, 1:].square().sum(1) / 2
    torch.testing.assert_close(term.value(I1w, I0, h), term.value(I1w[:, :1], I0[:, :1], h) + squares)
    torch.testing.assert_close(term.value_at(lin), term.value_at(own) + squares)
    if name not in ("L1", "L2"):
        J = gradient(I1w[:, 1:])
        torch.testing.assert_close(lin.A, own.A + torch.einsum("bki...,bkj...->bij...", J, J))
        torch.testing.assert_close(lin.b, own.b + torch.einsum("bki...,bk...->bi...", J, (I1w - I0)[:, 1:]))


@pytest.mark.parametrize(("term", "d"), [(L1(), 2), (L2(), 3), (LNCC(), 2)])
def test_gradients_flow_through_a_step_with_further_channels(d, h, vector_images, term):
    crop = (slice(0, 1), slice(None), *[slice(0, 3)] * d)
    I0, I1, v = (part[crop].clone().requires_grad_() for part in vector_images)
    theta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda *x: term.prox(x[2] + 0.1, term.linearize(*x[:3], h), x[3]), (I0, I1, v, theta), atol=1e-4)


def test_training_minimises_the_mean_absolute_or_the_mean_squared_difference(d, random):
    I0, I1w = random(2, 1, *SHAPE[d]), random(2, 1, *SHAPE[d])
    torch.testing.assert_close(L1().loss(I1w, I0), (I1w - I0).abs().mean())
    torch.testing.assert_close(L2().loss(I1w, I0), (I1w - I0).square().mean())


@pytest.fixture
def images(d):
    """(I0, I1, v): smooth images in [0, 1], and a field that moves them by about a voxel."""
    generator = torch.Generator().manual_seed(d)
    I0, I1 = torch.rand(2, 2, 1, *ROOM[d], dtype=torch.float64, generator=generator).unbind()
    return smooth(I0, 0.7), smooth(I1, 0.7), torch.randn(2, d, *ROOM[d], dtype=torch.float64, generator=generator)


@pytest.mark.parametrize(("name", "d"), PAIRED)
def test_the_value_where_images_were_expanded_is_the_value(h, images, name):
    """The energy that is watched and the sub-problem that is solved are of one function."""
    (I0, I1, v), term = images, DATA_TERMS[name]
    lin = term.linearize(I0, I1, v, h)
    torch.testing.assert_close(lin.I1w, warp(I1, v))
    torch.testing.assert_close(term.value_at(lin), term.value(warp(I1, v), I0, h))


@pytest.mark.parametrize(("term", "d"), [(LNCC(), 3), (MIND(), 2)])
def test_squares_are_expanded_by_the_slopes_of_their_channels(d, h, images, term):
    """A = JᵀJ/k and b = Jᵀρ/k, with J by NumPy's differences of the channels between repeated borders."""
    I0, I1, v = images
    lin, seen = term.linearize(I0, I1, v, h), term.channels(warp(I1, v), h).numpy()
    rho, k = seen - term.channels(I0, h).numpy(), seen.shape[1]
    padded = np.pad(seen, [(0, 0), (0, 0), *[(1, 1)] * d], mode="edge")
    inner = (slice(None), slice(None), *[slice(1, -1)] * d)
    J = np.stack([np.gradient(padded, axis=2 + axis)[inner] for axis in range(d)], axis=2)
    np.testing.assert_allclose(lin.b.numpy(), np.einsum("bki...,bk...->bi...", J, rho) / k, atol=1e-9)
    np.testing.assert_allclose(lin.A.numpy(), np.einsum("bki...,bkj...->bij...", J, J) / k, atol=1e-9)


def both_contrasts(I0, I1w, h, weight):
    """(D of each direction as LNCC has it, how far each is trusted): of one image with what the other says of it."""
    A0, A1 = learn_curves(I0, I1w, h, weight).apply(I0, I1w)
    D = [LNCC().value(A1[:, k : k + 1], A0[:, k : k + 1], h) for k in range(2)]
    return A0, A1, D, trust(A0, A1, weight).view(len(I0), 2, *[1] * (I0.dim() - 2)).unbind(1)


@pytest.mark.parametrize(("masked", "d"), [(False, 3), (True, 2)])
def test_remap_is_local_correlation_in_both_contrasts_each_counted_by_its_trust(h, images, masked):
    I0, I1, _ = images
    weight = (torch.rand_like(I0) > 0.3).double() if masked else None
    A0, A1, D, (forward, backward) = both_contrasts(I0, I1, h, weight)
    expected = (forward * D[0] + backward * D[1]) / (forward + backward)
    torch.testing.assert_close(Remap().value(I1, I0, h, weight), expected)
    torch.testing.assert_close(BothContrastsLNCC().value(A1, A0, h, weight), expected)


def test_remap_is_expanded_by_the_slopes_of_both_contrasts(h, images):
    """A and b are those of LNCC of either direction, each counted by its trust."""
    I0, I1, v = images
    lin = Remap().linearize(I0, I1, v, h)
    A0, A1, _, q = both_contrasts(I0, lin.I1w, h, None)
    still = torch.zeros_like(v)
    parts = [LNCC().linearize(A0[:, k : k + 1], A1[:, k : k + 1], still, h) for k in range(2)]
    share = [(part / (q[0] + q[1]))[:, None] for part in q]
    torch.testing.assert_close(lin.b, share[0] * parts[0].b + share[1] * parts[1].b)
    torch.testing.assert_close(lin.A, share[0][:, None] * parts[0].A + share[1][:, None] * parts[1].A)


@pytest.mark.parametrize(("name", "d", "per_voxel"), [("LNCC", 3, False), ("MIND", 2, True), ("NMI", 3, True)])
def test_the_prox_of_squares_solves_their_normal_equations(d, h, images, name, per_voxel):
    """(A + θH)(u − v) = −b − A(v − u^ω), voxel by voxel, by LAPACK."""
    (I0, I1, at), term = images, DATA_TERMS[name]
    lin, v = term.linearize(I0, I1, at, h), at + 0.3
    theta = torch.full((2, 1, *ROOM[d]), 0.2).double() if per_voxel else torch.tensor(0.2, dtype=torch.float64)
    A = lin.A.movedim((1, 2), (-2, -1)) + 0.2 * torch.diag(torch.tensor(h, dtype=torch.float64).square())
    right = -lin.b.movedim(1, -1) - torch.einsum("bij...,bj...->b...i", lin.A, v - at)
    torch.testing.assert_close(term.prox(v, lin, theta), v + torch.linalg.solve(A, right).movedim(-1, 1))


@pytest.mark.parametrize(("name", "d"), PAIRED)
def test_a_data_step_lowers_the_value(d, images, name):
    """From a start off by a little less than a voxel, the step goes the right way."""
    I0, h, term = smooth(images[0], 1.0), (1.0,) * d, DATA_TERMS[name]
    I0 = (I0 - I0.amin()) / (I0.amax() - I0.amin())
    off = torch.full_like(images[2], 0.7)
    lin = term.linearize(I0, warp(I0, -off), torch.zeros_like(off), h)
    moved = smooth(term.prox(torch.zeros_like(off), lin, torch.tensor(0.1)), 1.0)
    after = term.value(warp(lin.I1, moved), I0, h).mean()
    assert after < term.value_at(lin).mean()


@pytest.mark.parametrize(("name", "d"), PAIRED[2:])
def test_gradients_of_a_contrast_free_loss_are_those_of_differences(d, images, name):
    (I0, I1, _), term = images, DATA_TERMS[name]
    crop = (slice(0, 1), slice(None), *[slice(0, 6 - d)] * d)
    assert gradcheck(lambda I: term.loss(I, I0[crop]), I1[crop].clone().requires_grad_(), eps=1e-7, atol=1e-5)


@pytest.mark.parametrize(
    ("term", "contrast", "d"),
    [
        (LNCC(epsilon=0.0), lambda I: 5 * I + 2, 2),
        (MIND(), lambda I: 1 - 3 * I, 3),
        (NMI(), lambda I: 1 - I, 2),
        (Remap(), lambda I: 1 - I, 3),
    ],
    ids=["LNCC", "MIND", "NMI", "Remap"],
)
def test_a_data_term_is_free_of_the_contrast_that_it_claims_to_be_free_of(h, images, term, contrast):
    I0, I1, v = images
    theta = torch.tensor(0.1, dtype=torch.float64)
    same, other = (term.prox(v, term.linearize(I0, I, v, h), theta) for I in (I1, contrast(I1)))
    torch.testing.assert_close(same, other)


def test_what_is_remembered_of_an_image_goes_with_it(images):
    I0, I1, v = images
    mine = I0.clone()
    with torch.no_grad():
        LNCC().linearize(mine, I1, v, (1.0,) * (v.dim() - 2))
        assert mine in REMEMBERED
        before = len(REMEMBERED)
        del mine
        assert len(REMEMBERED) == before - 1


def test_what_is_remembered_of_an_image_is_forgotten_when_it_changes(d):
    I0, I1w = torch.rand(2, 1, 1, *ROOM[d]).unbind()
    term = MIND()  # one object: what another has made is not looked up
    with torch.no_grad():
        assert term.loss(I1w, I0) > 0
        I0.copy_(I1w)
        assert term.loss(I1w, I0) == 0


def test_lncc_without_epsilon_is_one_less_the_local_correlation_of_numpy():
    """Where the box is the image: the mean over one box of a periodic pattern."""
    generator = np.random.default_rng(0)
    a, b = generator.random((2, 9))
    tile = [torch.from_numpy(np.tile(part, 9)[None, None, None].repeat(3, 2)) for part in (a, b)]
    value = LNCC(radii=(4.0,), epsilon=0.0).value(*tile, (1.0, 1.0))[..., 36:45]
    assert value.mean().item() == pytest.approx(1 - np.corrcoef(a, b)[0, 1])
    damped = LNCC(radii=(4.0,)).value(*tile, (1.0, 1.0))[..., 36:45].mean().item()
    var = [part.var() + 0.2**2 for part in (a, b)]
    expected = (a.var() / var[0] + b.var() / var[1]) / 2 - np.cov(a, b, ddof=0)[0, 1] / np.sqrt(var[0] * var[1])
    assert damped == pytest.approx(expected)


def test_the_normal_equations_of_mutual_information_are_scaled_as_the_measure_is(d, images):
    """NMI / H(I0, I1w) / s² times the squares of ρ = E[I0 | I1w] − I0, by a histogram of NumPy."""
    I0, I1, _ = images
    for k in range(len(I0)):
        one, other = (I[k : k + 1].clamp(0, 1) for I in (I0, I1))
        lin = NMI(bins=8).linearize(one, other, torch.zeros_like(images[2][:1]), (1.0,) * d)
        seen = conditional_mean(one, other, 8)
        p = np.histogram2d(one.numpy().ravel(), other.numpy().ravel(), 8, ((0, 1), (0, 1)))[0] / one.numel()
        H = [-(q[q > 0] * np.log(q[q > 0])).sum() for q in (p.sum(1), p.sum(0), p)]
        rho = seen - one
        scale = (H[0] + H[1]) / H[2] / H[2] / rho.square().mean()
        torch.testing.assert_close(lin.b, scale * (gradient(seen)[:, 0] * rho))


@pytest.mark.parametrize(("name", "d"), PAIRED)
def test_blank_images_do_not_move(d, name):
    """As a slice of a stack may be, in both phases."""
    I, v, term = torch.zeros(1, 1, *ROOM[d]), torch.zeros(1, d, *ROOM[d]), DATA_TERMS[name]
    lin = term.linearize(I, I, v, (1.0,) * d)
    assert not term.prox(v, lin, torch.tensor(0.1)).any()
    assert not term.value_at(lin).any()


@pytest.mark.parametrize("made", ["NMI(bins=1)", "LNCC(radii=())", "LNCC(radii=(2,1e9))"])
def test_numbers_that_make_no_sense_are_bad_input_that_says_what_would(made):
    term, name = made.split("(")[0], made.split("(")[1].split("=")[0]
    with pytest.raises(BadInput, match=rf"{name}.* of {term} is .*: give a number of "):
        parse_sum(made, DATA_TERMS)


def test_numbers_at_the_ends_of_what_may_be_are_taken():
    assert NMI(bins=2).bins == 2
    assert MIND(distance=0.0, radius=0.0).radius == 0
    assert LNCC(radii=(1.0, 1000.0), epsilon=0.0).radii == (1, 1000)
