"""Where results go: asked before the work, written whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from vrnet.errors import BadInput


def exists(path: Path) -> bool:
    """Whether something is there that may be seen."""
    try:
        return path.exists()
    except OSError:  # a folder that may not be entered, a name too long
        return False


def is_folder(path: Path) -> bool:
    return exists(path) and path.is_dir()


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A file of the same name in a folder of its own; it takes path's place if the writing succeeds."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent, prefix=".partial-") as folder:
            temporary, plain = Path(folder) / path.name, Path(folder) / ".plain"
            plain.touch()
            yield temporary
            temporary.chmod(plain.stat().st_mode)  # some libraries write files that nobody else may read
            temporary.replace(path)
    except OSError as error:
        raise BadInput(f"cannot write {path} ({error.strerror}): choose another place") from error


def check_folder(folder: Path, names: tuple[str, ...] = ()) -> None:
    """BadInput unless the folder, or the nearest one above it that is there, can be written in, and these files too."""
    there = next(place for place in (folder, *folder.absolute().parents) if exists(place))
    try:
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise BadInput(f"cannot write to {folder} ({error.strerror}): choose another folder") from error
    for name in names:
        if is_folder(folder / name):
            raise BadInput(f"{folder / name} is a folder, and would have to be a file: choose another folder")


def check_file(path: Path, kinds: tuple[str, ...]) -> None:
    """BadInput unless a file of one of these kinds can be written there."""
    if is_folder(path):
        raise BadInput(f"{path} is a folder: name a file")
    if not path.name.endswith(kinds):
        raise BadInput(f"{path.name} has no ending that can be written: choose one of {', '.join(kinds)}")
    check_folder(path.parent)
