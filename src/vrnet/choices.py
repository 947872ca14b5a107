"""Words that people choose among, in Python and on the command line. Here, below all that computes, since the command
line is shown before any of that is loaded."""

from typing import Literal

AffineStart = Literal["none", "rigid", "affine"]
"""How images are aligned before they are registered."""
Brightness = Literal["match", "keep"]
"""What may be done about images of which one is plainly brighter."""
DeviceChoice = Literal["auto", "cpu", "cuda"]
"""Where to compute."""
Folds = Literal["repair", "keep"]
"""What may be done about the folds of a field that a method found."""
Interpolation = Literal["linear", "bspline"]
"""What an image is between its voxels."""
Slices = Literal["auto", "each", "together"]
"""How the slices of a stack are registered."""
Space = Literal["LPS", "RAS"]
"""Which way x and y of points run: to the patient's left and back, or to the right and front."""
