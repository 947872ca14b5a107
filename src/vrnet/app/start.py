"""What `vrnet` alone prints: what it does, where to begin, and where to read on; and `vrnet --help`: all commands."""

from collections.abc import Callable, Mapping
from inspect import getdoc
from shutil import get_terminal_size
from textwrap import wrap

from vrnet.provenance import __version__

WIDEST = 100
"""Columns of a line that is read with ease."""

START = """\
vrnet {version}: find the motion between two images of the heart, or through a
whole cine; in 2D and 3D, on your own files.

  vrnet demo
      a made-up heart registered: look at demo/report.html
  vrnet register ED.nii.gz ES.nii.gz --out pair --report
      two images; writes the transform, the warped image, a verdict, a page
  vrnet track CINE.nii.gz --labels ED_LABELS.nii.gz --out cine --report
      a beating heart: contours, volumes and strain of every frame
  vrnet doctor
      is everything installed as it should be?

All commands: vrnet --help          One of them: vrnet register --help
In Python:    import vrnet; help(vrnet)
Documentation: README.md and docs/ of the source; `make docs` makes a site."""


def start_text() -> str:
    """The text, for this version."""
    return START.format(version=__version__)


def commands_text(commands: Mapping[str, Callable[..., object]]) -> str:
    """Every command, with the first sentence of its help."""
    beside = max(map(len, commands)) + 4
    width = max(min(get_terminal_size().columns, WIDEST) - beside, 20)
    lines = ["usage: vrnet COMMAND [options]", ""]
    for name, command in commands.items():
        first, *more = wrap((getdoc(command) or "").partition("\n\n")[0], width)
        lines += [f"  {name:{beside - 2}}{first}", *(" " * beside + line for line in more)]
    return "\n".join([*lines, "", "vrnet COMMAND --help explains one; vrnet alone says where to begin."])
