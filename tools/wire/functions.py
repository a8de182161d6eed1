"""Functions that `serve` offers as tools: an upstream of the kind `python`."""

import asyncio
import time
from dataclasses import dataclass

from pydantic import BaseModel

__all__ = ["add", "fail", "list_items", "shout", "sleep", "text"]


class Sum(BaseModel):
    total: int


@dataclass
class Item:
    id: int
    label: str


def add(a: int, b: int = 1) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


async def shout(words: str) -> str:
    await asyncio.sleep(0)
    return words.upper()


def list_items(count: int) -> list[Item]:
    """List items."""
    return [Item(id=number, label=f"étiquette {number}") for number in range(count)]


def text(size: int) -> str:
    """Clashes with a tool of the same name elsewhere."""
    return "function text " * (size // 14)


def fail() -> None:
    raise RuntimeError("it failed")


def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"
