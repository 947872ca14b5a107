"""Seeded changes that leave a file formally in order: other values, names, shapes and types, and right checksums."""

import csv
import io
import json
import zipfile
from hashlib import sha256

import numpy as np

VALUES = [None, True, -1, 0, 1, 2, 7, 2**31, 10**30, 0.5, 1e308, float("nan"), float("-inf"), "", "x", "x" * 5000,
          "a\nb", "\x1b[31m", "\ud800", [], {}, [[]], [1, 2, 3], {"x": {}}, "each", "train", "R-L2-1000000x1000",
          "R-L2-100x1-w4096", "999999999999xRC-Net", "VoxelMorph-w-3", "R-L2-1x1(theta=1e999)",
          "R-L2-" + "9" * 5000 + "x1", "../canary.txt", "[" * 3000]  # fmt: skip
NAMES = ["../canary.txt", "", "x" * 5000, "\x1b[31m", "a\nb", "__metadata__", "model.", "optimizer.",
         "optimizer.0.step", "0/0"]  # fmt: skip
DTYPES = {"F16": 2, "F32": 4, "F64": 8, "I64": 8, "I32": 4, "BF16": 2, "BOOL": 1, "U8": 1, "F8_E4M3": 1, "X9": 4}
TORCH_NAMES = {"F16": "torch.float16", "F32": "torch.float32", "F64": "torch.float64", "I64": "torch.int64"}
CELLS = ["", "nan", "inf", "1e999", "-1", "0", "1_0", "٣", "=1+1", "x" * 5000, "x" * 200_000, '"', "a\nb", "\0",
         "\x1b[31m", "../canary.txt", "train", "s0", "subject", "split", "fixed", "name", "x", "step", ",", ";", "é",
         "\ufeff"]  # fmt: skip
COMPRESSIONS = [zipfile.ZIP_DEFLATED] * 4 + [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2]


def choose(items, rng):
    return items[int(rng.integers(len(items)))]


def change_json(value, rng, canary):
    """Another value somewhere within: replaced, removed, added, or doubled."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.85:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key, way = choose(keys, rng), rng.random()
        if way < 0.7:
            value[key] = change_json(value[key], rng, canary)
        elif way < 0.8:
            del value[key]
        elif isinstance(value, dict):
            value[choose([*NAMES, *keys], rng)] = value[key]
        else:
            value += value[: 2 * key + 1]
        return value
    return choose([*VALUES, canary], rng)


def split_tensors(data):
    """{name: [type, shape, bytes]} of a safetensors file, and what its header says besides."""
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    said = header.pop("__metadata__")
    offsets = {name: about["data_offsets"] for name, about in header.items()}
    return {
        name: [header[name]["dtype"], header[name]["shape"], data[start + first : start + last]]
        for name, (first, last) in offsets.items()
    }, said


def join_tensors(tensors, said):
    header, place = {"__metadata__": said}, 0
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + len(content)]}
        place += len(content)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(content for *_, content in tensors.values())


def checksum(tensors, said):
    layouts = {name: [TORCH_NAMES.get(dtype, dtype), shape] for name, (dtype, shape, _) in tensors.items()}
    digest = sha256(json.dumps([said, layouts], sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(tensors[name][2])
    return digest.hexdigest()


def change_tensor(tensors, rng):
    """One tensor becomes another: of other numbers, type, shape or name; or it goes, or comes twice."""
    name, way = choose(list(tensors), rng), int(rng.integers(6))
    dtype, shape, content = tensors[name]
    if way == 0:
        word = choose([b"\x00\x7e", b"\x00\x00\xc0\x7f", b"\x00\x00\x80\xff", b"\xff" * 4], rng)
        tensors[name] = [dtype, shape, (word + content[len(word) :])[: len(content)]]
    elif way == 1:
        other = choose(list(DTYPES), rng)
        tensors[name] = [other, shape, bytes(DTYPES[other] * int(np.prod(shape, dtype=object)))]
    elif way == 2:
        tensors[name] = [dtype, choose([shape[::-1], [*shape, 1], [1, *shape], [len(content)], []], rng), content]
    elif way == 3:
        tensors[choose(NAMES, rng)] = tensors.pop(name)
    elif way == 4:
        del tensors[name]
    else:
        tensors[choose([*NAMES, *tensors], rng)] = [dtype, [0], b""]


def change_tensors(data, rng, canary):
    """A file of tensors that says or holds another thing; four times in five with the right checksum."""
    tensors, said = split_tensors(data)
    old = said.pop("sha256")
    if rng.random() < 0.6:
        key = choose(list(said), rng)
        said[key] = json.dumps(change_json(json.loads(said[key]), rng, canary))
    else:
        change_tensor(tensors, rng)
    said["sha256"] = checksum(tensors, said) if rng.random() < 0.8 else old
    return join_tensors(tensors, said)


def npy(array):
    np.save(file := io.BytesIO(), array)
    return file.getvalue()


def other_array(array, rng):
    """An array in place of another."""
    ways = [
        lambda: array.astype(choose(["u1", "u2", "f4", "f8", "c8", "U3", ">u2"], rng)),
        lambda: array[..., :1],
        lambda: array[None],
        lambda: array[:0],
        lambda: np.full(array.shape, choose([np.nan, np.inf, -1.0, 1e-30, 1e30, 0.0], rng), "f8").astype("f4"),
        lambda: np.full(array.shape, choose([np.nan, np.inf, -1.0, 1e-30, 1e30, 0.0], rng), "f8"),
        lambda: np.array("../canary.txt"),
        lambda: np.zeros((1, 1, 2**10, 2**10), array.dtype),
        lambda: array.T,
    ]
    return choose(ways, rng)()


def change_pack(data, rng, canary):
    """A pack that says or holds another thing."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    index = json.loads(np.load(io.BytesIO(members.pop("index.npy"))).item())
    if rng.random() < 0.5:
        index = change_json(index, rng, canary)
    else:
        change_member(members, rng)
    out = io.BytesIO()
    with zipfile.ZipFile(
        out, "w", choose([zipfile.ZIP_DEFLATED] * 4 + [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2], rng)
    ) as file:
        for name, content in [*members.items(), ("index.npy", npy(np.array(json.dumps(index))))]:
            file.writestr(name, content)
    return out.getvalue()


def change_member(members, rng):
    name, way = choose(list(members), rng), rng.random()
    array = np.load(io.BytesIO(members[name]))
    if way < 0.7 and array.ndim:
        members[name] = npy(other_array(array, rng))
    elif way < 0.8:
        members[f"{choose(NAMES, rng)}.npy"] = members.pop(name)
    elif way < 0.9:
        del members[name]
    else:
        members[name] = npy(np.array(choose(["s0", "x\ny", "x" * 2000, ""], rng)))


def change_table(data, rng, canary):
    """A table with another cell, column or row."""
    lines = list(csv.reader(io.StringIO(data.decode())))
    for _ in range(int(rng.integers(1, 4))):
        row = choose(lines, rng)
        column, way = int(rng.integers(max(1, len(row)))), rng.random()
        if way < 0.6:
            row[column : column + 1] = [choose([*CELLS, canary, *lines[0]], rng)]
        elif way < 0.7:
            row.insert(column, choose(CELLS, rng))
        elif way < 0.8 and row:
            del row[column % len(row)]
        elif way < 0.9:
            lines += [list(row)] * int(rng.choice([1, 2, 9]))
        else:
            row += [f"c{k}" for k in range(int(rng.choice([1, 100, 1500])))]
    text = io.StringIO()
    csv.writer(text, lineterminator=str(rng.choice(["\n", "\r\n", "\r"]))).writerows(lines)
    encoding = choose(["utf-8"] * 4 + ["utf-8-sig", "utf-16", "latin-1"], rng)
    return text.getvalue().encode(encoding, errors="replace")


CHANGES = {"weights": change_tensors, "checkpoints": change_tensors, "packs": change_pack, "csv": change_table}
