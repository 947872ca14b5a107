"""A split of a data set, prepared: each subject is made once and kept, and all that cannot be used are told at once."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from vrnet.data import stored
from vrnet.data.cache import cache_folder, kept_as
from vrnet.data.dataset import Dataset
from vrnet.data.pack import PreparedSplit, load_pack, save_pack
from vrnet.data.sample import Purpose, Sample
from vrnet.errors import BadInput
from vrnet.files import check_folder

MANY = 20
"""Subjects that are named at once."""
__all__ = ["PreparedSplit", "load_pack", "prepared", "save_pack"]


def prepared(
    dataset: Dataset,
    split: str,
    purpose: Purpose,
    cache: Path | None = None,
    *,
    skip_broken: bool = False,
    progress: Callable[[float], None] | None = None,
    say: Callable[[str], None] = print,
) -> PreparedSplit:
    """The subjects of a split, each made unless the cache has it; BadInput names all that cannot be used.

    With `skip_broken` those are left out, and `say` is told of each. `progress` hears which part is done."""
    folder, names = (cache or cache_folder()) / dataset.name, dataset.subjects(split)
    check_folder(folder)
    samples: list[Sample] = []
    broken: dict[str, str] = {}
    for done, subject in enumerate(names, start=1):
        try:
            found = recalled_or_made(dataset, subject, purpose, folder)
        except BadInput as error:
            broken[subject] = str(error)
        else:
            samples.append(found.kept())
        if progress is not None:
            progress(done / len(names))
    account(broken, dataset.name, len(names), say if skip_broken else None)
    return PreparedSplit(dataset.name, split, tuple(samples), dataset.structures, dataset.pairs_across_subjects)


class Found(NamedTuple):
    """A sample, and its place in the cache."""

    sample: Sample
    place: Path
    is_new: bool

    def kept(self) -> Sample:
        """The sample, which is in its place from now on."""
        if self.is_new:
            stored.save(self.sample, self.place)
        return self.sample


def recalled_or_made(dataset: Dataset, subject: str, purpose: Purpose, folder: Path) -> Found:
    """The sample of a subject, out of the folder if it is there, the same to the bit either way; or BadInput."""
    sources = dataset.sources(subject, purpose)
    place = folder / kept_as(dataset, subject, purpose, sources)
    if (recalled := stored.load(place)) is not None:
        return Found(recalled, place, is_new=False)
    try:
        made = dataset.prepare(subject, purpose)
    except BadInput as error:
        raise BadInput(shortened(str(error), sources)) from error
    return Found(stored.sample_of(stored.arrays_of(made)), place, is_new=True)


def shortened(message: str, sources: list[Path]) -> str:
    """The message with files by their names alone."""
    for path in sources:
        message = message.replace(str(path), path.name)
    return message


def account(broken: Mapping[str, str], data: str, count: int, say: Callable[[str], None] | None) -> None:
    """Say who is left out, and why; BadInput if nobody listens, or nobody is left."""
    reasons = [f"{subject}: {reason}" for subject, reason in broken.items()]
    if broken and (say is None or len(broken) == count):
        way = (
            "mend them; or is this the wrong folder?"
            if len(broken) == count
            else "mend them, or go on without them: --skip-broken"
        )
        head = f"{len(broken)} of {count} subjects of {data} cannot be used:"
        rest = [f"and {len(broken) - MANY} more"] if len(broken) > MANY else []
        raise BadInput("\n  ".join([head, *reasons[:MANY], *rest]) + f"\n{way}")
    if say is not None:
        for reason in reasons:
            say(f"left out {reason}")
