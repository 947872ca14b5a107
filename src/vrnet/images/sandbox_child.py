"""The process that reads what only C++ can read: started by `sandbox`, it imports nothing of this package.

It waits on a socket. For each request it forks: the copy takes limits upon itself, which the kernel enforces, reads,
answers and ends. An answer is one line of JSON and the bytes that it announces; a crash is an answer that breaks off.
"""

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

VALUES_IN_ANY_FILE, VALUES_PER_BYTE = 1 << 24, 1032
"""How many values a file may announce: as many as a small constant picture, and deflate's best ratio beyond."""
Found = tuple[dict[str, Any], list[Any]]
"""The line of an answer, and the bytes after it."""


def main() -> None:
    """Serve requests until the socket closes; each comes as two pipes, for the request and for the answer."""
    import numpy as np
    import SimpleITK as sitk

    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(1)
    sitk.ProcessObject.SetGlobalWarningDisplay(False)
    sitk.GetArrayFromImage(sitk.Image(2, 2, sitk.sitkUInt8)).astype(np.float64)  # imports what it needs, once
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.socket(fileno=int(sys.argv[1]))
    while True:
        message, pipes, *_ = socket.recv_fds(server, 1, 2)
        if not message:
            return
        if os.fork() == 0:
            server.close()
            answer(*pipes)
            os._exit(0)
        for pipe in pipes:
            os.close(pipe)


def answer(request_pipe: int, answer_pipe: int) -> None:
    """Read one request, take its limits, do it and write the answer."""
    with open(request_pipe, "rb") as source:
        request = json.load(source)
    take_limits(**request.pop("limits"))
    try:
        header, parts = ACTIONS[request.pop("action")](**request)
    except MemoryError:
        header, parts = {"error": "Failed to allocate memory"}, []
    except Exception as error:
        header, parts = {"error": f"{type(error).__name__}: {error}"}, []
    with open(answer_pipe, "wb") as target:
        target.write(json.dumps(header).encode() + b"\n")
        for part in parts:
            target.write(part)


def take_limits(memory: int, seconds: int, waiting_seconds: int, files: int) -> None:
    """Let the kernel end this process if it takes more; it can write no file, and open few."""
    for limit, value in [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NOFILE, next_descriptor() + files),
    ]:
        hard = resource.getrlimit(limit)[1]
        within = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (within, within))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(waiting_seconds)


def next_descriptor() -> int:
    """The number that the next file opened will have."""
    descriptor = os.dup(0)
    os.close(descriptor)
    return descriptor


def read_image(names: list[str], reader: str) -> Found:
    """One image, of one file or of the slices of a DICOM series."""
    import SimpleITK as sitk

    for name in names[:1]:
        read_information(name, reader)
    image = sitk.ReadImage(names if len(names) > 1 else names[0], imageIO=reader)
    array = sitk.GetArrayFromImage(image)
    header = {
        "number_type": array.dtype.str,
        "shape": image.GetSize(),
        "components": image.GetNumberOfComponentsPerPixel(),
        "spacing": image.GetSpacing(),
        "origin": image.GetOrigin(),
        "direction": image.GetDirection(),
        "bytes": array.nbytes,
    }
    return header, [array.data]


def read_information(name: str, reader: str) -> Any:
    """The header of a file; MemoryError if it announces far more voxels than the file can hold."""
    import SimpleITK as sitk

    header = sitk.ImageFileReader()
    header.SetImageIO(reader)
    header.SetFileName(name)
    header.ReadImageInformation()
    count = header.GetNumberOfComponents()
    for n in header.GetSize():
        count *= n
    if count > VALUES_IN_ANY_FILE + VALUES_PER_BYTE * os.stat(name).st_size:  # noqa: PTH116
        raise MemoryError
    return header


def list_series(folder: str, tags: list[str]) -> Found:
    """How many DICOM series a folder holds; of a lone one the files, in order, and for each the values of some tags."""
    import SimpleITK as sitk

    series = sitk.ImageSeriesReader.GetGDCMSeriesIDs(folder)
    if len(series) != 1:
        return {"series": len(series), "names": [], "tags": [], "bytes": 0}, []
    names = sitk.ImageSeriesReader.GetGDCMSeriesFileNames(folder, series[0])
    values = []
    for name in names:
        reader = read_information(name, "GDCMImageIO")
        values.append([reader.GetMetaData(tag) if reader.HasMetaDataKey(tag) else None for tag in tags])
    return {"series": 1, "names": names, "tags": values, "bytes": 0}, []


def read_headers(names: list[str], tags: list[str]) -> Found:
    """For each file, the size of its image and the values of some tags; None for a file that holds no image."""
    found: list[dict[str, Any] | None] = []
    for name in names:
        try:
            reader = read_information(name, "GDCMImageIO")
        except RuntimeError:
            found.append(None)
            continue
        values = [reader.GetMetaData(tag) if reader.HasMetaDataKey(tag) else None for tag in tags]
        found.append({"size": reader.GetSize(), "tags": values})
    return {"headers": found, "bytes": 0}, []


def read_transform(name: str) -> Found:
    """The transforms of an HDF5 file: each one's kind and fixed parameters; the parameters follow as float64."""
    import numpy as np
    import SimpleITK as sitk

    whole = sitk.ReadTransform(name).Downcast()
    is_composite = isinstance(whole, sitk.CompositeTransform)
    found = [whole.GetNthTransform(i) for i in range(whole.GetNumberOfTransforms())] if is_composite else [whole]
    header: dict[str, Any] = {"parts": [], "bytes": 0}
    parts = []
    for transform in (part.Downcast() for part in found):
        if isinstance(transform, sitk.DisplacementFieldTransform):
            parameters = sitk.GetArrayFromImage(transform.GetDisplacementField()).astype(np.float64)
        else:
            parameters = np.array(transform.GetParameters(), np.float64)
        is_identity = transform.GetTransformEnum() == sitk.sitkIdentity
        order = transform.GetOrder() if isinstance(transform, sitk.BSplineTransform) else 3
        kind = {
            "name": "IdentityTransform" if is_identity else type(transform).__name__,
            "order": order,
            "dimension": transform.GetDimension(),
            "fixed": transform.GetFixedParameters(),
            "count": parameters.size,
        }
        header["parts"].append(kind)
        header["bytes"] += parameters.nbytes
        parts.append(parameters.tobytes())
    return header, parts


ACTIONS: dict[str, Callable[..., Found]] = {
    "image": read_image,
    "series": list_series,
    "headers": read_headers,
    "transform": read_transform,
}

if __name__ == "__main__":
    sys.path[:] = json.loads(sys.argv[2])
    main()
