"""Where a prepared subject is kept: FOLDER/DATA/SUBJECT-PURPOSE-HASH.npz, by a hash of all that it depends on."""

import hashlib
import json
import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from vrnet.data.sample import Purpose
from vrnet.data.stored import FORMAT
from vrnet.errors import BadInput
from vrnet.files import exists, is_folder

WHERE = "root", "split_file"
"""The fields of a data set that say where it is, and not what is made of it."""
DIGITS = 16


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/vrnet, or ~/.cache/vrnet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vrnet"


def kept_as(dataset: Any, subject: str, purpose: Purpose, sources: list[Path]) -> str:
    """The name of the file: it depends on the protocol, on how files are written, and on the bytes of the sources."""
    if missing := [path.name for path in sources if not exists(path)]:
        raise BadInput(f"there is no {', '.join(missing)}")
    protocol = FORMAT, dataset.name, parameters(dataset), subject, purpose
    digest = hashlib.sha256(json.dumps(protocol, sort_keys=True).encode())
    for path in sources:
        digest.update(fingerprint(path))
    return f"{plain(subject)}-{purpose}-{digest.hexdigest()[:DIGITS]}.npz"


def parameters(dataset: Any) -> dict[str, Any]:
    """The protocol's: the fields of the data set, but those that say where it is."""
    return {part.name: getattr(dataset, part.name) for part in fields(dataset) if part.name not in WHERE}


def fingerprint(path: Path) -> bytes:
    """A hash of the bytes of a file; of a folder (a DICOM series) those of all its files."""
    if is_folder(path):
        return b"".join(fingerprint(file) for file in sorted(path.iterdir()))
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise BadInput(f"cannot read {path.name} ({error.strerror})") from error


def plain(subject: str) -> str:
    """The name in characters that any file may have."""
    return re.sub(r"[^\w.-]", "_", subject)[:80]
