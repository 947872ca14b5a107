"""The result of one subject takes its place whole: a folder that is written elsewhere, and renamed."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vrnet.cohort.records import DONE
from vrnet.cohort.stamps import digest_file, files_below
from vrnet.errors import BadInput
from vrnet.files import check_written, json_ready


def seal(staged: Path, record: Mapping[str, Any]) -> None:
    """Write done.json, with the size and SHA-256 of every file beside it.

    The files are on the disk, as their writers see to. done.json is not waited for: should the power fail now, it is
    damaged, and the subject is done again."""
    files = {
        os.path.relpath(file, staged): {"bytes": os.stat(file).st_size, "sha256": digest_file(file)}
        for file in files_below(str(staged))
    }
    write_record({**record, "files": files}, staged / DONE)


def write_record(record: Mapping[str, Any], path: Path) -> None:
    """Write a JSON file that is not waited for."""
    text = json.dumps(json_ready(record), allow_nan=False).encode()
    path.write_bytes(text)
    check_written(path.stat().st_size == len(text), path)


def publish(staged: Path, folder: Path, old: Path, earlier: Mapping[str, Any]) -> None:
    """Rename a sealed folder to its place. An earlier result, which has a record, goes to `old`; BadInput if others put
    files there.

    If that fails, the earlier one goes back. Killed between the two renames, the subject is not done: the earlier
    result was to be replaced."""
    try:
        os.rename(staged, folder)  # also over an empty folder
    except OSError:
        if not folder.is_dir():
            raise
        check_own(folder, earlier, staged)
        os.rename(folder, old)
        try:
            os.rename(staged, folder)
        except BaseException:
            os.rename(old, folder)
            raise


def check_own(folder: Path, record: Mapping[str, Any], staged: Path | None = None) -> None:
    """BadInput unless every file in a result's folder is as its record lists it.

    Beside a record that cannot be read, files are ours that have names of the new result; before there is one, nobody
    knows these."""
    if not record and staged is None and os.path.lexists(folder / DONE):
        return
    listed = record.get("files", {})
    for file in files_below(str(folder)):
        name = os.path.relpath(file, folder)
        is_listed = name in listed and digest_file(file) == listed[name].get("sha256")
        if not is_listed and name not in replaced_names(folder, record, staged):
            raise BadInput(
                f"{file} is not as this cohort wrote it, and would be lost: {advice(file, listed.get(name))}"
            )


def advice(file: str, listed: Any) -> str:
    """What to do about a file that is in the way: one of ours that is shorter by now may be damaged."""
    written = listed.get("bytes") if isinstance(listed, dict) else None
    size = os.stat(file).st_size
    if isinstance(written, int) and size < written:
        return f"it has {size:,} of {written:,} bytes; remove it if it is damaged, or move it away, and try it again"
    return "move it away, and try it again"


def replaced_names(folder: Path, record: Mapping[str, Any], staged: Path | None) -> set[str]:
    """The files of a result's folder that are ours whatever they hold."""
    if record:
        return {DONE}
    if staged is None or not os.path.lexists(folder / DONE):
        return set()
    return {os.path.relpath(file, staged) for file in files_below(str(staged))}
