"""Small responses of a fixed shape, with a reference to the full payload when something was left out."""

from forebay.outputs.contract.artifacts import retrieve_artifact, store_artifact
from forebay.outputs.contract.decorator import contracted
from forebay.outputs.contract.limits import BUDGETS, Category, ResponseLimits, category_of
from forebay.outputs.contract.lists import paginated_list
from forebay.outputs.contract.response import Response, wrap_response
from forebay.outputs.contract.text import create_summary

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
