"""Responses that no model chokes on: small, of one shape, and with a reference to what they leave out."""

from headgate.contract.artifacts import retrieve_artifact, store_artifact
from headgate.contract.decorator import contracted
from headgate.contract.limits import BUDGETS, Category, ResponseLimits, category_of
from headgate.contract.listing import paginated_list
from headgate.contract.response import Response, wrap_response
from headgate.contract.words import create_summary

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
