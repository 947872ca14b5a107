"""The page of a transform that is there already, by whichever tool it was found."""

from collections.abc import Sequence
from pathlib import Path

from vrnet.app.conditions import NOTHING_KNOWN, Conditions
from vrnet.app.image_pair import ImagePair
from vrnet.app.measured import MeasuredTransform, measure_transform
from vrnet.app.pair import METRICS, OVERVIEW, REPORT, TRANSFORM, describe_code, write_report_files
from vrnet.errors import BadInput
from vrnet.file_sets import check_set, own_files, replace_set
from vrnet.files import check_file, check_not_input, write_json
from vrnet.images.chain import load_chain
from vrnet.progress import Stage
from vrnet.registration.plan import check_pair
from vrnet.report.page import write_report

PAGE_SUFFIX = ".html"
PAGE_FILES = (REPORT, OVERVIEW, METRICS)
"""What a folder gets; a page of a name of its own comes alone."""


def check_place(out: Path, inputs: Sequence[Path | None]) -> None:
    """BadInput unless the page, or the folder of one, can be written without loss of anything else."""
    if out.suffix == PAGE_SUFFIX:
        check_not_input([out], inputs)
        return check_file(out, (PAGE_SUFFIX,))
    check_not_input((out / name for name in PAGE_FILES), inputs)
    check_set(out, PAGE_FILES)
    if TRANSFORM in own_files(out):
        raise BadInput(f"{out} holds a registration, whose files stay as they are: name a page, such as {out}.html")


def report_transform(
    stage: Stage, pair: ImagePair, transforms: Sequence[Path], out: Path, known: Conditions = NOTHING_KNOWN
) -> tuple[MeasuredTransform, list[Path]]:
    """Measure what a chain of transforms does to a pair, and write its page: one file, or a folder of three.

    Also returns which files. Points of fixed go through the first transform first. `known` is how it was found."""
    check_pair(pair.fixed, pair.moving, must_overlap=False)
    transform = load_chain(transforms, pair.fixed.grid)
    stage("measuring")
    name = ", then ".join(path.name for path in transforms)
    result = measure_transform(pair, transform, name=name, command="report", known=known)
    stage("writing")
    description = {role.replace("_", " "): image.name for role, image in pair.images.items()}
    description |= {"transform": name, **({"structures": pair.naming} if pair.naming else {})}
    description |= known.describe() | describe_code()
    if out.suffix == PAGE_SUFFIX:
        write_report(out, result.on_fixed_grid, result.metrics, (), description)
        return result, [out]
    with replace_set(out, PAGE_FILES) as staged:
        write_json(result.metrics, staged / METRICS)
        write_report_files(result, staged, (), description)
    return result, [out / name for name in PAGE_FILES]
