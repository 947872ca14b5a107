"""HDF5 transforms, and DICOM compressed as JPEG Lossless or JPEG-LS, read by ITK in a process of their own: a damaged
file makes ITK crash (HDF5: 4 of 100) or take all memory. This file is the program of that process, too."""

import json
import os
import resource
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

BASE_MEMORY, MEMORY_PER_BYTE = 900_000_000, 40  # what the process may take: this, and so many times the file's size
BASE_SECONDS, BYTES_PER_SECOND, SECONDS_PER_FILE = 40, 1_000_000, 0.1


def read_isolated(what: str, path: Path, files: list[Path]) -> Any:
    """The arrays that ITK finds in files, of a `transform` or of `slices`, by name; BadInput if it fails."""
    import numpy as np

    from vrnet.devices import available_memory, check_memory
    from vrnet.files import unreadable
    from vrnet.images.formats import DAMAGED, TOO_LARGE

    size = sum(file.stat().st_size for file in files)
    check_memory(path, size)
    memory = int(min(BASE_MEMORY + MEMORY_PER_BYTE * size, BASE_MEMORY + available_memory()))
    seconds = BASE_SECONDS + size / BYTES_PER_SECOND + SECONDS_PER_FILE * len(files)
    request = json.dumps([what, memory, [str(file.absolute()) for file in files]]).encode()
    places = os.pathsep.join(str(Path(part).absolute()) for part in sys.path)  # the libraries that this process finds
    environment = os.environ | {"PYTHONPATH": places, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    how: Any = {"capture_output": True, "timeout": seconds, "check": True, "cwd": "/", "env": environment}
    try:
        done = subprocess.run([sys.executable, "-P", __file__], input=request, **how)
        return np.load(BytesIO(done.stdout), allow_pickle=False)
    except subprocess.CalledProcessError as error:
        raise unreadable(
            path, TOO_LARGE if b"alloc" in error.stderr or b"Memory" in error.stderr else DAMAGED
        ) from error
    except (subprocess.TimeoutExpired, OSError, ValueError) as error:
        raise unreadable(path, DAMAGED) from error


def main() -> None:
    """Read the files of the request on standard input, and write their arrays to standard output, as .npz."""
    import numpy as np
    import SimpleITK as sitk

    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(1)
    sitk.ProcessObject.SetGlobalWarningDisplay(False)
    sitk.GetArrayFromImage(sitk.Image(2, 2, sitk.sitkUInt8)).astype(np.float64)  # imports what it needs
    what, memory, names = json.load(sys.stdin)
    os.close(descriptor := os.dup(0))  # the number that the next file opened will have
    # One file is open at a time: a file cannot have another one read.
    limits = {resource.RLIMIT_AS: memory, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_NOFILE: descriptor + 1}
    for limit, value in limits.items():
        hard = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard),) * 2)
    if what == "slices":
        found = {str(k): sitk.GetArrayFromImage(sitk.ReadImage(n, imageIO="GDCMImageIO")) for k, n in enumerate(names)}
        np.savez(sys.stdout.buffer, **found)
        return
    # Of each part of a transform: the name of its kind, its parameters and its fixed ones.
    whole, found = sitk.ReadTransform(names[0]).Downcast(), {}
    is_composite = isinstance(whole, sitk.CompositeTransform)
    for k in range(whole.GetNumberOfTransforms() if is_composite else 1):
        part = whole.GetNthTransform(k).Downcast() if is_composite else whole
        is_identity = part.GetTransformEnum() == sitk.sitkIdentity
        d, kind = part.GetDimension(), "IdentityTransform" if is_identity else type(part).__name__
        order = f"_{part.GetOrder()}" if isinstance(part, sitk.BSplineTransform) else ""
        is_field = isinstance(part, sitk.DisplacementFieldTransform)
        values = sitk.GetArrayFromImage(part.GetDisplacementField()).ravel() if is_field else part.GetParameters()
        found |= {f"name{k}": np.array(f"{kind}_double_{d}_{d}{order}"), f"parameters{k}": np.array(values, np.float64)}
        found[f"fixed{k}"] = np.array(part.GetFixedParameters(), np.float64)
    np.savez(sys.stdout.buffer, **found)


if __name__ == "__main__":
    main()
