"""Objects of the core that are used wrongly say what to do instead."""

import json

import forebay
import pytest
from forebay import InvalidArgument, InvalidPattern
from forebay._core import Filter, Redactor, Survey


def test_a_survey_that_has_finished_takes_nothing_more() -> None:
    survey = Survey()
    survey.feed(b"[1]")
    assert survey.finish().nature == "json"
    with pytest.raises(InvalidArgument, match="make a new one for the next payload"):
        survey.feed(b"[2]")
    with pytest.raises(InvalidArgument, match="make a new one for the next payload"):
        survey.finish()


def test_an_expression_may_be_as_long_as_the_limit() -> None:
    longest = "a?" * (1 << 15)
    with pytest.raises(
        InvalidPattern, match=r"it has 65,?537 bytes, and 65,?536 are allowed; search for a shorter part"
    ):
        forebay.search(b"a", longest + "b", regex=True)
    with pytest.raises(InvalidPattern) as too_large:
        Redactor([longest + "b"])
    assert "are allowed" in str(too_large.value)


@pytest.mark.parametrize("operator", ["$or", "$and", "$nor"])
def test_conditions_cannot_be_combined_otherwise(operator: str) -> None:
    condition = json.dumps({operator: [{"a": 1}, {"b": 2}]})
    with pytest.raises(InvalidArgument, match=r"there is no \"?" + f"\\{operator}") as error:
        Filter(condition, [])
    assert '{"in": [...]} for one of several values, and use output_query (SQL) for OR' in str(error.value)
