"""The files that an image consists of: one, or a header and the file of voxels that it names (.mhd, .nhdr, .hdr)."""

from pathlib import Path

from vrnet.errors import BadInput
from vrnet.images.checks import beside
from vrnet.images.metaimage import LAST_KEY
from vrnet.images.metaimage import read_fields as metaimage_fields
from vrnet.images.nifti import partner
from vrnet.images.nrrd import read_fields as nrrd_fields

METAIMAGES, NRRDS, PAIRS = (".mhd", ".mha"), (".nhdr", ".nrrd"), (".hdr", ".img", ".hdr.gz", ".img.gz")
WITHIN_FILE = ("LOCAL", "Local", "local")
"""What a MetaImage whose voxels follow its header says."""


def files_of_image(path: str) -> list[str]:
    """The file of an image and, where its voxels or its header are in another, that one too; both by their paths.

    What cannot be read, or names a file that is not there, is one file: whoever reads the image will say so."""
    if not path.lower().endswith((*METAIMAGES, *NRRDS, *PAIRS)):
        return [path]
    try:
        other = other_file(Path(path))
    except (BadInput, OSError):
        other = None
    return [path] if other is None else [path, str(other)]


def other_file(path: Path) -> Path | None:
    """The second file of an image; None if there is none, BadInput if it is not there."""
    name = path.name.lower()
    if name.endswith(PAIRS):
        return partner(path)
    with path.open("rb") as file:
        if name.endswith(METAIMAGES):
            voxels = metaimage_fields(file, path)[LAST_KEY]
            return None if voxels in WITHIN_FILE else beside(path, voxels)
        named = nrrd_fields(file, path).get("data file")
        return None if named is None else beside(path, named)
