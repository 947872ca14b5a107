import torch

from vrnet.methods.names import parse
from vrnet.variational.progress import watching


def test_progress_rises_from_nothing_to_one_and_leaves_no_trace(smooth_image):
    I0, I1 = smooth_image((64, 64), 3, 0).float(), smooth_image((64, 64), 3, 1).float()
    solver, seen = parse("TV-L1").build(2), []
    with torch.no_grad(), watching(solver, (64, 64), None, seen.append):
        solver(I0, I1)
    assert seen == sorted(seen)
    assert 0 < seen[0] < 0.1
    assert seen[-1] == 1
    solver(I0, I1)
    assert seen[-1] == 1
    assert not any(part._forward_hooks for part in solver.modules())
