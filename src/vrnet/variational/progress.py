"""Progress of a coarse-to-fine solver, seen from outside its loops."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod

from torch import nn

from vrnet.variational.cascade import DualStep, Spacing, State, Step
from vrnet.variational.descent import Solver
from vrnet.variational.pyramid import coarser, respaced


@contextmanager
def watching(
    solver: Solver, shape: tuple[int, ...], spacing: Spacing, report: Callable[[float], None] | None
) -> Iterator[None]:
    """While inside, call report with the part done. A level counts by its voxels; one that stops early jumps ahead."""
    if report is None:
        yield
        return
    sizes, steps = level_sizes(shape, spacing), sum(len(inner) for inner in solver.cascade.steps)
    taken: dict[int, int] = {}

    def tick(module: nn.Module, args: tuple[State], state: State) -> None:
        size = prod(state.v.shape[2:])
        taken[size] = taken.get(size, 0) + 1
        below = sum(s for s in sizes if s < size)
        report((below + size * taken[size] / steps) / sum(sizes))

    hooks = [part.register_forward_hook(tick) for part in solver.modules() if isinstance(part, (Step, DualStep))]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    report(1.0)


def level_sizes(shape: tuple[int, ...], spacing: Spacing) -> list[int]:
    """Voxels at each level of a full pyramid, finest first."""
    below = coarser(shape, spacing)
    return [prod(shape)] + (level_sizes(below, respaced(spacing, shape, below)) if below != shape else [])
