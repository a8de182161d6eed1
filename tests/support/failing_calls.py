"""Calls of operations that fail."""

from typing import Any

import pytest
from forebay.envelope import unwrap
from forebay.operations import CallContext, CallError, OperationRegistry


async def call_error(registry: OperationRegistry, operation: str, arguments: Any = None, **context: Any) -> CallError:
    """Call an operation that fails, and return its error."""
    with pytest.raises(CallError) as caught:
        await registry.execute(operation, arguments or {}, CallContext(**context))
    return caught.value


async def server_state(registry: OperationRegistry) -> Any:
    """Return what the test server has recorded, such as its pid and its calls."""
    return unwrap(await registry.execute("up.told", {}))
