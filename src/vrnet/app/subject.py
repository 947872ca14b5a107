"""What `vrnet cohort` does to one subject: a pair is registered, a cine is tracked; and the row of its results."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrnet.app.layouts import name_pair, name_tracking
from vrnet.app.pair_files import notes_on, read_pair, register_files
from vrnet.app.track import Source, write_results
from vrnet.cardiac.cine import track
from vrnet.cohort.results import Recipe
from vrnet.cohort.table import Subject
from vrnet.devices import use_threads
from vrnet.errors import InputWarning, Progress
from vrnet.files import RECORD, Row, json_ready
from vrnet.images.resample import one_thread
from vrnet.methods.names import MethodSpec
from vrnet.provenance import __version__, commit
from vrnet.report import THUMBNAIL
from vrnet.report.cine_figures import shown_pair, write_report
from vrnet.report.figures import write_thumbnail
from vrnet.report.pair import View
from vrnet.vocabulary import RegistrationOptions

OVERLAPS = {"dice": "dice", "hausdorff_mm": "hausdorff_mm", "surface_mm": "mean_surface_distance_mm"}
"""Columns, each before and after, of what metrics.json has by structure."""
FIELD = "folding_percent", "folding_strict_percent", "jacobian_gradient"
VOLUMES = (
    "lv_ejection_fraction_percent", "rv_ejection_fraction_percent", "lv_largest_ml", "lv_smallest_ml", "mass_g",
)  # fmt: skip
NOT_SHOWN: Progress = lambda done: None  # noqa: E731
"""Nobody looks at how far a single subject is."""


@dataclass(frozen=True)
class SubjectWork:
    """What is done to every subject of a list: its pair is registered, or its cine tracked."""

    method: MethodSpec
    options: RegistrationOptions
    """Of which tracking knows slices, channels and device."""
    report: bool = False
    bids: bool = False
    """Whether files have the names of BIDS derivatives."""
    label_names: tuple[tuple[int, str], ...] = ()
    """What labels are called; of cines, where they are not numbered as in ACDC. In pairs, so that all can be hashed."""
    are_cines: bool = False

    def recipe(self) -> Recipe:
        """What results depend on beside their inputs. The device is not in it: a run may go on elsewhere."""
        options = {name: value for name, value in self.options.as_json().items() if name != "device"}
        if self.are_cines:
            options = {"tracked": True, "slices": options["slices"], "channels": options["channels"]}
        return json_ready(
            {
                "method": str(self.method.load()),
                "weights": self.method.weights_sha256,
                **options,
                "report": self.report,
                "bids": self.bids,
                "label_names": dict(self.label_names),
                "vrnet": __version__,
                "commit": commit(),
            }
        )

    def __call__(self, subject: Subject, folder: Path) -> Row:
        """Write what `vrnet register` or `vrnet track` writes, and return the row of the table.

        It computes with one thread, so that a result depends neither on how many jobs there are nor on which."""
        do = self.track if self.are_cines else self.register
        with use_threads(1), one_thread(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", InputWarning)
            row, notes = do(subject, folder)
        warned = dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, InputWarning))
        if said := [*warned, *notes]:
            row["notes"] = " ".join(note if note.endswith((".", ")")) else f"{note}." for note in said)
        return row

    def register(self, subject: Subject, folder: Path) -> tuple[Row, list[str]]:
        """The row of a pair, out of its metrics.json, and notes on it."""
        pair = read_pair(**{column: Path(path) for column, path in subject.files.items()})
        pair = pair.named(dict(self.label_names))  # not every subject has every structure
        result, metrics, _ = register_files(
            lambda name: NOT_SHOWN, pair, self.method.load(), folder, self.options, report=self.report
        )
        write_thumbnail(folder / THUMBNAIL, View.of(result))
        if self.bids:
            name_pair(folder, subject, result.transform, pair.moving.grid)
        (folder / RECORD).unlink()  # done.json records the files
        row: Row = {"verdict": metrics["verdict"]["level"], "reason": " ".join(metrics["verdict"]["reasons"])}
        for name in ("ncc", "mae"):
            row |= {f"{name}_{when}": metrics["similarity"][f"{name}_{when}"] for when in ("before", "after")}
        for column, part in OVERLAPS.items():
            if part in metrics:
                row |= {f"{column}_{when}": metrics[part][when]["mean"] for when in ("before", "after")}
        structures = metrics.get("dice", {"after": {}})["after"]
        row |= {f"dice_{label}": value for label, value in structures.items() if label != "mean"}
        return row | {name: metrics[name] for name in (*FIELD, "method", "device")}, notes_on(result)

    def track(self, subject: Subject, folder: Path) -> tuple[Row, list[str]]:
        """The row of a cine, out of its summary.json, and notes on it."""
        result = track(
            subject.files["cine"],
            self.method.load(),
            labels=subject.path("labels"),
            frame=int(subject.values.get("frame", 0)),
            slices=self.options.slices,
            channels=self.options.channels,
            label_names=dict(self.label_names) if self.label_names and "labels" in subject.files else None,
            device=self.options.device,
        )
        names = ",".join(f"{label}={name}" for label, name in self.label_names) or None
        source = Source.of(Path(subject.files["cine"]), subject.path("labels"), result.frame, names)
        write_results(result, folder, NOT_SHOWN, source)
        if self.report:
            write_report(result, folder)
        write_thumbnail(folder / THUMBNAIL, shown_pair(result))
        if self.bids:
            name_tracking(folder, subject, result.frame, len(result.cine))
        summary: dict[str, Any] = result.metrics()
        row: Row = {"verdict": summary["verdict"]["level"], "reason": " ".join(summary["verdict"]["reasons"])}
        row |= {name: summary["volumes"][name] for name in VOLUMES if "volumes" in summary}
        peaks = summary["strain"]["peaks"]["global"] if "strain" in summary else {}
        row |= {f"peak_{name}_percent": peak["percent"] for name, peak in peaks.items() if peak is not None}
        row |= {f"closure_{way}_mm": summary["closure_mm"][way] for way in ("forward", "backward")}
        row |= {name: summary[name] for name in ("folding_strict_percent", "frames")}
        row["frames_repaired"] = len(summary["frames_with_repaired_folds"])
        return row | {name: summary[name] for name in ("method", "device")}, result.notes()
