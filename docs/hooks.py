"""Pages and files of the site that are not in this folder.

The experiments' files that pages link to: in the repository they lie beside this folder, in the
site below it, so that a link has one `../` less there.

The pages of the command line, which `flags.py` makes of the parser.

A search that needs no server: `search.js` in the place of the generator's own, and its index.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import flags

ROOT = Path(__file__).parents[1]
FLAGS = "::: flags"
_LINK = re.compile(r"\]\(\.\./((?:\.\./)*)(experiments/[^)#]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the files that pages link to, and the pages of commands."""
    linked = {
        place
        for file in files.documentation_pages()
        for _, place in _LINK.findall(file.content_string)
    }
    for place in sorted(linked):
        files.append(File.generated(config, place, abs_src_path=str(ROOT / place)))
    for name, text in flags.pages().items():
        files.append(File.generated(config, f"reference/flags/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Changes such links to the files' places in the site, and lists the commands."""
    return _LINK.sub(r"](\1\2)", markdown).replace(FLAGS, flags.listed())


def on_post_build(config: Any) -> None:
    """Writes the search: each section with the name that the menu has for its page."""
    folder = Path(config.site_dir) / "search"
    sections = json.loads((folder / "search_index.json").read_text())["docs"]
    pages = {one["location"]: one["title"] for one in sections if "#" not in one["location"]}
    for section in sections:
        section["page"] = pages[section["location"].partition("#")[0]]
    # A page that comes whole, before its sections, is left out.
    parts = [one for one in sections if "#" in one["location"]]
    (folder / "index.js").write_text(f"const searchSections = {json.dumps(parts)};\n")
    (folder / "main.js").write_text((ROOT / "docs" / "search.js").read_text())
