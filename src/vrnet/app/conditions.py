"""How moving was seen when its deformation was sought: through an affine start, and in matched intensities."""

from dataclasses import dataclass

import numpy as np

from vrnet.app.image_pair import ImagePair
from vrnet.images.affine import Affine
from vrnet.images.image import Image
from vrnet.images.resample import match_histogram
from vrnet.registration.brightness import Remap
from vrnet.registration.images import ImageRegistration


@dataclass(frozen=True)
class Conditions:
    """What a registration did to moving before it sought the deformation, and what it is therefore judged by."""

    affine: Affine | None = None
    """The start, if there was one."""
    remap: Remap | None = None
    """What made moving as bright as fixed, if it had to be made so."""
    match_intensities: bool = False
    """Whether moving was given the histogram of fixed."""
    is_brightness_kept: bool = False
    """Whether images that are not equally bright were to be compared as they are."""

    @classmethod
    def of(cls, registration: ImageRegistration) -> "Conditions":
        options = registration.options
        kept = options.brightness == "keep"
        return cls(registration.affine, registration.remap, options.match_intensities, kept)

    @property
    def is_matched(self) -> bool:
        """Whether moving was seen in other intensities than its own."""
        return self.match_intensities or self.remap is not None

    def seen(self, pair: ImagePair) -> Image:
        """Moving in the intensities in which it was compared with fixed; unless these are its own, without what lies
        outside the masks."""
        if not self.is_matched:
            return pair.moving
        fixed, moving = pair.masks.inpaint(pair.fixed, pair.moving)
        if self.match_intensities or self.remap is None:
            return match_histogram(moving, fixed)
        return moving.with_array(self.remap.match(moving.array.astype(np.float32)))

    def describe(self) -> dict[str, str]:
        """What the page says of it: {heading: text}."""
        said: dict[str, str] = {} if self.affine is None else {"affine start": self.affine.kind}
        if self.match_intensities:
            said["intensities"] = "moving matched to the histogram of fixed, here and in the differences"
        elif self.remap is not None:
            said["intensities"] = f"moving as bright as fixed, here and in the differences: {self.remap}"
        return said


NOTHING_KNOWN = Conditions()
"""Of a transform of which no file says how it was found: it is judged as a whole, in the intensities of the images."""
