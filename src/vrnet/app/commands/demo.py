"""`vrnet demo`: a made-up heart registered, with a report."""

from dataclasses import dataclass
from pathlib import Path

from vrnet.app.commands.options import Folder, Group, MethodOptions, Name
from vrnet.app.console import print_line, print_metrics, print_verdict, stage_progress
from vrnet.app.endings import end_if_failed


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Register a made-up beating heart, and show how well that went.

    A phantom's end-systole (moving) is registered to its end-diastole (fixed). Since the phantom's true motion is
    known, so is the error that is left. Writes the images and what `vrnet register --report` writes.
    """

    out: Folder = Path("demo")
    """Folder for the results; made if it is not there."""
    method: Name = "default"
    """Any name that `vrnet methods` lists."""
    seed: int = 7
    """Which phantom patient."""
    method_options: Group[MethodOptions]

    def run(self) -> None:
        from vrnet.app.demo import phantom_pair
        from vrnet.app.pair import register_pair
        from vrnet.phantom import phantom

        method = self.method_options.choose(self.method)
        pair = phantom_pair(phantom(self.seed))
        with stage_progress() as stage:
            result, _ = register_pair(stage, pair, method, self.out, report=True, images=True)
        print_metrics(result.metrics)
        print_verdict(result.metrics["verdict"])
        before, after = (result.metrics["known_motion"][f"end_point_error_mm_{when}"] for when in ("before", "after"))
        print_line(f"Distance from the true motion, in the heart: {before:.2f} mm before, {after:.2f} mm after.")
        print_line(f"Look at {self.out / 'report.html'}; the transform and the images are beside it.")
        end_if_failed(result.metrics["verdict"])
