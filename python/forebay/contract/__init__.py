"""Responses that no model chokes on: small, of one shape, and with a reference to what they leave out."""

from forebay.contract.artifacts import retrieve_artifact, store_artifact
from forebay.contract.decorator import contracted
from forebay.contract.limits import BUDGETS, Category, ResponseLimits, category_of
from forebay.contract.listing import paginated_list
from forebay.contract.response import Response, wrap_response
from forebay.contract.words import create_summary

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
