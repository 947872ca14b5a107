"""Make pictures smaller: python docs/smaller.py FILE ... writes PNG, GIF and the pictures of notebooks again."""

import json
import sys
from base64 import b64decode, b64encode
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageSequence

LANCZOS = Image.Resampling.LANCZOS
COLOURS = 96
WIDEST, FILM_WIDTH = 1200, 520


def smaller_png(data: bytes) -> bytes:
    """The picture in a palette of colours, and no wider than `WIDEST` where that is smaller."""
    picture, made = Image.open(BytesIO(data)).convert("RGB"), [data]
    for width in (picture.width, WIDEST):
        picture, file = picture.resize((width, round(picture.height * width / picture.width)), LANCZOS), BytesIO()
        picture.quantize(COLOURS, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
        made.append(file.getvalue())
    return min(made, key=len)


def smaller_gif(data: bytes) -> bytes:
    """Every second frame of a film, narrower, all in one palette of 16 greys and 32 colours."""
    film, made = Image.open(BytesIO(data)), BytesIO()
    size = FILM_WIDTH, round(film.height * FILM_WIDTH / film.width)
    frames = [frame.convert("RGB").resize(size, LANCZOS) for frame in ImageSequence.Iterator(film)][::2]
    pixels = np.concatenate([np.asarray(frame).reshape(-1, 3) for frame in frames])
    is_grey = np.ptp(pixels.astype(int), axis=1) < 16
    parts = [Image.fromarray(part[None]).quantize(n).getpalette()[: 3 * n] for part, n in
             ((pixels[is_grey], 16), (pixels[~is_grey], 32))]  # fmt: skip
    palette = Image.new("P", (1, 1))
    palette.putpalette(parts[0] + parts[1])
    first, *others = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    first.save(made, "GIF", save_all=True, append_images=others, duration=2 * film.info["duration"], loop=0)
    return made.getvalue()


def smaller_notebook(data: bytes) -> bytes:
    """A notebook with smaller PNG pictures."""
    notebook = json.loads(data)
    for cell in notebook["cells"]:
        for shown in (output.get("data", {}) for output in cell.get("outputs", [])):
            if "image/png" in shown:
                shown["image/png"] = b64encode(smaller_png(b64decode(shown["image/png"]))).decode()
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()


if __name__ == "__main__":
    makers = {".png": smaller_png, ".gif": smaller_gif, ".ipynb": smaller_notebook}
    for path in map(Path, sys.argv[1:]):
        path.write_bytes(makers[path.suffix](before := path.read_bytes()))
        print(f"{path}: {len(before) / 1e3:.0f} kB, now {path.stat().st_size / 1e3:.0f} kB")
