import re

import pytest
import torch

from vrnet.errors import BadInput
from vrnet.methods.names import parameters, parse, parse_trainable
from vrnet.methods.vrnet import PAPER, RCNet, Siamese, VoxelMorph, VRNet
from vrnet.methods.weights import parse_learned
from vrnet.networks.denoisers import Noise
from vrnet.networks.unet import he_initialised
from vrnet.variational.cascade import Cascade, DataStep, Denoise, State, Step, no_motion
from vrnet.variational.data_terms import L1
from vrnet.variational.linearize import linearize
from vrnet.variational.regularizers import TV

NARROW_WIDTH = {2: 2, 3: 2}
SIZE = {2: (20, 18), 3: (10, 9, 11)}


def pair(d, smooth_image):
    return smooth_image(SIZE[d], 2, 0, torch.float32), smooth_image(SIZE[d], 2, 1, torch.float32)


def size(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_paper_s_table_has_20_rows_whose_shorthand_parses_and_prints():
    """As its table prints them, column by column."""
    for method in PAPER:
        assert parse_learned(str(method)) == parse_learned(str(method).lower()) == method
    rows = ["L2-1x1", "L2-2x1", "L2-2x2", "L2-3x2", "L2-6x1", "L1-1x1", "L1-2x1", "L1-2x2", "L1-3x2", "L1-6x1"]
    assert [str(method) for method in PAPER] == [f"{denoiser}-{row}" for denoiser in "RU" for row in rows]


def test_names_say_what_differs_from_the_paper():
    for name in (
        "D-LNCC-3x1-w16",
        "R-L2-6x1-zeros-Θ1-released-w16",
        "R-L2-6x1-noise",
        "D-L2-3x1-half-w32",
        "U-L1-2x1-released-half",
        "D-none-3x1-w16",
        "C-L2-3x1-released-frozen",
        "R-L2-2x2-half-he-w16",
        "D-L2-3x1-half-c3-w16",
    ):
        assert str(parse_learned(name)) == name


@pytest.mark.parametrize(("d", "letter"), [(2, "R"), (3, "U"), (2, "C"), (3, "D")])
def test_networks_at_half_resolution_find_fields_of_full_size_whatever_the_sides(d, smooth_image, letter):
    model = VRNet(letter, "L2", 2, 1, resolution="half", width=NARROW_WIDTH[d]).build(d)
    he_initialised(model)
    with torch.no_grad():
        u = model(*pair(d, smooth_image))
    assert u.shape == (1, d, *SIZE[d])
    assert u.isfinite().all()


def test_vrnet_with_the_tv_prox_for_its_network_is_the_tv_solver(d, smooth_image):
    I0, I1 = pair(d, smooth_image)
    model = VRNet("R", "L1", 3, 2, init="zeros", parameters="Θ1", width=NARROW_WIDTH[d]).build(d)
    model.parts[0].second = Denoise(TV(5), 0.75)
    solver = Cascade(no_motion, [[Step(DataStep(L1(), 0.1), Denoise(TV(5), 0.75))] * 2] * 3)
    with torch.no_grad():
        assert model(I0, I1).abs().max() > 0.1
        torch.testing.assert_close(model(I0, I1), solver(I0, I1))


def test_separate_parameters_are_exactly_as_many_times_the_shared_ones(d):
    for warps, iterations in ((3, 2), (6, 1)):
        shared, separate = (
            VRNet("R", "L1", warps, iterations, init="zeros", parameters=p, width=NARROW_WIDTH[d]).build(d)
            for p in ("Θ1", "Θ2")
        )
        assert size(separate) == warps * iterations * size(shared)


@pytest.mark.parametrize(
    ("d", "denoiser", "data", "order", "parameters"),
    [
        (2, "R", "L1", "paper", "Θ1"),
        (3, "R", "L2", "released", "Θ2"),
        (2, "U", "L2", "paper", "Θ2"),
        (3, "U", "L1", "released", "Θ1"),
        (2, "C", "L1", "released", "Θ2"),
        (3, "C", "L2", "paper", "Θ1"),
        (2, "D", "L2", "released", "Θ1"),
        (3, "D", "L1", "paper", "Θ2"),
    ],
)
def test_every_parameter_receives_gradient(d, denoiser, data, order, parameters, smooth_image):
    I0, I1 = (smooth_image((16,) * d, 2, seed, torch.float32) for seed in (0, 1))
    torch.manual_seed(0)
    model = VRNet(denoiser, data, 2, 2, parameters=parameters, order=order, width=4).build(d)
    with torch.no_grad():  # as after some training: heads are no longer near zero
        for name, weight in model.named_parameters():
            if "head" in name:
                weight.normal_(std=0.05)
    model(I0, I1).square().sum().backward()
    dead = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not dead
    assert sum(name.endswith("log_theta") for name, _ in model.named_parameters()) == (1 if parameters == "Θ1" else 4)


@pytest.mark.parametrize("letter", "RD")
def test_a_frozen_penalty_is_the_only_parameter_without_gradient(letter):
    model = VRNet(letter, "L2", 2, 1, penalty="frozen", width=2).build(2)
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    assert frozen == {name for name, _ in model.named_parameters() if name.endswith("log_theta")}
    assert len(frozen) == 2


def test_start_weights_by_hes_rule_are_those_of_a_plain_denoiser():
    torch.manual_seed(0)
    plain = VRNet("U", "L2", 1, 1, init="zeros", width=4).build(2).state_dict()
    torch.manual_seed(0)
    residual = VRNet("R", "L2", 1, 1, init="zeros", start_weights="he", width=4).build(2).state_dict()
    assert plain.keys() == residual.keys()
    assert all(torch.equal(plain[name], residual[name]) for name in plain)


def test_without_data_steps_there_is_no_penalty_to_set():
    assert [each.name for each in parameters(parse("D-L2-3x1"))] == ["theta"]
    assert not parameters(parse("D-none-3x1"))


def test_without_data_steps_what_sees_no_image_is_refused():
    for name, words in {
        "C-none-2x1(theta=1.0)": "theta of C-none-2x1 is said by its name",
        "R-none-1x1-zeros": "no part of R-none-1x1-zeros sees the images: choose C or D, or leave out zeros",
    }.items():
        with pytest.raises(BadInput, match=re.escape(words)):
            parse_learned(name)
    for kept in ("R-none-1x1", "C-none-2x1-zeros", "D-none-2x1-noise"):
        assert str(parse_learned(kept)) == kept


def test_image_aware_cascades_without_data_steps_are_recursive_ones_with_one_more(d, smooth_image):
    bare, recursive = VRNet("C", "none", 2, 1, width=2).build(d), RCNet(3, width=2).build(d)
    he_initialised(bare)
    nets = [bare.init.net, *(part.second.net for part in bare.parts)]
    for net, part in zip(nets, recursive.parts, strict=True):
        part.second.net.load_state_dict(net.state_dict())
    I0, I1 = pair(d, smooth_image)
    with torch.no_grad():
        assert bare(I0, I1).abs().max() > 0.1
        torch.testing.assert_close(bare(I0, I1), recursive(I0, I1))


def test_an_untrained_residual_network_is_near_the_identity(d, smooth_image):
    I0, I1 = pair(d, smooth_image)
    step = VRNet("R", width=NARROW_WIDTH[d]).build(d).parts[0]
    u = 5 * smooth_image(SIZE[d], 2, 3, torch.float32).expand(1, d, *SIZE[d])
    state = State(u, linearize(I0, I1, u, (1.0,) * d))
    assert (step.second(state).v - u).abs().max() < 1e-2


def test_the_released_order_denoises_first(d, smooth_image):
    I0, I1 = pair(d, smooth_image)
    model = VRNet("R", "L2", 1, 1, init="noise", order="released", width=NARROW_WIDTH[d]).build(d)
    torch.manual_seed(3)
    u = model(I0, I1)
    torch.manual_seed(3)
    v = Noise()(I0, I1)
    state, step = State(v, linearize(I0, I1, v, (1.0,) * d)), model.parts[0]
    assert isinstance(step.second, DataStep)
    torch.testing.assert_close(u, step.second(step.first(state)).v)


def test_noise_is_the_same_in_use_and_another_each_time_in_training(d, smooth_image):
    """For each pair of a batch as for a pair alone, and whatever else is drawn."""
    I0, I1 = (I.expand(3, -1, *SIZE[d]) for I in pair(d, smooth_image))
    start = VRNet(init="noise", width=NARROW_WIDTH[d]).build(d).init
    a, b = start(I0, I1, None), start(I0, I1, None)
    assert not torch.equal(a, b)
    assert not torch.equal(a[0], a[1])
    before = torch.get_rng_state()
    u, v = start.eval()(I0, I1, None), start(I0[:1], I1[:1], None)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(u, v.expand_as(u))
    for field in (a, u):
        assert abs(field.std() - 1) < 0.1
        assert abs(field.mean()) < 0.1


@pytest.mark.parametrize(("d", "method"), [(2, "U-L2-6x1-w4"), (3, "U-L1-3x2-w4")])
def test_a_plain_denoiser_hides_nothing_from_those_before_it(d, method, smooth_image):
    I0, I1 = pair(d, smooth_image)
    torch.manual_seed(0)
    model = parse_trainable(method).build(d)
    model(I0, I1).square().mean().backward()
    strongest = [max(w.grad.abs().max().item() for w in part.parameters()) for part in (model.init, *model.parts)]
    assert min(strongest) > 1e-6


def test_other_names_are_not_configurations():
    for name in ("R-L3-1x1", "R-L1-3", "X-L1-1x1", "R-L1-3x2-unknown", "TV-L1", ""):
        assert parse_learned(name) is None


def test_a_cascade_without_steps_and_a_network_without_channels_are_refused():
    for wrong in (
        lambda: VRNet(warps=0),
        lambda: parse_learned("R-L1-0x1"),
        lambda: RCNet(0),
        lambda: VRNet(theta=0.0),
    ):
        with pytest.raises(BadInput):
            wrong()
    for name in ("R-L1-3x2-w0", "VoxelMorph-w0", "Siamese-w0", "2xRC-Net-w0"):
        with pytest.raises(BadInput, match="the width of a network is 0: give a number of 1 or more"):
            parse_trainable(name)


METHODS = VRNet(width=2), VRNet("C", "L1", 2, 1, "noise", width=2), VoxelMorph(2), Siamese(4), RCNet(2, 2)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_every_learned_method_gives_a_field_for_any_size(d, method, smooth_image):
    I0, I1 = pair(d, smooth_image)
    model = method.build(d).eval()
    with torch.no_grad():
        u = model(I0, I1)
    assert u.shape == (1, d, *SIZE[d])
    assert u.isfinite().all()


@pytest.mark.parametrize(("d", "name"), [(2, "D-L2-2x1-c2-w2"), (3, "C-L1-1x2-c2-w2"), (2, "R-L2-2x1-zeros-c2-w2")])
def test_further_channels_of_weight_nearly_0_count_for_nothing(d, name, smooth_image):
    """In networks too; then a data step is that of the image alone."""
    torch.manual_seed(0)
    model = parse_learned(name).build(d)
    I0, I1 = pair(d, smooth_image)
    p0, p1 = (torch.rand(1, 2, *SIZE[d], generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    fields = {}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.2 if d == 2 else 0.05)
        for beta in (1e-8, 0.5):
            model.init.log_beta.fill_(beta).log_()
            others = ((p0, p1), (p1, torch.zeros_like(p1)))
            fields[beta] = [model(torch.cat([I0, a], 1), torch.cat([I1, b], 1)) for a, b in others]
    torch.testing.assert_close(*fields[1e-8], rtol=0, atol=1e-4)
    assert (fields[0.5][0] - fields[0.5][1]).abs().max() > 0.01


def test_the_data_step_with_channels_is_that_of_weighed_images(smooth_image):
    """R without an initial network: all that the weights of channels do is in the data step."""
    torch.manual_seed(0)
    model, plain = (parse_learned(f"R-L2-1x1-zeros{word}-w2").build(2) for word in ("-c1", ""))
    plain.parts.load_state_dict(model.parts.state_dict())
    I0, I1 = pair(2, smooth_image)
    channels = torch.roll(I0, 1, 2), torch.roll(I1, 2, 3)
    given, weighed = ([torch.cat([I, w * p], 1) for I, p in zip((I0, I1), channels, strict=True)] for w in (1.0, 0.3))
    torch.testing.assert_close(model(*given), plain(*weighed))
    model(*given).square().sum().backward()
    assert model.init.log_beta.grad.abs().item() > 0
