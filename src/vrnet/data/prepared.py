"""A split of a data set, prepared: each subject is made once and kept; all that cannot be used are named at once."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from vrnet.data import store
from vrnet.data.dataset import Dataset
from vrnet.data.sample import Purpose, Sample
from vrnet.data.store import (
    StoredSamples,
    arrays_of,
    cache_folder,
    cache_name,
    identity_of,
    label_values,
    load_label_values,
    load_sample,
    names_of,
    reader_of,
    sample_of,
    save_sample,
)
from vrnet.errors import BadInput
from vrnet.files import check_folder, exists
from vrnet.progress import Progress

MAX_NAMED_SUBJECTS = 20
"""Broken subjects that one message names."""


@dataclass(frozen=True, eq=False)
class PreparedSplit:
    """A split of a data set, ready to be trained on or measured on."""

    data: str
    split: str
    samples: StoredSamples | tuple[Sample, ...]
    """Read from disk one by one, each time they are asked for, unless `load` put them in memory."""
    structures: Mapping[str, int]
    """{"LV": 3, ...}: what the labels mean."""
    pairs_across_subjects: bool
    """Whether images of any two subjects make a pair to train on."""

    @property
    def names(self) -> list[str]:
        """The subjects; no image is read to know them."""
        return names_of(self.samples)

    @property
    def read(self) -> Callable[[str], Sample]:
        """What gives the sample of a name; it can be sent to other processes."""
        return reader_of(self.samples)

    def identity(self, subject: str) -> str:
        """A short text that changes with the sample of a subject."""
        return identity_of(self.samples, subject)

    def load(self) -> "PreparedSplit":
        """The split with all its samples in memory, for those who go through it many times."""
        return replace(self, samples=tuple(self.samples))

    def spread(self, count: int) -> "PreparedSplit":
        """So many of its subjects, evenly spread over its list, in which subjects that are alike may lie together."""
        if not 1 <= count <= len(self.samples):
            raise BadInput(f"{self.split} of {self.data} has {len(self.samples)} subjects, and not {count}")
        names = [self.names[k * len(self.samples) // count] for k in range(count)]
        return replace(self, samples=StoredSamples(names, self.read, self.identity))


def prepare_split(
    dataset: Dataset,
    split: str,
    purpose: Purpose,
    cache: Path | None = None,
    *,
    skip_broken: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] = print,
) -> PreparedSplit:
    """The subjects of a split, each made unless the cache has it; BadInput names all that cannot be used.

    With `skip_broken` those are left out, and `say` is told of each. `progress` hears which part is done."""
    subjects, kept = dataset.subjects(split), SampleCache(dataset, purpose, (cache or cache_folder()) / dataset.name)
    check_folder(kept.folder)
    store.parameters(dataset)  # a data set that cannot find them says so once, not for each subject
    broken: dict[str, str] = {}
    for done, subject in enumerate(subjects, start=1):
        try:
            made = kept.find_or_make(subject)
        except BadInput as error:
            broken[subject] = str(error)
        else:
            kept.save(subject, made)
        if progress is not None:
            progress(done / len(subjects))
    report_broken(broken, dataset.name, len(subjects), say if skip_broken else None)
    samples = StoredSamples([subject for subject in subjects if subject not in broken], kept.read, kept.files.get)
    structures = kept.structures(samples.names) if dataset.structures is None else dataset.structures
    return PreparedSplit(dataset.name, split, samples, structures, dataset.pairs_across_subjects)


@dataclass(frozen=True)
class SampleCache:
    """The samples of a data set that a folder keeps; what it does not keep is made."""

    dataset: Dataset
    purpose: Purpose
    folder: Path
    files: dict[str, str] = field(default_factory=dict)
    """{subject: the name of its file}, of those looked for."""

    def find_or_make(self, subject: str) -> Sample | None:
        """None if the folder has the sample, else the sample, made; or BadInput. No file of the folder is opened."""
        sources = self.dataset.sources(subject, self.purpose)
        self.files[subject] = cache_name(self.dataset, subject, self.purpose, sources)
        return None if exists(self.folder / self.files[subject]) else self.make(subject)

    def make(self, subject: str) -> Sample:
        """The sample out of its sources, to the bit as it will be read; or BadInput, with files by their names."""
        try:
            made = self.dataset.prepare(subject, self.purpose)
        except BadInput as error:
            message = str(error)
            for path in self.dataset.sources(subject, self.purpose):
                message = message.replace(str(path), path.name)
            raise BadInput(message) from error
        return sample_of(arrays_of(made))

    def save(self, subject: str, made: Sample | None) -> None:
        """Keep a sample, if it was made."""
        if made is not None:
            save_sample(made, self.folder / self.files[subject])

    def read(self, subject: str) -> Sample:
        """The sample that the folder has; made and kept again if its file is damaged or gone."""
        found = load_sample(self.folder / self.files[subject])
        return self.remake(subject) if found is None else found

    def remake(self, subject: str) -> Sample:
        """A sample that was there before, made and kept again; or BadInput, which names the subject."""
        try:
            made = self.make(subject)
        except BadInput as error:
            raise BadInput(f"{subject}: {error}") from error
        self.save(subject, made)
        return made

    def structures(self, subjects: Iterable[str]) -> dict[str, int]:
        """{"7": 7, ...}: every label but 0 that any of the samples has; no image is read to know them."""
        values = sorted(set().union(*map(self.labels, subjects)) - {0})
        return {str(value): value for value in values}

    def labels(self, subject: str) -> set[int]:
        """The labels of the sample that the folder has; it is made again if its file is damaged or gone."""
        found = load_label_values(self.folder / self.files[subject])
        return set(label_values(self.remake(subject)).tolist()) if found is None else found


def report_broken(broken: Mapping[str, str], data: str, count: int, say: Callable[[str], None] | None) -> None:
    """Say who is left out, and why; BadInput if nobody listens, or nobody is left."""
    reasons = [f"{subject}: {reason}" for subject, reason in broken.items()]
    if broken and (say is None or len(broken) == count):
        way = (
            "mend them; or is this the wrong folder?"
            if len(broken) == count
            else "mend them, or go on without them: `skip_broken`"
        )
        head = f"{len(broken)} of {count} subjects of {data} cannot be used:"
        rest = [f"and {len(broken) - MAX_NAMED_SUBJECTS} more"] if len(broken) > MAX_NAMED_SUBJECTS else []
        raise BadInput("\n  ".join([head, *reasons[:MAX_NAMED_SUBJECTS], *rest]) + f"\n{way}")
    if say is not None:
        for reason in reasons:
            say(f"left out {reason}")
