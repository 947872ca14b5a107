"""Hearts whose motion is known: made on the spot, in 2D and 3D."""

from vrnet.phantom.cycle import Cycle, Phantom, cycle, phantom

__all__ = ["Cycle", "Phantom", "cycle", "phantom"]
