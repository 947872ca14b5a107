import pytest
import torch

from vrnet.devices import WARM_UP, capture_graph, channels_last, record_graph
from vrnet.methods.learned import learned

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="recording needs a CUDA device")


def pairs(d, n):
    torch.manual_seed(0)
    return [torch.rand(2, 1, 1, *(32,) * d, device="cuda").unbind() for _ in range(n)]


@pytest.mark.parametrize("name", ["C-L1-2x1-w4", "R-L2-2x1-w4", "VoxelMorph-w4"])
def test_a_network_replayed_is_the_network(d, name):
    model = channels_last(learned(name).build(d).cuda().eval(), d)
    first, *others = pairs(d, 3)
    with torch.inference_mode():
        replay = capture_graph(model, *first)
        for I0, I1 in others:
            torch.testing.assert_close(replay(I0, I1), model(I0, I1), rtol=1e-4, atol=1e-4)


def test_a_function_recorded_changes_what_it_changes_at_every_replay():
    """As a training step does: the weights, and nothing while it is recorded."""
    x = torch.zeros((), device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(WARM_UP):
            x.add_(1)
        replay = record_graph(lambda y: x.add_(y), torch.tensor(5.0, device="cuda"))
        torch.cuda.synchronize()
        assert x == WARM_UP
        for y in (10.0, 100.0):
            replay(torch.tensor(y, device="cuda"))
        torch.cuda.synchronize()
    assert x == WARM_UP + 110


def test_channels_come_last_in_memory(d):
    model = channels_last(learned("VoxelMorph-w4").build(d).cuda(), d)
    form = {2: torch.channels_last, 3: torch.channels_last_3d}[d]
    weights = [parameter for parameter in model.parameters() if parameter.dim() == d + 2]
    assert all(weight.is_contiguous(memory_format=form) for weight in weights)
