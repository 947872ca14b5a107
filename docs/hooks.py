"""Make pages that are written for a code host work on the site.

On a code host pages may link to files of the repository outside docs/. On the site, a link to a picture or table of
results/ copies that file, a link to any other file outside docs/ becomes plain words, and a line that is nothing but a
link to a Markdown file outside docs/ becomes the content of that file. Each notebook of docs/notebooks becomes a page.
Where docs/make_gallery.py has made pages, they are on the site, and their pictures in docs/gallery.md lead to them.
"""

import re
import runpy
from pathlib import Path

from mkdocs.structure.files import File

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)")
LINK_ALONE = re.compile(r"^\[[^\]]*\]\(([^)]+\.md)\)$", flags=re.M)
GALLERY = ROOT / "build" / "gallery"
GALLERY_PICTURE = re.compile(r"^!\[[^\]]*\]\(images/gallery_(\w+)\.jpg\)$", flags=re.M)
SHOWN = ".html", ".png", ".gif", ".jpg", ".webp"
"""What a browser shows of the results in the gallery; their images and transforms stay behind."""
PAGES = {ROOT / "results" / "README.md": "results.md", ROOT / "README.md": "index.md"}


def on_files(files, config):
    """The files of the site, with a page for every notebook (notebook_pair.md of notebooks/pair.ipynb), and with what
    there is of the gallery."""
    make_page = runpy.run_path(str(DOCS / "run_notebooks.py"))["page"]
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebook_{path.stem}.md", content=make_page(path)))
    for path in sorted(GALLERY.rglob("*")):
        if path.suffix in SHOWN:
            place = f"gallery/{path.relative_to(GALLERY).as_posix()}"
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """The page, with the files it includes and with links that work on the site."""
    folder = (DOCS / page.file.src_uri).parent
    whole = LINK_ALONE.sub(lambda found: include(found, folder, config, files), markdown)
    return GALLERY_PICTURE.sub(link_picture, relink(whole, folder, config, files))


def link_picture(found):
    """A picture of a page of the gallery, as a link to that page if it was made."""
    made = [name for name in ("report.html", "index.html") if (GALLERY / found[1] / name).is_file()]
    return f"[{found[0]}](gallery/{found[1]}/{made[0]})" if made else found[0]


def include(found, folder, config, files):
    """The content, without its title, of the file that a line of its own links to."""
    path = (folder / found[1]).resolve()
    if path.is_relative_to(DOCS) or not path.is_file():
        return found[0]
    return relink(path.read_text(encoding="utf-8").partition("\n")[2], path.parent, config, files)


def relink(markdown, folder, config, files):
    """Turn links that are relative to a folder into links relative to docs/; blocks of code stay as they are."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    parts[::2] = [LINK.sub(lambda found: convert_link(found, folder, config, files), part) for part in parts[::2]]
    return "".join(parts)


def convert_link(found, folder, config, files):
    """One link as it must be on the site."""
    mark, words, target, anchor = found.groups()
    path = (folder / target).resolve()
    if path.is_relative_to(DOCS):
        return f"{mark}[{words}]({path.relative_to(DOCS).as_posix()}{anchor or ''})"
    if path in PAGES:
        return f"[{words}]({PAGES[path]}{anchor or ''})"
    if path.is_relative_to(ROOT / "results") and path.is_file() and path.suffix != ".md":
        return f"{mark}[{words}]({copy_to_site(path, config, files)})"
    return words


def copy_to_site(path, config, files):
    """Copy a file of results/ to the site; its place there."""
    place = path.relative_to(ROOT).as_posix()
    if files.get_file_from_path(place) is None:
        files.append(File.generated(config, place, abs_src_path=str(path)))
    return place
