"""Collect the pages of the site: committed pages, with their links rewritten, and generated pages."""

import os
import posixpath
import re
from pathlib import Path

from docs_site.layout import DOCS, REPOSITORY, REPOSITORY_URL, ROOT_PAGES
from docs_site.measured import format_costs
from docs_site.reference import build_reference
from docs_site.signatures import format_definition

__all__ = ["SiteError", "collect_pages", "find_title", "rewrite_links"]

_LINK = re.compile(r"(?P<start>\]\()(?P<target>[^()\s]+)(?P<end>\))")
_FENCE = re.compile(r"^( *)(```+)[^\n]*\n.*?^\1\2[ ]*$", re.MULTILINE | re.DOTALL)
_SIGNATURE = re.compile(r"^<!-- signature: (?P<names>[\w., ]+) -->$", re.MULTILINE)
_COSTS = re.compile(r"^<!-- measured: (?P<verb>[\w-]+) -->$", re.MULTILINE)


class SiteError(Exception):
    """An error in the pages that must be fixed before the site can be built."""


def collect_pages() -> dict[str, str]:
    """Return the Markdown of all pages by their path on the site."""
    sources = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*.md"))}
    sources |= {page: REPOSITORY / name for name, page in ROOT_PAGES.items()}
    generated = build_reference()
    pages = {}
    for page, path in sources.items():
        text = rewrite_links(path.read_text(encoding="utf-8"), path, page, sources, generated)
        pages[page] = _expand_comments(text, page)
    return pages | generated


def find_title(text: str, page: str) -> str:
    """Return the text of the first heading of a page."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    if found is None:
        raise SiteError(f"{page} has no heading: begin it with a line `# Title`")
    return found[1].replace("`", "")


def _expand_comments(text: str, page: str) -> str:
    """Replace the comments `signature` and `measured` with signatures and measured costs."""

    def show(match: re.Match[str]) -> str:
        return "\n".join(format_definition(name.strip(), 0) for name in match["names"].split(","))

    try:
        text = _SIGNATURE.sub(show, text)
        return _COSTS.sub(lambda match: format_costs(match["verb"]), text)
    except LookupError as error:
        raise SiteError(f"{page}: {error}") from None


def rewrite_links(text: str, path: Path, page: str, sources: dict[str, Path], generated: dict[str, str]) -> str:
    """Rewrite links to files: a link to a page leads to it on the site, and any other to the repository on GitHub."""
    pages = {source.resolve(): name for name, source in sources.items()}
    pages |= {(DOCS / name).resolve(): name for name in generated}

    def rewrite(match: re.Match[str]) -> str:
        target, hash_sign, anchor = match["target"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        file = Path(os.path.normpath(path.resolve().parent / target))
        if file in pages:
            relative = posixpath.relpath(pages[file], posixpath.dirname(page) or ".")
        elif file.is_relative_to(DOCS) and file.is_file():
            relative = posixpath.relpath(file.relative_to(DOCS).as_posix(), posixpath.dirname(page) or ".")
        elif file.exists() and file.is_relative_to(REPOSITORY):
            kind = "tree" if file.is_dir() else "blob"
            relative = f"{REPOSITORY_URL}/{kind}/main/{file.relative_to(REPOSITORY).as_posix()}"
        else:
            raise SiteError(f"{page}: the link to {match['target']} leads to no file")
        return f"{match['start']}{relative}{hash_sign}{anchor}{match['end']}"

    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(rewrite, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(rewrite, text[end:])])
