import pytest
import torch
from torch.autograd import gradcheck

from vrnet.fields import scale
from vrnet.variational.data_steps import DataStep, l1_step, l2_step
from vrnet.variational.linearize import Linearization

SHAPE = {2: (3, 4), 3: (2, 3, 2)}


@pytest.fixture(params=[1, 3], ids=["scalar", "vector"])
def channels(request):
    return request.param


@pytest.fixture
def problem(d, h, channels, random):
    """(v, lin): a linearised pair with gradients of order one."""
    shape = SHAPE[d]
    lin = Linearization(
        I0=random(2, channels, *shape),
        I1=random(2, channels, *shape),
        I1w=random(2, channels, *shape),
        J=random(2, channels, d, *shape),
        at=random(2, d, *shape),
        h=h,
    )
    return random(2, d, *shape), lin


def energy(u, v, lin, theta, s):
    """1/s Σ|ρ(u)|^s + θ/2 |u − v|², at each voxel, with the length taken in space."""
    return lin.rho(u).abs().pow(s).sum(1) / s + theta / 2 * scale(u - v, lin.h).square().sum(1)


def test_l2_step_solves_its_normal_equations(problem):
    """(JᵀJ + θH)(u − u^ω) = θH(v − u^ω) − Jᵀ(I1 − I0), voxel by voxel, with H = diag(h²)."""
    v, lin = problem
    theta = torch.tensor(0.3, dtype=torch.float64)
    J, H = lin.J.movedim((1, 2), (-2, -1)), torch.tensor(lin.h, dtype=torch.float64).square()
    right = theta * H * (v - lin.at).movedim(1, -1) - (J.mT @ (lin.I1w - lin.I0).movedim(1, -1)[..., None])[..., 0]
    normal = J.mT @ J + theta * torch.diag(H)
    expected = lin.at + torch.linalg.solve(normal, right).movedim(-1, 1)
    torch.testing.assert_close(l2_step(v, lin, theta), expected)


@pytest.mark.parametrize("theta", [0.05, 0.5, 5.0])
def test_l1_step_beats_every_point_of_a_brute_force_search(problem, theta):
    v, lin = problem
    theta = torch.tensor(theta, dtype=torch.float64)
    u = l1_step(v, lin, theta)
    reached = energy(u, v, lin, theta, s=1)
    generator = torch.Generator().manual_seed(1)
    for size in (10, 1, 0.1, 0.01, 0.001):
        for _ in range(500):
            other = u + size * torch.randn(u.shape, generator=generator, dtype=u.dtype)
            assert (reached <= energy(other, v, lin, theta, s=1) + 2e-4).all()


def test_scalar_l1_step_is_the_thresholding_formula(d, random):
    shape, h = SHAPE[d], (1.0,) * d
    lin = Linearization(*(random(1, 1, *shape) for _ in range(3)), random(1, 1, d, *shape), random(1, d, *shape), h)
    v, theta = random(1, d, *shape), torch.tensor(0.2, dtype=torch.float64)
    J, rho = lin.J[:, 0], lin.rho(v)
    z = theta * rho / (J.square().sum(1, keepdim=True) + 1e-5)
    torch.testing.assert_close(l1_step(v, lin, theta), v - z / z.abs().clamp(min=1) * J / theta)


def test_equal_channels_act_as_one_with_the_sum_of_their_weights(d, h, random):
    """Two copies of a channel double its data term, which is one channel with θ halved (L2) or J, ρ doubled (L1)."""
    shape, v = SHAPE[d], random(1, d, *SHAPE[d])
    parts = *(random(1, 1, *shape) for _ in range(3)), random(1, 1, d, *shape)
    one, at, theta = Linearization(*parts, v, h), v, torch.tensor(0.4, dtype=torch.float64)
    two = Linearization(*(part.repeat(1, 2, *[1] * (part.dim() - 2)) for part in parts), at, h)
    torch.testing.assert_close(l2_step(v, two, theta), l2_step(v, one, theta / 2))
    doubled = Linearization(*(2 * part for part in parts), at, h)
    torch.testing.assert_close(l1_step(v, two, theta), l1_step(v, doubled, theta), atol=1e-4, rtol=0)


@pytest.mark.parametrize("step", [l1_step, l2_step])
def test_without_image_gradient_nothing_moves(d, h, random, step):
    shape, v = SHAPE[d], random(1, d, *SHAPE[d])
    images = (random(1, 1, *shape) for _ in range(3))
    flat = Linearization(*images, torch.zeros(1, 1, d, *shape).double(), v, h)
    assert torch.equal(step(v, flat, torch.tensor(0.1)), v)


@pytest.mark.parametrize("step", [l1_step, l2_step])
def test_gradients_flow_through_the_step_and_to_theta(d, h, channels, random, step):
    voxels = (2,) + (1,) * (d - 1)
    I0, at = random(1, channels, *voxels), random(1, d, *voxels)
    log_theta = DataStep(step, theta=0.7).double().log_theta

    def through(v, I1w, J, log_theta):
        return step(v, Linearization(I0, I0, I1w, J, at, h), log_theta.exp())

    inputs = random(1, d, *voxels), random(1, channels, *voxels), random(1, channels, d, *voxels), log_theta
    assert gradcheck(through, tuple(x.detach().requires_grad_() for x in inputs))


def test_the_vector_l1_step_is_as_good_in_single_precision(d, random):
    shape, v, h = SHAPE[d], random(1, d, *SHAPE[d]), (1.0,) * d
    parts = *(random(1, 9, *shape) for _ in range(3)), 5 * random(1, 9, d, *shape), v
    exact = l1_step(v, Linearization(*parts, h), torch.tensor(0.1))
    single = l1_step(v.float(), Linearization(*(part.float() for part in parts), h), torch.tensor(0.1))
    torch.testing.assert_close(single.double(), exact, atol=1e-3, rtol=1e-3)
