"""Pages that read the same on a code host and on the site.

There they may link to files of the repository outside docs/. On the site a link to a picture or table of results/
brings the file along, a link to any other file outside leaves its words alone, and a line that is nothing but a link to
a Markdown file outside docs/ becomes that file.
"""

import re
from pathlib import Path

from mkdocs.structure.files import File

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)")
ALONE = re.compile(r"^\[[^\]]*\]\(([^)]+\.md)\)$", flags=re.M)
PAGES = {ROOT / "results" / "README.md": "results.md", ROOT / "README.md": "index.md"}


def on_page_markdown(markdown, page, config, files):
    """The page, with what it includes and with links that hold on the site."""
    folder = (DOCS / page.file.src_uri).parent
    whole = ALONE.sub(lambda found: included(found, folder, config, files), markdown)
    return relinked(whole, folder, config, files)


def included(found, folder, config, files):
    """The file that a line of its own links to, less its title."""
    path = (folder / found[1]).resolve()
    if path.is_relative_to(DOCS) or not path.is_file():
        return found[0]
    return relinked(path.read_text(encoding="utf-8").partition("\n")[2], path.parent, config, files)


def relinked(markdown, folder, config, files):
    """Links, given relative to a folder, relative to docs/; blocks of code are left as they are."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    parts[::2] = [LINK.sub(lambda found: link(found, folder, config, files), part) for part in parts[::2]]
    return "".join(parts)


def link(found, folder, config, files):
    """One link as the site has it."""
    mark, words, target, anchor = found.groups()
    path = (folder / target).resolve()
    if path.is_relative_to(DOCS):
        return f"{mark}[{words}]({path.relative_to(DOCS).as_posix()}{anchor or ''})"
    if path in PAGES:
        return f"[{words}]({PAGES[path]}{anchor or ''})"
    if path.is_relative_to(ROOT / "results") and path.is_file():
        return f"{mark}[{words}]({resample_image(path, config, files)})"
    return words


def resample_image(path, config, files):
    """The place on the site of a file of results/, which is copied there."""
    place = path.relative_to(ROOT).as_posix()
    if files.get_file_from_path(place) is None:
        files.append(File.generated(config, place, abs_src_path=str(path)))
    return place
