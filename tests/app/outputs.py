"""What the commands write: names of files, and keys of metrics.json."""

import json

from vrnet.files import RECORD

RESULTS = {"warped.nii.gz", "transform.nii.gz", "metrics.json"}
PAGES = {"report.html", "overview.png"}
METRICS = {
    "method",
    "weights",
    "device",
    "seconds",
    "slice_by_slice",
    "repair",
    "provenance",
    "shape",
    "spacing_mm",
    "similarity",
    "folding_percent",
    "folding_strict_percent",
    "jacobian_gradient",
    "verdict",
    "affine",
    "intensities_matched",
    "brightness",
    "channels",
    "files",
    "parameters",
    "options",
}
OVERLAPS = {"dice", "hausdorff_mm", "surface_hausdorff_mm", "hausdorff95_mm", "mean_surface_distance_mm"}


def file_names(folder):
    """The names in a folder, but for the record of what a run wrote there."""
    return {path.name for path in folder.iterdir()} - {RECORD}


def read_json(path):
    return json.loads(path.read_text())
