"""What the site has besides the pages of this folder: the experiments' files that pages link to.

In the repository they lie beside this folder, in the site below it, so that a link
has one `../` less there.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"\]\(\.\./((?:\.\./)*)(experiments/[^)#]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the files that pages link to."""
    linked = {
        place
        for file in files.documentation_pages()
        for _, place in _LINK.findall(file.content_string)
    }
    for place in sorted(linked):
        files.append(File.generated(config, place, abs_src_path=str(ROOT / place)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leads such links to where the files are in the site."""
    return _LINK.sub(r"](\1\2)", markdown)
