"""`vrnet paper`: the tables and figures of the paper, ours beside the published figures."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from vrnet.app.commands.options import OF_A_SPLIT, DeviceOptions, Folder, Group, Jobs, SourceOptions, refuse_options
from vrnet.app.console import paper_table, print_line, screen, stage_progress
from vrnet.app.endings import STOPPED


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Make a table or a figure of the paper, what was published beside what is measured.

    Tables: ablation, parts, initialisation, acdc, matched, matched_half, averaged, smoothness, ukbb, cmr3d, acdc3d,
    hippocampus, hippocampus_half, runtime. Figures: parameterisations, alpha, cascades, efficiency, visual, boxplots,
    denoising, strain (of whole stacks of ACDC: give --root).

    What is missing is trained and measured first, networks last, and kept in DIR: one folder per method, with one row
    per subject; what is there is never computed again. Ctrl-C and SIGTERM stop; the same command goes on. The tables
    ukbb and cmr3d are made on phantoms where no folder of the data set is given. Writes tables in DIR/tables, as
    Markdown, CSV and LaTeX, and figures in DIR/figures, with their numbers.
    """

    kind: Annotated[Literal["table", "figure"], tyro.conf.Positional]
    """What is to be made."""
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """Which one."""
    data: Annotated[str, tyro.conf.arg(metavar="NAME|FILE", help_behavior_hint="(default: the one in the paper)")] = ""
    """Another data set of the same dimension, or a file that `vrnet prepare` wrote."""
    out: Folder = Path("results")
    """Where results are kept, and looked for."""
    budget: Literal["paper", "augmented", "short", "central", "consistent", "long", "quick"] = "short"
    """What is spent on each learned method. paper: its width and steps, without augmentation; augmented: as paper, with
    augmentation; short: narrow networks and a tenth of the steps, for minutes per method on a GPU; central: as short,
    with smoothness of central differences; consistent: as short, with every pair in both directions and a loss of more
    parts; long: as consistent, with three times the steps; quick: a few steps on small phantoms."""
    quick: bool = False
    """Short for --budget quick: to see that all works, in minutes on a CPU."""
    seeds: int = 1
    """Train each learned method so often, at least; all that are there are used."""
    alphas: Annotated[tuple[float, ...], tyro.conf.arg(metavar="A A ...")] = ()
    """Of a table: train each learned method with each of these weights of smoothness, and take the one that is best on
    the validation subjects. The table says which; alphas.csv in its folder keeps the scores. Without this option, α is
    chosen by the scores that are kept, where all methods of the table have some of the same two or more weights; else
    it is the budget's."""
    measured_only: bool = False
    """Of a table: only the rows that are measured already; it names the others, and trains nothing."""
    at_once: int = 4
    """How many networks are trained at the same time."""
    jobs: Jobs = 1
    """How many subjects are measured at the same time, each in a process with one thread (needs vrnet[cluster])."""
    source_options: Group[SourceOptions]
    device_options: Group[DeviceOptions]

    def run(self) -> None:
        from vrnet.paper.request import PaperRequest, make_figure, make_table

        self.check()
        source, device = self.source_options.source(self.data), self.device_options.device
        budget = "quick" if self.quick else self.budget
        request = PaperRequest(
            source, self.out, budget, device, self.at_once, self.seeds, self.jobs, self.alphas, self.measured_only
        )
        try:
            with stage_progress() as stage:
                if self.kind == "table":
                    table, written = make_table(self.name, request, stage, print_line)
                else:
                    written = make_figure(self.name, request, stage, print_line)
        except KeyboardInterrupt:
            print_line(STOPPED)
            raise
        if self.kind == "table":
            screen.print(paper_table(table))
            for line in table.notes:
                print_line(line)
        print_line(f"Wrote {', '.join(path.name for path in written)} in {written[0].parent}.")

    def check(self) -> None:
        """BadInput where options are given that the table or the figure does not depend on."""
        if self.quick:
            refuse_options(self, ("budget",), "beside --quick: leave out one")
        if self.quick or self.budget == "quick":
            ignored = "root", "split_file", "skip_broken"
            refuse_options(self, ignored, "on small phantoms, which this budget takes: leave that out")
        if self.kind == "figure":
            refuse_options(self, ("seeds", "alphas", "measured_only"), "on a figure: make a table with them first")
        if self.name == "runtime":
            of_others = "data", "seeds", "alphas", "measured_only", "at_once", "jobs", "device", *OF_A_SPLIT
            refuse_options(self, of_others, "on the table runtime, which is measured on phantoms: leave that out")
