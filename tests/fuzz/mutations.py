"""Seeded damage to the bytes of a file: the same seed gives the same bytes on every machine."""

import gzip
import re
import struct

NUMBERS = [b"1e308", b"-1", b"0", b"nan", b"inf", b"1e-30", b"99999999999", b"2147483648", b"3", b"x", b"1" * 5000, b""]
WORDS = [*(struct.pack("<i", n) for n in (-1, 0, 1, 2**31 - 1, -(2**31), 32767, 348)),
         *(struct.pack("<h", n) for n in (-1, 0, 7, 32767, -32768)),
         *(struct.pack("<f", x) for x in (float("nan"), float("inf"), 1e30, 1e-30, -1.0)),
         *(struct.pack("<d", x) for x in (float("nan"), 1e308, 1e-300))]  # fmt: skip


def flip_bits(data, rng, canary):
    for _ in range(rng.integers(1, 9)):
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    return data


def overwrite(data, rng, canary):
    start, count = rng.integers(len(data)), int(rng.integers(1, 64))
    data[start : start + count] = rng.bytes(count) if rng.random() < 0.5 else bytes([rng.choice([0, 255])]) * count
    return data


def truncate(data, rng, canary):
    return data[: rng.integers(len(data))]


def delete(data, rng, canary):
    start = rng.integers(len(data))
    del data[start : start + rng.integers(1, 100)]
    return data


def repeat(data, rng, canary):
    start, count = rng.integers(len(data)), int(rng.integers(1, 100))
    piece = data[start : start + count] * int(rng.choice([1, 2, 200]))
    return data[:start] + piece + data[start:]


def set_word(data, rng, canary):
    """A number in binary replaced by one that programs fear; most in the header."""
    word = WORDS[rng.integers(len(WORDS))]
    start = 2 * int(rng.integers(max(1, min(len(data), 400) // 2)))
    data[start : start + len(word)] = word
    return data


def set_number(data, rng, canary):
    """A number in text replaced by one that programs fear."""
    found = list(re.finditer(rb"[-+]?\d[\d.e+-]*", bytes(data[:3000])))
    if not found:
        return set_word(data, rng, canary)
    chosen = found[rng.integers(len(found))]
    data[chosen.start() : chosen.end()] = NUMBERS[rng.integers(len(NUMBERS))]
    return data


def set_value(data, rng, canary):
    """What follows `=` or `:` in a line replaced by the name of another file, or by something long."""
    found = list(re.finditer(rb"[=:]([^\n=]+)\n", bytes(data[:3000])))
    if not found:
        return set_word(data, rng, canary)
    chosen = found[rng.integers(len(found))]
    values = [canary.encode(), b"../canary.txt", b"x" * 300, b"x" * 5000, b"LIST", b"\xff\xfe"]
    data[chosen.start(1) : chosen.end(1)] = b" " + values[rng.integers(len(values))]
    return data


def name_another_file(data, rng, canary):
    """A line that names another file, where a header has its lines."""
    lines = [f"data file: {canary}\n", f"ElementDataFile = {canary}\n", f"datafile: {canary}\n"]
    place = bytes(data).find(b"\n", int(rng.integers(min(len(data), 300)))) + 1
    line = lines[rng.integers(len(lines))].encode()
    if b"ElementDataFile" in data and rng.random() < 0.7:
        return bytearray(re.sub(rb"ElementDataFile[^\n]*", line.replace(b"\\", b"/"), bytes(data), count=1))
    return data[:place] + line + data[place:]


MUTATIONS = [flip_bits, overwrite, truncate, delete, repeat, set_word, set_number, set_value, name_another_file]


def mutate(data, rng, canary):
    """The bytes of a file after one to three kinds of damage; of a zipped one often inside, and zipped again."""
    is_inside = data[:2] == b"\x1f\x8b" and rng.random() < 0.5
    damaged = bytearray(gzip.decompress(data) if is_inside else data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if damaged:
            damaged = bytearray(MUTATIONS[rng.integers(len(MUTATIONS))](damaged, rng, canary))
    return gzip.compress(bytes(damaged), 1, mtime=0) if is_inside else bytes(damaged)
