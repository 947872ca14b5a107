"""The demonstration: a phantom's end-systole registered to its end-diastole, whose true motion is known."""

from vrnet.app.image_pair import ImagePair
from vrnet.evaluation.label_names import KNOWN
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.phantom import Phantom


def phantom_pair(patient: Phantom) -> ImagePair:
    """The images and labels of a phantom, as if they had been read from files; its labels are those of ACDC."""
    grid = Grid.plain(tuple(patient.fixed.shape[2:]), patient.spacing)
    parts = ("fixed", "moving", "fixed_labels", "moving_labels")
    images = (Image(getattr(patient, part)[0, 0].numpy(), grid, f"{part}.nii.gz") for part in parts)
    return ImagePair(*images, label_names=KNOWN["acdc"], true_motion=patient.field[0].numpy())
