"""The levels of a verdict, what people are told of each, in the terminal, in pictures and on every page, and the limit
that tables mark: here, since tables are loaded without PyTorch."""

from typing import Literal

Level = Literal["good", "look", "failed"]
WORDS = {"good": "good", "look": "look at it", "failed": "failed"}
"""Files and programs have the level itself, as metrics.json has it."""
MANY_FOLDS_PERCENT = 15.0
"""A field that folds at more of the voxels is a failure; tables mark it."""
