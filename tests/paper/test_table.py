import csv
import re
from io import StringIO

import pytest

from vrnet.paper.specs import Value
from vrnet.paper.tables import Table, escape_latex

TABLE = Table(
    "Small",
    ["method", "Dice Avg", "J<0 %", "|∇J|", "s CPU", "HD LV, published"],
    [
        ["a_b", Value(0.8734567, 0.05, 3), Value(0.0, 0.0, 2), Value(0.1, 0.02, 3), "0.25", Value(5.0, None, 2)],
        ["A|B", Value(0.9, 0.1, 3), Value(12.5, 1.0, 2), Value(0.2, 0.03, 3), None, None],
    ],
    ["Computed on 100 % of it."],
    best={(1, 1)},
    csv_only={5},
)


def test_markdown_is_a_table_with_the_best_in_bold_and_a_note_below():
    assert TABLE.markdown() == (
        "**Small**\n\n"
        "| method | Dice Avg | J<0 % | \\|∇J\\| | s CPU |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| a_b | .873(.050) | .00(.00) | .100(.020) | 0.25 |\n"
        "| A\\|B | **.900(.100)** | 12.50(1.00) | .200(.030) | – |\n\n"
        "Computed on 100 % of it.\n"
    )


def test_latex_has_as_many_columns_in_every_line_and_nothing_that_it_would_misread():
    text = TABLE.latex()
    lines = [line.removesuffix(r" \hline") for line in text.splitlines() if line.endswith((r"\\", r"\\ \hline"))]
    kinds = re.search(r"\\begin{tabular}{(\w+)}", text)[1]
    assert kinds == "lrrrr"
    assert [len(re.split(r"(?<!\\)&", line)) for line in lines] == [len(kinds)] * 3
    assert lines[0] == r"method & Dice Avg & J$<$0 \% & $|\nabla J|$ & s CPU \\"
    assert lines[1].startswith(r"a\_b & .873(.050)")
    assert lines[2] == r"A$|$B & \textbf{.900(.100)} & 12.50(1.00) & .200(.030) & -- \\"
    assert text.count("{") == text.count("}")
    assert text.startswith("% Small\n% Computed on 100 % of it.\n\\begin{tabular}")
    assert text.endswith("\\hline\n\\end{tabular}\n")


@pytest.mark.parametrize("words", ["50 %", "a_b", "a|b", "R&D", "#1", "|∇J| < α_1 | 5 %"])
def test_no_special_character_of_latex_is_left_bare(words):
    outside = re.sub(r"\$[^$]*\$", "", escape_latex(words))
    assert not re.search(r"(?<!\\)[%_|&#∇α<]", outside)


def test_csv_has_all_columns_as_numbers_and_deviations_in_columns_of_their_own():
    rows = list(csv.DictReader(StringIO(TABLE.comma_separated())))
    assert list(rows[0]) == [
        "method", "Dice Avg", "Dice Avg std", "J<0 %", "J<0 % std", "|∇J|", "|∇J| std", "s CPU", "HD LV, published",
    ]  # fmt: skip
    assert float(rows[0]["Dice Avg"]) == pytest.approx(0.8734567, abs=1e-6)
    assert float(rows[0]["Dice Avg std"]) == 0.05
    assert [row["s CPU"] for row in rows] == ["0.25", ""]
    assert [row["HD LV, published"] for row in rows] == ["5", ""]
    assert [row["method"] for row in rows] == ["a_b", "A|B"]
