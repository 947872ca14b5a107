"""ITK shows warnings or not, in the whole process: silenced only where a file is known to bring one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

silenced: list[bool] = []
"""For each block under way, whether warnings were shown before the first of them."""
changing = Lock()


@contextmanager
def silence_warnings(is_needed: bool) -> Iterator[None]:
    """Show no warnings of ITK meanwhile, if that is needed: what they are about is known, or ends in BadInput.

    Whether they are shown afterwards is as it was before the first of the threads that are in here."""
    if not is_needed:
        yield
        return
    import SimpleITK as sitk

    with changing:
        silenced.append(silenced[0] if silenced else sitk.ProcessObject.GetGlobalWarningDisplay())
        sitk.ProcessObject.SetGlobalWarningDisplay(False)
    try:
        yield
    finally:
        with changing:
            were_shown = silenced.pop()
            if not silenced:
                sitk.ProcessObject.SetGlobalWarningDisplay(were_shown)


def start_anew() -> None:
    """After a fork: the threads that were in a block are not here to leave it."""
    global changing
    changing = Lock()
    if silenced:
        import SimpleITK as sitk

        sitk.ProcessObject.SetGlobalWarningDisplay(silenced[0])
        silenced.clear()


os.register_at_fork(after_in_child=start_anew)
