"""The documentation site: pages are complete, and dead links and outside resources are noticed."""

import functools
import re
from pathlib import Path

import forebay
import pytest
from docs_site.check import find_problems
from docs_site.layout import DOCS, list_sections
from docs_site.llms import write_llms_files
from docs_site.signatures import find_definition, list_members
from docs_site.stage import SiteError, collect_pages, rewrite_links
from forebay.config.options import OPTIONS


@functools.cache
def pages() -> dict[str, str]:
    return collect_pages()


def test_every_public_name_is_in_the_reference() -> None:
    reference = pages()["reference/functions.md"] + pages()["reference/store.md"] + pages()["reference/errors.md"]
    names = [name for name in forebay.__all__ if name != "__version__"]
    assert [name for name in names if f"`{name}`" not in reference and f"forebay.{name}`" not in reference] == []


def test_every_command_and_every_option_is_in_the_reference() -> None:
    commands = re.findall(r"^## `forebay ([a-z-]+)`", pages()["reference/commands.md"], re.MULTILINE)
    assert {"put", "fetch", "query", "wrap", "serve", "adopt", "lint-tools"} <= {*commands}
    options = pages()["reference/options.md"]
    assert [option.flag for option in OPTIONS.values() if f"`{option.flag}`" not in options] == []


def test_a_page_of_a_verb_has_a_signature_edge_cases_and_costs() -> None:
    verbs = {path: text for path, text in pages().items() if path.startswith("verbs/") and path != "verbs/index.md"}
    assert len(verbs) >= 15
    for path, text in verbs.items():
        assert "## Edge cases\n" in text, path
        assert "```python\ndef " in text or path == "verbs/where.md", path
        assert "## Cost\n" in text or "Conditions hold" in text, path


def test_signatures_are_those_of_the_code() -> None:
    assert find_definition("get").code == "def get(data: Buffer | str, pointer: str) -> bytes"
    assert find_definition("Match.path").code == "path: str | None"
    assert find_definition("Options.on_full").code == "on_full: Literal['refuse', 'evict'] = 'refuse'"
    assert "    max_bytes: int = 65536,\n" in find_definition("Store.fetch").code
    assert "Store.fetch" in list_members("Store")
    with pytest.raises(LookupError, match="is not defined"):
        find_definition("Store.fetsch")


def test_a_page_without_a_place_follows_the_guides() -> None:
    sections = {section.title: section.pages for section in list_sections({*pages(), "new.md"})}
    assert list(sections["Guides"])[-1] == "new.md"
    assert {path for placed in sections.values() for path in placed} == {*pages(), "new.md"}


def test_links_lead_to_pages_or_to_the_repository() -> None:
    rewritten = rewrite_links(
        "[a](../SECURITY.md#sql) [b](../python/forebay/errors.py) [c](store.md)\n\n```text\n[e](no.md)\n```\n",
        DOCS / "query.md",
        "query.md",
        {"project/security.md": DOCS.parent / "SECURITY.md", "store.md": DOCS / "store.md"},
        {},
    )
    assert "[a](project/security.md#sql)" in rewritten
    assert "[b](https://github.com/forebay/forebay/blob/main/python/forebay/errors.py)" in rewritten
    assert "[c](store.md)" in rewritten
    assert "[e](no.md)" in rewritten
    with pytest.raises(SiteError, match="leads to no file"):
        rewrite_links("[f](nowhere.md)", DOCS / "query.md", "query.md", {}, {})


SITE = {
    "index.html": '<a href="guide/page.html#here">a</a> <img src="picture.png"> <a href="https://example.com/">b</a>',
    "guide/page.html": '<h2 id="here"></h2><a href="../index.html">c</a><link rel="stylesheet" href="../style.css">',
    "style.css": "a { background: url(data:image/png;base64,AA==) }",
    "picture.png": "",
}


@pytest.mark.parametrize(
    ("path", "content", "problem"),
    [
        ("index.html", '<a href="guide/none.html">', "index.html links to guide/none.html: there is no such file"),
        ("index.html", '<a href="guide/page.html#no">', "index.html links to guide/page.html#no"),
        ("a.html", '<img src="no.png"><h2 id="here">', "a.html links to no.png: there is no such file"),
        ("picture.html", '<script src="https://cdn.example/a.js">', "picture.html loads https://cdn.example/a.js"),
        ("picture.html", '<link rel="preconnect" href="//fonts.example">', "picture.html loads //fonts.example"),
        ("picture.html", "<style>@import 'http://a.example/b.css'</style>", "picture.html loads http://a.example/b.css"),
        ("style.css", "@font-face { src: url('https://f.example/a.woff2') }", "style.css loads https://f.example/a.woff2"),
    ],
)  # fmt: skip
def test_problems_of_a_site_are_found(tmp_path: Path, path: str, content: str, problem: str) -> None:
    for name, text in {**SITE, path: content}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert [found for found in find_problems(tmp_path) if found.startswith(problem)]


def test_a_right_site_has_no_problems(tmp_path: Path) -> None:
    for name, text in SITE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert find_problems(tmp_path) == []


def test_llms_files_have_every_page(tmp_path: Path) -> None:
    write_llms_files(tmp_path, list_sections(set(pages())), pages())
    listed = (tmp_path / "llms.txt").read_text(encoding="utf-8")
    whole = (tmp_path / "llms-full.txt").read_text(encoding="utf-8")
    assert listed.startswith("# forebay\n\n> ")
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", listed, re.MULTILINE)
    assert sorted(links) == sorted(pages())
    assert all((tmp_path / link).is_file() for link in links)
    assert all(text.strip() in whole for text in pages().values())
