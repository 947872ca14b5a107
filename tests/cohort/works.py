"""Things to do to subjects that take no time, for tests of the engine; other processes import them from here."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from vrnet.cohort.results import CohortFolder
from vrnet.cohort.run import Task
from vrnet.cohort.table import Subject
from vrnet.provenance import __version__

RECIPE = {"method": "count", "vrnet": __version__}


@dataclass(frozen=True)
class Count:
    """Writes a file that depends on the inputs alone; some subjects fail, or end their process."""

    seconds: float = 0.0
    failing: frozenset[str] = frozenset()
    deadly: frozenset[str] = frozenset()
    spared: str = ""
    """A file: once it is there, which the first process makes that ends, no other process ends."""
    content: bytes = field(default=b"", repr=False)

    def __call__(self, subject, folder):
        time.sleep(self.seconds)
        if subject.name in self.failing:
            raise ValueError(f"{subject.name} cannot be counted")
        if subject.name in self.deadly and not (self.spared and Path(self.spared).exists()):
            if self.spared:
                Path(self.spared).touch()
            os._exit(1)
        text = "".join(Path(path).read_text() for path in subject.files.values())
        (folder / "count.txt").write_text(f"{subject.name} {len(text)}\n" * 50)
        (folder / "parts").mkdir()
        (folder / "parts" / "content.bin").write_bytes(subject.name.encode() * 1000)
        return {"verdict": "good", "length": len(text)}


def write_list(folder, count):
    """A list of so many subjects in a folder, whose images are two small texts."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("a.nii", "b.nii"):
        (folder / name).write_text(name)
    lines = [f"s{k:05d},a.nii,b.nii,{'xy'[k % 2]}" for k in range(count)]
    (folder / "pairs.csv").write_text("\n".join(["subject,fixed,moving,group", *lines]) + "\n")
    return folder / "pairs.csv"


def make_task(path, work=None, **recipe):
    """A task that keeps its results in a folder, which is made."""
    folder = CohortFolder(path)
    folder.make()
    return Task(folder, work or Count(), RECIPE | recipe)


def subject(folder, name="s1", text="image"):
    """A subject with an image of its own."""
    (folder / f"{name}.nii").write_text(text)
    return Subject(name, {"fixed": str(folder / f"{name}.nii"), "moving": str(folder / f"{name}.nii")})


def results(path):
    """{file: content} of all results of a cohort, but for done.json."""
    place = path / "subjects"
    files = [file for file in place.rglob("*") if file.is_file() and file.name != "done.json"]
    return {str(file.relative_to(place)): file.read_bytes() for file in files}
