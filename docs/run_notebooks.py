"""Run the notebooks of docs/notebooks and keep what they show: python docs/run_notebooks.py.

It needs no Jupyter: cells of code run one after another, and the value of a last line is shown as a notebook shows it:
by `_repr_html_`, `_repr_png_` or repr. `page` makes Markdown of a notebook, for the site.
"""

import ast
import json
from base64 import b64encode
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "notebooks"
KINDS = {"text/html": "_repr_html_", "image/png": "_repr_png_"}
"""What a value is shown as, the first that it has; else as text."""


def run_notebook(path):
    """The notebook of a file, with the outputs of its cells as they are now."""
    notebook, known = json.loads(path.read_text(encoding="utf-8")), {}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(cells, start=1):
        cell["execution_count"], cell["outputs"] = count, run_cell("".join(cell["source"]), known, count)
    return notebook


def run_cell(source, known, count):
    """What a cell prints, and the value of its last line, if that is an expression without a semicolon."""
    tree, printed, value = ast.parse(source), StringIO(), None
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";") else None
    with redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), known)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), known)
    outputs = [{"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)}]
    shown = {"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": display(value)}
    return [*(outputs if printed.getvalue() else []), *([shown] if value is not None else [])]


def display(value):
    """{kind: text} of a value, as a notebook keeps it."""
    for kind, method in KINDS.items():
        made = getattr(value, method, lambda: None)()  # a figure says None where it has no HTML
        if made is not None:
            text = b64encode(made).decode() if isinstance(made, bytes) else made.splitlines(keepends=True)
            return {kind: text, "text/plain": [repr(value)]}
    return {"text/plain": repr(value).splitlines(keepends=True)}


def page(path):
    """A notebook as Markdown, with what its cells showed."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = [part for cell in cells for part in cell_parts(cell)]
    return "\n\n".join([*parts, f"This page is the notebook [{path.name}](notebooks/{path.name})."]) + "\n"


def cell_parts(cell):
    """The text of a cell; or its code, and what it showed."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source.replace("](../", "](")]
    return [f"```python\n{source}\n```", *map(output_part, cell["outputs"])]


def output_part(output):
    """What a cell showed, as Markdown or HTML."""
    data = output.get("data", {})
    if "text/html" in data:
        return "".join(data["text/html"]).replace("\n", "")
    if "image/png" in data:
        return f'<img alt="what the cell above shows" src="data:image/png;base64,{data["image/png"]}">'
    return f"```text\n{''.join(data.get('text/plain', output.get('text', []))).rstrip()}\n```"


if __name__ == "__main__":
    from smaller import smaller_notebook

    for file in sorted(FOLDER.glob("*.ipynb")):
        file.write_bytes(smaller_notebook(json.dumps(run_notebook(file)).encode()))
        print(f"{file.name}: {file.stat().st_size / 1e3:.0f} kB")
