"""Every question in evals/ can be answered with our tools, in few calls; and the driver for models works."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from clients.apis import Call, Request, Say, Turn
from clients.models import ScriptedModel

from evals import payloads
from evals.calls import Session, open_session
from evals.models import CONVERSATIONS
from evals.questions import is_right, parse_answer
from evals.run import (
    MAX_CALLS,
    QUESTIONS,
    REFERENCE_BYTES,
    REFERENCE_CALLS,
    SYSTEM,
    Outcome,
    ask_model,
    ask_reference,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with open_session() as session:
        yield session


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_script_answers_with_few_calls(session: Session, name: str) -> None:
    outcome = ask_reference(session, QUESTIONS[name])
    assert outcome.is_right, outcome
    assert 1 <= outcome.calls <= REFERENCE_CALLS
    assert outcome.bytes_read <= REFERENCE_BYTES


def test_there_are_questions_of_every_kind_about_every_output() -> None:
    assert len(QUESTIONS) >= 40
    assert {output for question in QUESTIONS.values() for output in question.outputs} == set(payloads.NAMES)
    kinds = {question.kind for question in QUESTIONS.values()}
    assert kinds == {"lookup", "needle", "count", "group", "join", "absent", "page"}


def ask_scripted(
    session: Session, api: str, turns: list[tuple[str, dict[str, Any]] | str]
) -> tuple[Outcome, list[bytes]]:
    """Ask a scripted model for the number of errors in the log. A turn is a call or a text; the last one repeats."""
    question = QUESTIONS["log-errors"]
    handle = session.tools_for(question.outputs).handle
    requests: list[Request] = []

    def respond(request: Request) -> Turn:
        requests.append(request)
        turn = turns[min(len(requests), len(turns)) - 1]
        if isinstance(turn, str):
            return Say(turn)
        name, arguments = turn
        return Call(f"call_{len(requests)}", request.tools[name], {"output_handle": handle, **arguments})

    model = ScriptedModel(respond)
    with model.running():
        conversation = CONVERSATIONS[api](model.url, "scripted", SYSTEM, session.definitions)
        outcome = ask_model(session, question, conversation)
    assert not model.failures
    return outcome, [body for _, body in model.requests]


@pytest.mark.parametrize("api", CONVERSATIONS)
def test_a_model_gets_descriptor_question_and_tools(session: Session, api: str) -> None:
    search = ("output_search", {"pattern": " ERROR ", "count_only": True})
    outcome, bodies = ask_scripted(session, api, [search, "They are\n**ANSWER: 755**"])
    assert (outcome.is_right, outcome.calls, outcome.answer) == (True, 1, outcome.expected)
    assert 0 < outcome.bytes_read < 1000
    first, second = (json.dumps(json.loads(body), ensure_ascii=False) for body in bodies)
    assert "How many lines have the level ERROR?" in first
    assert session.describe("log")[:100] in json.loads(bodies[0])["messages"][-1]["content"]
    assert "output_fetch" in first
    assert "get_log" not in json.dumps(json.loads(bodies[0])["tools"])
    assert "total_matches" not in first.partition("messages")[2]
    assert "total_matches" in second.partition("messages")[2]


@pytest.mark.parametrize("api", CONVERSATIONS)
def test_an_error_of_a_tool_reaches_the_model(session: Session, api: str) -> None:
    wrong = ("output_search", {"pattern": "(", "regex": True})
    outcome, bodies = ask_scripted(session, api, [wrong, "ANSWER: 754"])
    assert (outcome.is_right, outcome.calls, outcome.answer) == (False, 1, 754)
    assert b"invalid_argument" in bodies[1]


def test_a_model_without_an_answer_has_failed(session: Session) -> None:
    outcome, _ = ask_scripted(session, "openai", ["I do not know."])
    assert not outcome.is_right
    assert "no line begins with" in (outcome.problem or "")


def test_a_model_that_never_stops_is_stopped(session: Session) -> None:
    outcome, _ = ask_scripted(session, "anthropic", [("output_search", {"pattern": "x", "count_only": True})])
    assert (outcome.is_right, outcome.calls) == (False, MAX_CALLS)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("ANSWER: 3", 3),
        ('so\n`ANSWER: "a"`\n', "a"),
        ("ANSWER: 1\nno:\n**ANSWER:** [1, 2.5]", [1, 2.5]),
        ('ANSWER: {"a": true}', {"a": True}),
    ],
)
def test_reads_the_last_answer(text: str, answer: object) -> None:
    assert parse_answer(text) == answer


@pytest.mark.parametrize("text", ["", "3", "ANSWER: three", "the ANSWER: 3"])
def test_refuses_a_text_without_an_answer(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - also JSON's own error
        parse_answer(text)


@pytest.mark.parametrize(
    ("answer", "expected", "verdict"),
    [
        (2.61, 2.6149, True),
        (2.63, 2.6149, False),
        (3, 3, True),
        (3.0, 3, True),
        (3.1, 3, False),
        (9_007_199_254_740_992.0, 9_007_199_254_740_993, False),
        (True, 1, False),
        (1, True, False),
        ("3", 3, False),
        (9_007_199_254_740_993, 9_007_199_254_740_992, False),
        ([1, "a"], [1, "a"], True),
        ([1], [1, 2], False),
        ({"a": 1.004}, {"a": 1.0}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (None, 0, False),
    ],
)
def test_judges_answers(answer: object, expected: object, verdict: bool) -> None:
    assert is_right(answer, expected) is verdict
