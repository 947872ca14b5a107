"""Sets of files that belong together, such as the results of a registration: all of the old ones, or all of the new.

No system call renames several files at once, so a set is swapped by a link that all of its names go through:

1. The new set is written and verified in a temporary folder inside the folder of the results. Beside it, `old` gets
   hard links to the files that are there, and `current` is a symbolic link to `old`. The folder becomes `.vrnet-swap`.
2. Each name is replaced by a symbolic link to `.vrnet-swap/current/NAME`, which is still the old file.
3. `current` is replaced by a link to `new`, in one rename: at this moment, and for all names, the new set is there.
4. Each link is replaced by the file that it leads to; links that lead nowhere are removed, and so is `.vrnet-swap`.

Whoever opens the files by their names sees all of one set at any moment, also if the process is killed between two
steps; the next run then puts the files that the links lead to in their places. Where the file system has no links,
files are renamed one by one.

A name may lead into folders below, such as `transforms/frame_00.nii.gz`: these are made, and removed when empty.

A record in the folder says which files were written so, and their SHA-256. Only those are replaced or removed: what
was put there by others, or changed since, stays, and a run that would need its name is refused before the work."""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from vrnet.errors import BadInput
from vrnet.files import check_folder, check_no_twin, exists, flush_folder, read_json, write_json
from vrnet.locks import hold_lock, partial_folder

RECORD, LOCK, SWAP = ".vrnet.json", ".vrnet.lock", ".vrnet-swap"
OLD, NEW, CURRENT = "old", "new", "current"
PATIENCE_SECONDS = 10.0
"""How long to wait for another run that swaps its files: that takes milliseconds."""
NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}
"""What a file system without links answers."""


def check_set(folder: Path, names: Iterable[str]) -> None:
    """BadInput unless these files can be written in the folder without loss of a file that is not of an earlier run."""
    names = tuple(names)
    check_folder(folder, names)
    for place in {folder / parent for name in names for parent in PurePosixPath(name).parents}:
        if os.path.lexists(place) and (place.is_symlink() or not place.is_dir()) and place != folder:
            raise BadInput(f"{place} is no folder, and would have to be one: move it away, or choose another folder")
    if names and exists(folder):
        with writing(folder):  # a set that is half swapped would be taken for one of others
            settle(folder)
            check_unclaimed(folder, names)


@contextmanager
def replace_set(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield a folder to write a set of files in. If the block succeeds, they replace the earlier set; if not, it stays.

    `names` are all that the set may have: recorded files of these names that the new set lacks go with the old one."""
    check_set(folder, ())
    with failing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with partial_folder(folder) as partial:
            (partial / NEW).mkdir()
            try:
                yield partial / NEW
            except BadInput as error:  # in the words of the reader, who knows nothing of the temporary folder
                raise BadInput(str(error).replace(str(partial / NEW), str(folder))) from error
            with writing(folder):
                settle(folder)
                swap(folder, partial, names)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Keep other runs from writing in the folder meanwhile; BadInput if one does not end."""
    with failing(folder):
        try:
            with hold_lock(folder / LOCK, PATIENCE_SECONDS):
                yield
        except BlockingIOError as error:
            raise BadInput(f"another run is writing in {folder}: wait for it, or choose another folder") from error


@contextmanager
def failing(folder: Path) -> Iterator[None]:
    """BadInput in place of the system's errors."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"cannot write in {folder} ({error.strerror}): nothing was replaced") from error


def swap(folder: Path, partial: Path, names: Sequence[str]) -> None:
    """Put the new set of a temporary folder in the place of the old one."""
    written = names_in(partial / NEW)
    check_unclaimed(folder, written)
    owned = own_files(folder)
    going = [name for name in owned if name in names]
    kept = {name: owned[name] for name in owned if name not in going}
    write_json({"files": kept | {name: sha256(partial / NEW / name) for name in written}}, partial / NEW / RECORD)
    if exists(folder / RECORD):
        going.append(RECORD)
    try:
        link_old(folder, partial, going)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        rename_one_by_one(folder, partial, going)
        return
    try:
        show_new(folder, partial, going)
    finally:
        settle(folder)


def names_in(folder: Path) -> list[str]:
    """The files in a folder and in the folders below it, by their names from there."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not is_real_folder(path))


def is_real_folder(path: Path) -> bool:
    """Whether something is a folder itself, and no link to one."""
    return path.is_dir() and not path.is_symlink()


def link_to_swap(name: str) -> Path:
    """Where the link of a name leads, seen from its own folder."""
    return Path(*[".."] * (len(PurePosixPath(name).parts) - 1), SWAP, CURRENT, name)


def link_old(folder: Path, partial: Path, going: Iterable[str]) -> None:
    """Step 1: hard links to the old files, and `current`, which leads to them."""
    (partial / OLD).mkdir()
    for name in going:
        (partial / OLD / name).parent.mkdir(parents=True, exist_ok=True)
        (partial / OLD / name).hardlink_to(folder / name)
    (partial / CURRENT).symlink_to(OLD)
    partial.chmod(folder.stat().st_mode)  # whoever may read the results may follow the links through it
    for place in (partial / OLD, partial / NEW, partial):
        flush_folder(place)


def show_new(folder: Path, partial: Path, going: Iterable[str]) -> None:
    """Steps 2 and 3: every name leads through `current`, which then leads to the new set."""
    place = folder / SWAP
    partial.rename(place)
    for name in going:
        if not os.path.samestat((folder / name).lstat(), (place / OLD / name).lstat()):
            raise FileExistsError(errno.EEXIST, f"{name} was changed meanwhile")
        (place / "link").symlink_to(link_to_swap(name))
        (place / "link").replace(folder / name)
    for name in names_in(place / NEW):
        if name not in going:  # fails where somebody has put a file meanwhile
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(link_to_swap(name))
    flush_folder(folder)
    (place / "link").symlink_to(NEW)
    (place / "link").replace(place / CURRENT)
    flush_folder(place)


def settle(folder: Path) -> None:
    """Step 4, after a swap that went through or was stopped: the files that the links lead to, in their places."""
    place = folder / SWAP
    if not exists(place):
        return
    names = {name for side in (OLD, NEW) for name in names_in(place / side)}
    for name in names:
        if not is_link_of_swap(folder, name):
            continue
        with suppress(FileNotFoundError):
            (place / CURRENT / name).replace(folder / name)
        if is_link_of_swap(folder, name):
            (folder / name).unlink()
    remove_empty_folders(folder, names)
    flush_folder(folder)
    shutil.rmtree(place)


def remove_empty_folders(folder: Path, names: Iterable[str]) -> None:
    """Remove the folders of these names, below the folder, that hold nothing any more."""
    places = {parent for name in names for parent in PurePosixPath(name).parents if parent.parts}
    for place in sorted(places, key=lambda place: -len(place.parts)):
        with suppress(OSError):  # which is raised where something is in it
            (folder / place).rmdir()


def is_link_of_swap(folder: Path, name: str) -> bool:
    """Whether a name is a link that a swap has made."""
    try:
        return (folder / name).readlink() == link_to_swap(name)
    except OSError:
        return False


def rename_one_by_one(folder: Path, partial: Path, going: Iterable[str]) -> None:
    """Replace the old set where there are no links; a process that is killed meanwhile leaves some of both."""
    new = names_in(partial / NEW)
    for name in new:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (partial / NEW / name).replace(folder / name)
    for name in set(going) - set(new):
        (folder / name).unlink()
    remove_empty_folders(folder, going)
    flush_folder(folder)


def check_unclaimed(folder: Path, names: Iterable[str]) -> None:
    """BadInput if a file of one of these names is there that no earlier run recorded as its own, or one that ITK would
    read in its stead."""
    owned = own_files(folder)
    for name in names:
        check_no_twin(folder / name)
        if name not in owned and os.path.lexists(folder / name):
            raise BadInput(
                f"{folder / name} is not as an earlier run of this command wrote it, and would be lost: move it away, "
                "or choose another folder"
            )


def own_files(folder: Path) -> dict[str, str]:
    """{name: SHA-256} of the files that the record has, and that are still as they were written."""
    try:
        recorded = dict(read_json(folder / RECORD)["files"])
    except (BadInput, LookupError, TypeError, ValueError):  # no record, or a damaged one: nothing is ours
        return {}
    return {name: digest for name, digest in recorded.items() if is_as_recorded(folder, name, digest)}


def is_as_recorded(folder: Path, name: object, digest: object) -> bool:
    """Whether a file of that very folder, or of one below it, has the content that was recorded."""
    if not isinstance(name, str) or not is_plain(name):
        return False
    path = folder / name
    if any((folder / parent).is_symlink() for parent in PurePosixPath(name).parents if parent.parts):
        return False
    try:
        return path.is_file() and not path.is_symlink() and sha256(path) == digest
    except OSError:
        return False


def is_plain(name: str) -> bool:
    """Whether a name leads into the folder or below it, and nowhere else."""
    place = PurePosixPath(name)
    return str(place) == name and not place.is_absolute() and bool(place.parts) and ".." not in place.parts


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
