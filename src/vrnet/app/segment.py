"""`vrnet segment`: where the ventricles are in short-axis images, how large they are, and how sure that is."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from vrnet.app import arguments as args
from vrnet.errors import numbered

if TYPE_CHECKING:
    from vrnet.cardiac.anatomy import Segmentation


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Find the ventricles in short-axis cine MR: in one slice, a stack of slices, or every frame of a cine.

    Writes a label map on the grid of IMAGE: 1 RV, 2 wall of the LV, 3 its cavity. Slices of which the network is unsure
    get no labels. See docs/cine.md.

    Ends with a verdict: good, look or failed, and the reasons. Where it is failed, as in other organs and other views,
    the exit status is 3.
    """

    image: args.ImageFile
    """A slice, a stack or a cine: NIfTI, MHA, NRRD or DICOM."""
    out: Annotated[args.File, tyro.conf.arg(metavar="LABELS")]
    """The label map to write: .nii.gz, .nii, .mha or .nrrd."""
    report: bool = False
    """Write a page with outlines and volumes beside LABELS, .html."""
    weights: args.OptionalFile = None
    """Weights of another segmenter, which `vrnet train` wrote."""
    device_options: args.Group[args.DeviceOptions]

    def run(self) -> None:
        from vrnet.app.console import exit_if, print_line, print_verdict, stage_progress
        from vrnet.cardiac.anatomy import load_segmenter, read_given, segment
        from vrnet.files import check_file, check_not_input
        from vrnet.images.io import IMAGE_SUFFIXES

        check_file(self.out, IMAGE_SUFFIXES)
        suffix = next(end for end in sorted(IMAGE_SUFFIXES, key=len, reverse=True) if self.out.name.endswith(end))
        page = self.out.with_name(self.out.name.removesuffix(suffix) + ".html")
        written = [self.out, *([page] if self.report else [])]
        for path in written[1:]:
            check_file(path, (".html",))
        check_not_input(written, (self.image, self.weights))
        with stage_progress() as stage:
            stage("reading")
            model, image = load_segmenter(self.weights), read_given(self.image)
            progress = stage("segmenting")
            found = segment(image, weights=model, device=self.device_options.device, progress=progress)
            stage("writing")
            found.save(self.out)
            if self.report:
                found.report(page)
        print_line(*result_lines(found))
        print_verdict(found.verdict())
        print_line(f"Wrote {', '.join(path.name for path in written)} in {self.out.parent}.")
        exit_if(found.level == "failed")


def result_lines(found: "Segmentation") -> list[str]:
    """What was measured, a line each; of nothing found, no line."""
    from vrnet.cardiac.anatomy import sizes

    lines = [f"{when}: {', '.join(f'{name} {size}' for name, size in parts.items())}" for when, parts in sizes(found)]
    for name, fraction in found.ejection_fractions_percent.items():
        lines.append(f"Ejection fraction of the {name}: {fraction:.1f} %")
    if found.unsure:
        lines.append(f"Note: no labels in {numbered('slice', found.unsure)}: the network is unsure there.")
    if found.open:
        lines.append(f"Note: the wall does not close around the cavity in {numbered('slice', found.open)}.")
    return lines
