"""Put the tables of results/tables into results/README.md, between <!-- NAME --> and <!-- end -->."""

import re
from pathlib import Path

HERE = Path(__file__).parent


def fill_tables(text: str) -> str:
    """The page with each table as it is in its file."""

    def table(found: re.Match[str]) -> str:
        made = (HERE / "tables" / f"{found[1]}.md").read_text(encoding="utf-8").rstrip("\n")
        return f"<!-- {found[1]} -->\n\n{made}\n\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->.*?<!-- end -->", table, text, flags=re.S)


if __name__ == "__main__":
    page = HERE / "README.md"
    page.write_text(fill_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
