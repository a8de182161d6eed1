"""A question about stored outputs, with its right answer and a scripted way to it."""

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

from evals.calls import OutputTools

ANSWER_PREFIX = "ANSWER:"
"""What the line with a model's answer begins with; the rest of the line is JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """One question, of one kind, about one or more outputs."""

    id: str
    kind: str
    """`lookup`, `needle`, `count`, `group`, `join`, `absent` or `page`."""
    outputs: tuple[str, ...]
    """The outputs it is about; see `payloads.NAMES`."""
    text: str
    expected: Callable[..., Any]
    """Computes the answer from the outputs as Python has them."""
    reference: Callable[[OutputTools], Any]
    """Answers the question with our tools, by a script."""


def is_right(answer: Any, expected: Any) -> bool:
    """Return whether an answer is the expected one. Numbers may differ by rounding to two digits."""
    if isinstance(expected, bool) or expected is None or isinstance(answer, bool) or answer is None:
        return answer is expected
    if isinstance(expected, float):
        return isinstance(answer, int | float) and math.isclose(answer, expected, rel_tol=1e-9, abs_tol=0.0051)
    if isinstance(expected, list):
        return (
            isinstance(answer, list)
            and len(answer) == len(expected)
            and all(is_right(given, wanted) for given, wanted in zip(answer, expected, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(answer, dict)
            and answer.keys() == expected.keys()
            and all(is_right(answer[key], value) for key, value in expected.items())
        )
    is_same_type = isinstance(answer, int | float) if isinstance(expected, int) else isinstance(answer, type(expected))
    return is_same_type and bool(answer == expected)


def parse_answer(text: str) -> Any:
    """Return the answer in the last line that has one. Raises `ValueError` if there is none, or it is not JSON."""
    lines = [line.strip().strip("*`") for line in text.splitlines()]
    answers = [line.removeprefix(ANSWER_PREFIX) for line in lines if line.startswith(ANSWER_PREFIX)]
    if not answers:
        raise ValueError(f"no line begins with {ANSWER_PREFIX}")
    return json.loads(answers[-1].strip().strip("*`"))
