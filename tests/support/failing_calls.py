"""Calls of operations that fail."""

from typing import Any

import pytest
from forebay.operations import CallContext, CallError, OperationRegistry
from forebay.operations.envelope import unwrap


async def failing(registry: OperationRegistry, operation: str, given: Any = None, **context: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        await registry.execute(operation, given or {}, CallContext(**context))
    return caught.value


async def told(registry: OperationRegistry) -> Any:
    """What the server knows of what it was asked."""
    return unwrap(await registry.execute("up.told", {}))
