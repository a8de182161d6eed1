"""JSON Schemas to generate, and what a validator says of a value."""

from typing import Any

import jsonschema_rs


def fits(schema: Any, value: Any) -> bool:
    return bool(jsonschema_rs.validator_for(schema, offline=True).is_valid(value))
