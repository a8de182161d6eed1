"""Ask a model the questions, with forebay's tools alone, and report accuracy, calls and bytes read.

python -m evals.run                                       the scripted reference: no model
python -m evals.run --api anthropic --url URL --model M   a model; the key is ANTHROPIC_API_KEY or OPENAI_API_KEY
"""

import argparse
import dataclasses
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from evals import payloads
from evals.calls import CallFailed, Session, open_session
from evals.document_questions import DOCUMENT_QUESTIONS
from evals.models import CONVERSATIONS, Conversation
from evals.questions import ANSWER_PREFIX, Question, is_right, parse_answer
from evals.record_questions import RECORD_QUESTIONS

QUESTIONS = {question.id: question for question in (*RECORD_QUESTIONS, *DOCUMENT_QUESTIONS)}

MAX_CALLS = 20
"""Maximum calls that a model gets for one question."""

REFERENCE_CALLS = 3
REFERENCE_BYTES = 8192
"""Every question can be answered with this many calls, which return this many bytes altogether."""

SYSTEM = (
    "You answer questions about outputs of tools. An output that is too large for you is stored: you get a descriptor "
    "with its output_handle, and read the output with the tools that you have. Use as few calls as you can. End with "
    f"one line that begins with {ANSWER_PREFIX} followed by the answer as JSON: a number, a text in double quotes, "
    "true or false, a list or an object, as the question asks."
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one question."""

    id: str
    kind: str
    is_right: bool
    calls: int
    bytes_read: int
    """Bytes that the calls returned, without the descriptors."""
    answer: Any
    expected: Any
    problem: str | None = None
    """Why there is no answer."""


def ask_reference(session: Session, question: Question) -> Outcome:
    """Answer a question by its script."""
    tools = session.tools_for(question.outputs)
    answer, problem = None, None
    try:
        answer = question.reference(tools)
    except (CallFailed, KeyError, IndexError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
    return _judge(question, answer, problem, tools.calls, tools.bytes_read)


def ask_model(session: Session, question: Question, conversation: Conversation) -> Outcome:
    """Ask a model, and make the calls that it asks for."""
    tools = session.tools_for(question.outputs)
    descriptors = "\n\n".join(f"get_{name} returned:\n{session.describe(name)}" for name in question.outputs)
    turn = conversation.ask(f"{descriptors}\n\n{question.text}")
    while turn.calls and tools.calls < MAX_CALLS:
        turn = conversation.answer_calls([(call, *tools.call(call.name, call.arguments)) for call in turn.calls])
    answer, problem = None, None
    try:
        answer = parse_answer(turn.text)
    except ValueError as error:
        problem = f"no answer: {error}"
    return _judge(question, answer, problem, tools.calls, tools.bytes_read)


def _judge(question: Question, answer: Any, problem: str | None, calls: int, bytes_read: int) -> Outcome:
    expected = question.expected(*map(payloads.load, question.outputs))
    right = problem is None and is_right(answer, expected)
    return Outcome(question.id, question.kind, right, calls, bytes_read, answer, expected, problem)


def run(questions: Sequence[Question], ask: Callable[[Session, Question], Outcome]) -> Iterator[Outcome]:
    """Ask all questions, in one session."""
    with open_session() as session:
        for question in questions:
            yield ask(session, question)


def _print_outcome(outcome: Outcome) -> None:
    mark = "ok  " if outcome.is_right else "FAIL"
    print(
        f"{mark} {outcome.id:26} {outcome.kind:7} {outcome.calls:>2} calls {outcome.bytes_read:>7,} bytes", flush=True
    )
    if not outcome.is_right:
        print(f"     expected {outcome.expected!r:.200}, got {outcome.problem or repr(outcome.answer):.200}")


def _print_summary(outcomes: Sequence[Outcome]) -> None:
    right = sum(outcome.is_right for outcome in outcomes)
    calls = statistics.mean(outcome.calls for outcome in outcomes)
    read = statistics.mean(outcome.bytes_read for outcome in outcomes)
    print(f"{right} of {len(outcomes)} right, {calls:.2f} calls and {read:,.0f} bytes a question on average")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", help="the questions to ask; all by default")
    parser.add_argument("--api", choices=CONVERSATIONS, help="the API of the model; without it, the scripts answer")
    parser.add_argument("--url", help="the address of the endpoint, without /v1")
    parser.add_argument("--model")
    parser.add_argument("--out", type=Path, help="write the outcomes to this file, as JSON")
    options = parser.parse_args()
    if options.api and not (options.url and options.model):
        parser.error("--api needs --url and --model")
    if unknown := [name for name in options.ids if name not in QUESTIONS]:
        parser.error(f"no question {unknown[0]}; there are {', '.join(QUESTIONS)}")

    def ask(session: Session, question: Question) -> Outcome:
        if not options.api:
            return ask_reference(session, question)
        conversation = CONVERSATIONS[options.api](options.url, options.model, SYSTEM, session.definitions)
        return ask_model(session, question, conversation)

    outcomes = []
    for outcome in run([QUESTIONS[name] for name in options.ids or QUESTIONS], ask):
        _print_outcome(outcome)
        outcomes.append(outcome)
    _print_summary(outcomes)
    if options.out:
        options.out.write_text(json.dumps([dataclasses.asdict(outcome) for outcome in outcomes], indent=1) + "\n")
    sys.exit(0 if options.api or all(outcome.is_right for outcome in outcomes) else 1)


if __name__ == "__main__":
    main()
