"""Build the documentation site: `python -m docs_site.build`, or `make docs`.

Collects the pages of `docs/` and the generated pages in `target/docs-pages`, from where zensical builds `target/docs`.
A dead link, a missing anchor or a resource from another host fails the build.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from docs_site.check import find_problems
from docs_site.layout import DOCS, REPOSITORY, REPOSITORY_URL, Section, list_sections
from docs_site.llms import write_llms_files
from docs_site.stage import SiteError, collect_pages, find_title

__all__ = ["build_site"]

_CONFIG = """\
[project]
site_name = "forebay"
site_description = "Large tool outputs without a flooded context"
docs_dir = "docs"
site_dir = "site"
use_directory_urls = false
copyright = 'MIT licensed · <a href="{repository}">source</a>'
extra_css = ["site.css"]
nav = {nav}

[project.theme]
language = "en"
font = false
icon.logo = "lucide/waves"
features = [
  "content.code.copy",
  "navigation.footer",
  "navigation.indexes",
  "navigation.sections",
  "navigation.tabs",
  "navigation.top",
  "search.highlight",
  "toc.follow",
]

[[project.theme.palette]]
media = "(prefers-color-scheme)"
toggle.icon = "lucide/sun-moon"
toggle.name = "Use the light colours"

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Use the dark colours"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Use the colours of the system"

[project.markdown_extensions]
admonition = {{}}
attr_list = {{}}
tables = {{}}
toc.permalink = true
pymdownx.details = {{}}
pymdownx.highlight.pygments_lang_class = true
pymdownx.inlinehilite = {{}}
pymdownx.superfences = {{}}

[project.markdown_extensions.toc.slugify]
object = "pymdownx.slugs.slugify"
kwds.case = "lower"
"""


def build_site(site: Path) -> int:
    """Build the site into a folder, replacing its content, and return the number of pages. Raises `SiteError`."""
    pages = collect_pages()
    sections = list_sections(set(pages))
    work = site.with_name(f"{site.name}-pages")
    for folder in (work, site):
        shutil.rmtree(folder, ignore_errors=True)
    for path, text in pages.items():
        target = work / "docs" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for file in DOCS.rglob("*"):
        if file.is_file() and file.suffix != ".md":
            target = work / "docs" / file.relative_to(DOCS)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    shutil.copyfile(Path(__file__).with_name("site.css"), work / "docs" / "site.css")
    config = work / "zensical.toml"
    nav = _format_nav(sections, pages)
    text = _CONFIG.format(nav=nav, repository=REPOSITORY_URL)
    config.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--config-file", str(config), "--strict"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=work)
    if done.returncode != 0:
        raise SiteError(f"zensical failed:\n{done.stdout}{done.stderr}")
    (work / "site").rename(site)
    write_llms_files(site, sections, pages)
    if problems := find_problems(site):
        raise SiteError("\n".join(problems))
    return len(pages)


def _format_nav(sections: list[Section], pages: dict[str, str]) -> str:
    """Return the navigation in TOML."""
    groups = []
    for section in sections:
        entries = [
            f"{{ {json.dumps(title or find_title(pages[path], path), ensure_ascii=False)} = {json.dumps(path)} }}"
            for path, title in section.pages.items()
        ]
        groups.append(f"{{ {json.dumps(section.title)} = [{', '.join(entries)}] }}")
    return f"[{', '.join(groups)}]"


def main() -> None:
    """Build the site, and exit with the problems if there are any."""
    site = REPOSITORY / "target" / "docs"
    try:
        count = build_site(site)
    except SiteError as error:
        sys.exit(f"docs: {error}")
    unchecked = sum(page.read_text(encoding="utf-8").count("\n*Not checked: ") for page in DOCS.rglob("*.md"))
    print(f"{count} pages in {site}; {unchecked} of their code blocks are checked by no test")


if __name__ == "__main__":
    main()
