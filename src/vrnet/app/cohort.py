"""`vrnet cohort`: many subjects, on this machine or on a cluster."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from vrnet.app.arguments import (
    Folder,
    Group,
    Jobs,
    LabelNamesText,
    MethodOptions,
    Name,
    OptionalFolder,
    changed_fields,
    refuse_options,
)
from vrnet.app.console import end_if_any, last_words, print_line
from vrnet.errors import BadInput, counted
from vrnet.vocabulary import RegistrationOptions

if TYPE_CHECKING:
    from vrnet.app.subject import NamePairs, RegisterSubject, TrackSubject
    from vrnet.cohort.results import Plan
    from vrnet.cohort.run import Tally, Task
    from vrnet.cohort.table import CohortTable
    from vrnet.methods.method import Images

ListFile = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="LIST.csv")]
WHOLE = "1/1"
"""The shard that is all of a list."""


@dataclass(frozen=True, kw_only=True)
class Cohort:
    """Register, or track, every subject of a list, and say which to look at.

    LIST.csv has one row per subject. Pairs are registered: columns subject, fixed and moving; where wanted
    fixed_labels, moving_labels, fixed_mask and moving_mask. Cines are tracked: columns subject and cine; where wanted
    labels, and frame, the one that they belong to, counted from 0. Further columns, such as group or scanner, go with
    the subject. Paths are relative to the file.

    Writes in DIR: subjects/NAME, with what `vrnet register` or `vrnet track` writes; failures/NAME.json and NAME.txt,
    with the reason why a subject could not be done, and the traceback; cohort.csv, with one row per subject;
    summary.json; and index.html, a page that ranks the subjects by how much they need a look.

    It may be stopped at any moment and started again: what is done is not done twice, and what is half done does not
    count. Results of another method, parameter, version or input are made again. The exit status is 0 when every
    subject is done, whatever the verdicts; 3 where some failed or are left to another run; 130 after Ctrl-C.
    """

    list_file: ListFile = None
    """The list of subjects."""
    out: Folder
    """Folder for the results; made if it is not there."""
    scan: OptionalFolder = None
    """Instead of a list, a folder in the layout of ACDC or BIDS: writes DIR/pairs.csv, to be looked at and used; or
    DIR/cines.csv, where it has cines alone."""
    cines: bool = False
    """With --scan: list the cines, also where there are pairs of ED and ES."""
    dry_run: bool = False
    """Say what is done already, what would be done and what is missing, and do nothing."""
    retry: bool = False
    """Try those again that could not be done."""
    keep: bool = False
    """Replace no result: where method, parameters, version or inputs are others than those of results that are there,
    end with status 2."""
    skip_broken: bool = False
    """Go on where files of the list are not there: those subjects fail. Otherwise all of them are named, and
    nothing is done."""
    jobs: Jobs = 1
    """So many subjects at a time, each in a process with one thread (needs vrnet[cluster])."""
    scheduler: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS|FILE")] = None
    """The Dask scheduler of a cluster that runs, such as tcp://host:8786, or the file that it wrote; the workers must
    see the images and DIR under the same names."""
    shard: Annotated[str, tyro.conf.arg(metavar="I/N")] = WHOLE
    """Do every N-th subject from the I-th on, I from 1 to N: for array jobs that share a list without Dask."""
    bids: bool = False
    """Name results as BIDS derivatives: DIR/sub-NAME/sub-NAME_from-ES_to-ED_mode-image_xfm.nii.gz and so on, with a
    dataset_description.json. Of a pair, the transform back is written, too."""
    method: Name = "default"
    """Any name that `vrnet methods` lists."""
    label_names: LabelNamesText = None
    """What the labels are called in pages and pictures; or a known set of names: acdc, ukbb, hippocampus or
    freesurfer. Columns of cohort.csv keep the numbers. Of cines they say which labels are RV, Myo and LV."""
    options: Group[RegistrationOptions]
    report: bool = False
    """Write the page and the pictures of each subject, too."""
    method_options: Group[MethodOptions]

    def run(self) -> None:
        from vrnet.files import is_folder

        if self.scan is not None:
            self.write_list(self.scan)
            return
        if self.list_file is None:
            raise BadInput("there is no list of subjects: give LIST.csv, or --scan FOLDER to have one written")
        if is_folder(self.list_file):
            raise BadInput(f"{self.list_file} is a folder: --scan {self.list_file} writes the list of its subjects")
        if self.cines:
            raise BadInput("`cines` is for a folder that is scanned: whether a list is of cines, its columns say")
        self.run_list(self.list_file)

    def write_list(self, folder: Path) -> None:
        """Write the list of a folder's subjects."""
        from vrnet.app.cohort_tables import missing_lines, unlabelled_lines
        from vrnet.app.layouts import scan_folder, write_scanned
        from vrnet.cohort.table import find_missing, read_table

        if self.list_file is not None:
            raise BadInput("a list and a folder to be scanned cannot be given at once: leave out one")
        others = {*changed_fields(self)} - {"out", "scan", "cines"}
        refuse_options(self, others, "on a folder that is listed: give that with the list")
        found = scan_folder(folder, self.cines)
        path = write_scanned(found, self.out)
        print_line(
            f"Wrote {path}: {counted(len(found), 'subject')}. Look at it, then: vrnet cohort {path} --out {self.out}"
        )
        print_line("With --report, each subject has a page, which the page of the cohort leads to.")
        subjects = read_table(path).subjects
        say([*unlabelled_lines(subjects), *missing_lines(find_missing(subjects), skip_broken=False)])

    def run_list(self, path: Path) -> None:
        """Do what is to do of a list."""
        from vrnet.app.cohort_tables import missing_lines, plan_lines, planned_tables
        from vrnet.app.layouts import as_bids
        from vrnet.app.subject import is_taken
        from vrnet.cohort.results import CohortFolder, check_kept, make_plan, open_folder
        from vrnet.cohort.run import Task, check_jobs
        from vrnet.cohort.table import check_files, find_missing, read_table, rename_carried, shard
        from vrnet.files import check_set

        index, shards = read_shard(self.shard)
        check_jobs(self.jobs, self.scheduler)
        table = read_table(path)
        work = self.work(table)
        table, renamed = rename_carried(as_bids(table) if self.bids else table, is_taken)
        for name, new in renamed.items():
            print_line(f"The column {name} of the list is {new} in cohort.csv, which has a column {name} of its own.")
        folder = CohortFolder(self.out.absolute(), "." if self.bids else "subjects")
        subjects, recipe = shard(table.subjects, index, shards), work.recipe()
        plan, missing = make_plan(folder, subjects, recipe), find_missing(subjects)
        if self.dry_run:
            say([*plan_lines(plan, self.retry), *missing_lines(missing, self.skip_broken)])
            return
        check_set(self.out, planned_tables(recipe))
        check_files(path, subjects, missing, self.skip_broken)
        if self.keep:
            check_kept(plan, folder, recipe)
        task = Task(folder, work, recipe, frozenset(one.subject.name for one in missing))
        with open_folder(folder, plan):
            not_done = self.do(plan, task, table)
        end_if_any(not_done)

    def work(self, table: "CohortTable") -> "RegisterSubject | TrackSubject":
        """What is done to each subject; BadInput if something is asked for that cannot be done to it."""
        from vrnet.app.subject import RegisterSubject, TrackSubject
        from vrnet.cardiac.labels import heart_of
        from vrnet.cohort.table import CINES
        from vrnet.devices import find_device

        if self.scheduler is None:
            find_device(self.options.device)  # which fails at once where there is none
        images: Images = "cine" if table.kind is CINES else "pair"
        method, others = self.method_options.choice(self.method, images), (self.report, self.bids)
        names = self.names_of_labels(table)
        if names and not any(column.endswith("labels") for one in table.subjects for column in one.files):
            raise BadInput(f"names of labels are given, but not the labels: {table.path} names no labels")
        if table.kind is not CINES:
            return RegisterSubject(method, self.options, *others, names)
        if names:
            heart_of(dict(names))  # which fails at once where the wall has no name
        known = RegistrationOptions(slices=self.options.slices, device=self.options.device)
        if self.options != known:
            raise BadInput("cines are tracked: leave out --affine, --brightness, --match-intensities and --folds")
        return TrackSubject(method, known, *others, names)

    def names_of_labels(self, table: "CohortTable") -> "NamePairs":
        """What labels are called: as the user says, or else as the names of all their files tell.

        Those of cines are known without."""
        from vrnet.cohort.table import CINES
        from vrnet.data.labels import names_told_by_files, read_label_names

        if self.label_names is not None:
            return tuple(read_label_names(self.label_names).items())
        files = (file for one in table.subjects for column, file in one.files.items() if column.endswith("labels"))
        names = () if table.kind is CINES else tuple(names_told_by_files(files).items())
        if names:
            told = ", ".join(f"{label} {name}" for label, name in names)
            print_line(f"Structures are called as in ACDC, whose names the files of the labels have: {told}.")
        return names

    def do(self, plan: "Plan", task: "Task", table: "CohortTable") -> int:
        """Do what is to do, write the tables, and return how many subjects are not done."""
        from vrnet.app import cohort_tables as tables

        subjects = plan.to_do(self.retry)
        say(tables.plan_lines(plan, self.retry))
        if plan.again or (subjects and self.shard != WHOLE) or not tables.has_tables_of(task.folder, task.recipe):
            tables.remove_tables(task.folder, task.recipe)
        tally = self.do_subjects(plan, task)
        say(tables.unable_lines(tally))
        if self.shard != WHOLE:
            has_tables = not subjects and tables.has_rows_of(task.folder, table)
            if has_tables or not tables.is_complete(task.folder, table, task.recipe):
                failed = tally.failed + (0 if self.retry else len(plan.failed))
                say(tables.shard_lines(self.shard, plan, tally, failed, has_tables))
                return failed + tally.left
        summary, rows = tables.write_tables(task.folder, table, task.recipe)
        say(tables.ending_lines(summary, rows, tally.unable))
        if summary["failed"]:
            print_line(f"See {self.out / 'failures'} for tracebacks; --retry tries those again.")
        print_line(f"Wrote cohort.csv, summary.json and index.html in {self.out}.")
        return summary["failed"] + summary["left"]

    def do_subjects(self, plan: "Plan", task: "Task") -> "Tally":
        """Do what is to do, here or elsewhere."""
        from vrnet.app.cohort_tables import jobs_line, stopped_line
        from vrnet.app.console import cohort_progress
        from vrnet.cohort.run import Tally, open_executor, run_tasks
        from vrnet.devices import CPU, find_device

        subjects = plan.to_do(self.retry)
        if (self.jobs, self.scheduler, self.shard) == (1, None, WHOLE) and find_device(self.options.device) == CPU:
            say(jobs_line(len(subjects)))
        tally = Tally(len(subjects))
        executor = open_executor(len(subjects), self.jobs, self.scheduler)
        try:
            with last_words(lambda: stopped_line(plan, tally)), cohort_progress() as show, executor as opened:
                return run_tasks(task, subjects, opened, show, tally)
        except KeyboardInterrupt:
            print_line(stopped_line(plan, tally))
            raise


def say(lines: Iterable[str]) -> None:
    for line in lines:
        print_line(line)


def read_shard(text: str) -> tuple[int, int]:
    """(I, N) of I/N."""
    found = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", text)
    index, shards = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= index <= shards:
        raise BadInput(f'--shard is "{text}": give I/N, such as 3/100, with I from 1 to N')
    return index, shards
