"""The order of the pages on the site, and their titles in the navigation."""

from pathlib import Path
from typing import NamedTuple

__all__ = ["DOCS", "REPOSITORY", "REPOSITORY_URL", "ROOT_PAGES", "Section", "list_sections"]

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
REPOSITORY_URL = "https://github.com/forebay/forebay"

ROOT_PAGES = {
    "SECURITY.md": "project/security.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
"""Pages in the root of the repository, where GitHub looks for them, and their paths on the site."""


class Section(NamedTuple):
    """A section of the navigation. `pages` has titles by path; for an empty title, the page's own heading is used."""

    title: str
    pages: dict[str, str]


_START = {
    "index.md": "Home",
    "start.md": "Getting started",
    "install.md": "Install",
    "alternatives.md": "The alternatives",
    "speed.md": "How fast",
}

_GUIDES = {
    "agents.md": "Read large outputs well",
    "servers.md": "In a Python server",
    "gateway.md": "The gateway",
    "operators.md": "Operate a gateway",
    "cli.md": "The command line",
    "store.md": "The store",
    "guarantees.md": "What the store guarantees",
    "functions.md": "The functions",
    "query.md": "SQL over outputs",
    "contract.md": "The response contract",
    "operations.md": "Operations",
    "scale.md": "Replicas and scale",
    "clients.md": "Clients",
    "recipes.md": "Recipes",
    "dashboard.md": "The dashboard",
    "view.md": "Look at an output",
    "apps.md": "Apps in clients",
    "bench.md": "Benchmarks",
    "windows.md": "Windows",
}
"""Guides in their order. A page of `docs/` that no section names comes after them."""

_VERBS = {
    "verbs/index.md": "Which verb?",
    "verbs/put.md": "put",
    "verbs/fetch.md": "fetch",
    "verbs/where.md": "where",
    "verbs/search.md": "search",
    "verbs/query.md": "query",
    "verbs/outline.md": "outline",
    "verbs/preview.md": "preview",
    "verbs/truncate.md": "truncate",
    "verbs/get.md": "get, locate",
    "verbs/project.md": "project",
    "verbs/patch.md": "patch",
    "verbs/index_items.md": "index and read",
    "verbs/export.md": "export",
    "verbs/manage.md": "stat, list, delete, sweep",
    "verbs/mirror.md": "mirror",
    "verbs/journal.md": "journal",
}

_REFERENCE = {
    "reference/functions.md": "Functions",
    "reference/store.md": "Store",
    "reference/errors.md": "Errors",
    "reference/commands.md": "Command line",
    "reference/options.md": "Options",
    "reference/tools.md": "Tools",
    "format.md": "The stored file",
}

_PROJECT = {
    "decisions.md": "Decisions",
    "releasing.md": "Releases and support",
    "project/security.md": "Security",
    "project/architecture.md": "Architecture",
    "project/contributing.md": "Contributing",
    "project/changelog.md": "Changelog",
}


def list_sections(available: set[str]) -> list[Section]:
    """Return the sections with the available pages. Pages that no section names come after the guides."""
    named = _START | _GUIDES | _VERBS | _REFERENCE | _PROJECT
    others = dict.fromkeys(sorted(available - named.keys()), "")
    sections = [
        Section("Start", _START),
        Section("Guides", _GUIDES | others),
        Section("Verbs", _VERBS),
        Section("Reference", _REFERENCE),
        Section("Project", _PROJECT),
    ]
    return [
        Section(title, found)
        for title, pages in sections
        if (found := {path: name for path, name in pages.items() if path in available})
    ]
