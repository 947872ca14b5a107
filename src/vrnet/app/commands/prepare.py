"""`vrnet prepare`: a data set in one file."""

from dataclasses import dataclass

from vrnet.app.commands.options import File, Group, Name, SourceOptions
from vrnet.app.console import print_line, stage_progress
from vrnet.wording import counted


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Prepare a data set, and put it in one file, to be carried to another machine.

    Training and evaluation prepare what they need by themselves; with `--data FILE` they take it from the file, and
    need neither the images nor their readers. Each subject is prepared once, and again only when its files change.
    """

    data: Name
    """Which data set: acdc, acdc3d, ukbb, cmr3d, hippocampus, phantom, phantom3d or manifest."""
    out: File
    """The file to write, .npz."""
    source_options: Group[SourceOptions]

    def run(self) -> None:
        from vrnet.data.source import pack

        with stage_progress() as stage:
            parts = pack(self.source_options.source(self.data), self.out, stage, print_line)
        for (split, purpose), part in parts.items():
            pairs = sum(len(sample.fixed) for sample in part.samples)
            print_line(f"{split}: {counted(len(part.samples), 'subject')}, {counted(pairs, 'pair')}, for {purpose}")
        print_line(f"Wrote {self.out}.")
