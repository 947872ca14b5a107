"""Functions on a GPU recorded once and replayed: no kernel waits for Python to launch it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

WARM_UP = 3
Stream = torch.cuda.Stream
LAYOUTS = {2: torch.channels_last, 3: torch.channels_last_3d}


def laid_out(model: nn.Module, d: int) -> nn.Module:
    """The model with channels last in memory, which GPUs convolve faster, and some CPUs in 2D."""
    return model.to(memory_format=LAYOUTS[d])  # type: ignore[call-overload]


def recorded(function: Callable[..., Tensor], *examples: Tensor) -> Callable[..., Tensor]:
    """The same function of tensors shaped as the examples, to be called on the current stream.

    It must have run a few times before, on this stream, so that all it keeps is there. What it returns is overwritten
    by the next call."""
    inputs = [example.clone() for example in examples]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        output = function(*inputs)

    def replay(*given: Tensor) -> Tensor:
        for held, new in zip(inputs, given, strict=True):
            held.copy_(new)
        graph.replay()
        return output

    return replay


def captured(function: Callable[..., Tensor], *examples: Tensor) -> Callable[..., Tensor]:
    """The same, warmed up: for functions that change nothing, such as a network in use."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            function(*examples)
        replay = recorded(function, *examples)
    torch.cuda.current_stream().wait_stream(stream)
    return replay


@contextmanager
def own_stream(device: torch.device) -> Iterator[Stream | None]:
    """A stream of its own on a GPU, since what is recorded must not run on the default one; none elsewhere."""
    if device.type != "cuda":
        yield None
        return
    stream = Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield stream
