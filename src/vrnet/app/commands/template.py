"""`vrnet template`: the mean of many images, through which two are registered."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import tyro

from vrnet.app.commands.options import DeviceOptions, Folder, Group, SourceOptions
from vrnet.app.console import print_line, stage_progress
from vrnet.errors import BadInput

if TYPE_CHECKING:
    from vrnet.methods.weights import Card
    from vrnet.variational.template import ThroughTemplate

MAX_ROUNDS = 20
FILES = WEIGHTS, IMAGE, PICTURE, CONFIG = "weights.safetensors", "template.nii.gz", "template.png", "config.json"


@dataclass(frozen=True, kw_only=True)
class Template:
    """Make a template: the mean of many images, once all lie alike. No labels are needed.

    Two images of two people then meet on it, instead of directly: `--weights DIR/weights.safetensors` of register,
    evaluate and cohort. Writes that in DIR, template.nii.gz and template.png to look at, and in config.json who is in
    it. Every subject gives its fixed image.
    """

    data: Annotated[str, tyro.conf.arg(metavar="NAME|FILE")]
    """A data set with one image per subject (hippocampus, acdc3d, cmr3d, phantom3d, manifest), or a file that `vrnet
    prepare` wrote."""
    out: Folder
    """The folder to write in; made if it is not there."""
    split: str = "train"
    """The split whose images are averaged."""
    subjects: int | None = None
    """So many of its subjects, evenly spread over its list; without it, all. Of hippocampi 35 were nearly as good as
    140."""
    rounds: int = 2
    """How often all images are brought to the template of the round before."""
    source_options: Group[SourceOptions]
    device_options: Group[DeviceOptions]

    def run(self) -> None:
        from vrnet.devices import find_device
        from vrnet.files import check_folder, exists
        from vrnet.training.template import make_template

        if not 1 <= self.rounds <= MAX_ROUNDS:
            raise BadInput(f"--rounds is {self.rounds}: give 1 to {MAX_ROUNDS}; a template settles in two or three")
        check_folder(self.out, FILES)
        if exists(self.out / WEIGHTS):
            raise BadInput(f"{self.out} holds weights already, of a template or of a network: choose another folder")
        source, device = self.source_options.source(self.data), find_device(self.device_options.device)
        with stage_progress() as stage:
            prepared = source.split(self.split, "training", stage, print_line)
            chosen = prepared if self.subjects is None else prepared.spread(self.subjects)
            found, card = make_template(chosen, self.rounds, device, stage("making the template"))
        self.write(found, card, chosen.names)
        print_line(f"Wrote {WEIGHTS}, {IMAGE}, {PICTURE} and {CONFIG} in {self.out}.")
        words = f"FIXED MOVING --out DIR --affine rigid --weights {self.out / WEIGHTS}"
        print_line(f"Register with it (two people rarely lie alike): vrnet register {words}")

    def write(self, found: "ThroughTemplate", card: "Card", subjects: Sequence[str]) -> None:
        """The template as a method, as an image, and as a picture; and who is in it."""
        from vrnet.files import write_json
        from vrnet.images.grid import Grid
        from vrnet.images.image import Image
        from vrnet.images.io import write_image
        from vrnet.methods.weights import save_weights
        from vrnet.report.figures import save
        from vrnet.report.object_figures import image_figure

        array = found.image[0, 0].numpy()
        plain = Grid.plain(array.shape, card.spacing_mm)
        centred = replace(
            plain, origin=tuple(-h * (n - 1) / 2 for h, n in zip(plain.spacing, plain.shape, strict=True))
        )
        image = Image(array, centred, name=f"template of {card.trained_on}")
        asked = {"data": self.data, "split": self.split, "rounds": self.rounds}
        made_by = {"vrnet": card.version, "commit": card.commit, "torch": card.torch, "device": card.device}
        write_json({**asked, "subjects": list(subjects), "provenance": made_by}, self.out / CONFIG)
        save_weights(found, card, self.out / WEIGHTS, half=True)
        write_image(image, self.out / IMAGE)
        save(image_figure(image), self.out / PICTURE)
