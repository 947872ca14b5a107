"""Hearts whose motion is known: made on the spot, in 2D and 3D."""

from vrnet.phantom.pair import Phantom, phantom

__all__ = ["Phantom", "phantom"]
