"""Write `llms.txt` and `llms-full.txt`: the site for a model, from the same pages in the same order."""

import re
from pathlib import Path

from docs_site.layout import Section
from docs_site.stage import find_title

__all__ = ["write_llms_files"]

_INTRODUCTION = """\
# forebay

> forebay stores tool outputs that are too large for a model's context under a handle, gives the model a small
> descriptor, and lets it read on by item, line, byte, path, condition, search or SQL. It is a Python library, a
> gateway in front of any MCP server, and a command line.

Each page is Markdown. `llms-full.txt` has all of them in one file.
"""

_MAX_SUMMARY_CHARS = 160


def write_llms_files(folder: Path, sections: list[Section], pages: dict[str, str]) -> None:
    """Write both files, and the Markdown of each page, which `llms.txt` links to."""
    lines, texts = [_INTRODUCTION], [_INTRODUCTION]
    for section in sections:
        lines.append(f"\n## {section.title}\n\n")
        for path in section.pages:
            text = pages[path]
            lines.append(f"- [{find_title(text, path)}]({path}): {_summarize(text)}\n")
            texts.append(f"\n<!-- {path} -->\n\n{text.strip()}\n")
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    (folder / "llms.txt").write_text("".join(lines), encoding="utf-8")
    (folder / "llms-full.txt").write_text("".join(texts), encoding="utf-8")


def _summarize(text: str) -> str:
    """Return the first sentence of a page, without its links."""
    _, _, body = text.lstrip().partition("\n")
    first = next((part for part in re.split(r"\n{2,}", body.strip()) if not part.startswith(("#", "```", "|"))), "")
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(first.split()))
    sentence = re.split(r"(?<=[.:])\s", plain, maxsplit=1)[0].rstrip(":.")
    return sentence if len(sentence) <= _MAX_SUMMARY_CHARS else f"{sentence[: _MAX_SUMMARY_CHARS - 1]}…"
