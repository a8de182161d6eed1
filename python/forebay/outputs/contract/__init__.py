"""Small responses of a fixed shape, with a reference to the full payload when something was left out."""

from typing import TYPE_CHECKING

from forebay.outputs.contract.artifacts import retrieve_artifact, store_artifact
from forebay.outputs.contract.limits import BUDGETS, Category, ResponseLimits, category_of
from forebay.outputs.contract.response import Response, wrap_response
from forebay.outputs.contract.text import create_summary

if TYPE_CHECKING:
    from forebay.outputs.contract.decorator import contracted
    from forebay.outputs.contract.lists import paginated_list

__all__ = [
    "BUDGETS",
    "Category",
    "Response",
    "ResponseLimits",
    "category_of",
    "contracted",
    "create_summary",
    "paginated_list",
    "retrieve_artifact",
    "store_artifact",
    "wrap_response",
]

# Imported on first use: the gateway needs neither, and they need modules that take milliseconds to import.
_LAZY_IMPORTS = {"contracted": "decorator", "paginated_list": "lists"}


def __getattr__(name: str) -> object:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_LAZY_IMPORTS[name]}"), name)
    globals()[name] = value
    return value
