"""The page of recipes and the files it links to."""

import ast
import re
from pathlib import Path

import pytest
from running import EXAMPLES

DOCS = EXAMPLES.parent / "docs"
PAGE = (DOCS / "recipes.md").read_text(encoding="utf-8")
RECIPES = sorted((EXAMPLES / "recipes").glob("*.py"))

MAX_LINES = 140
"""A file that is longer is no recipe."""


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", PAGE)
    assert len(links) > 10
    assert [link for link in links if not (DOCS / link).exists()] == []
    anchors = {re.sub(r"[^a-z0-9 ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"## (.+)", PAGE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) == anchors


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_a_recipe_is_short_and_says_how_to_run_it(recipe: Path) -> None:
    text = recipe.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    docstring = ast.get_docstring(ast.parse(text)) or ""
    assert "pip install 'forebay[sql]'" in docstring
    assert f"python {recipe.name} " in docstring
    assert f"(../examples/recipes/{recipe.name})" in PAGE
