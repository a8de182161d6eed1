"""Types that may become a part of a statement, and everything else."""

import pytest
from forebay.query.types import is_parquet_type


@pytest.mark.parametrize(
    "text",
    [
        "BIGINT",
        "UTINYINT",
        "TIMESTAMP WITH TIME ZONE",
        "TIMESTAMP",
        "TIME_NS",
        "DECIMAL(38,0)",
        "VARCHAR[]",
        "DECIMAL(4,1)[3][]",
        'STRUCT("a" BIGINT, "b ""c""" TIMESTAMP_NS[])',
        'MAP(VARCHAR, STRUCT("x)" TUPLE(DATE, JSON))[])',
        'STRUCT("t" DATE, "n" DATE)',
    ],
)
def test_a_type_is_a_type(text: str) -> None:
    assert is_parquet_type(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "t",
        "n",
        "t[]",
        "HUGEINT",
        "VARCHAR FROM range(3)",
        "VARCHAR, BIGINT",
        "VARCHAR) FROM read_text('/etc/passwd'",
        "VARCHAR FROM x",
        'BIGINT "a"',
        'STRUCT("a" BIGINT',
        'STRUCT("a" BIGINT, (SELECT 1))',
        "STRUCT(a BIGINT)",
        'STRUCT("a"" BIGINT)',
        "MAP(VARCHAR)--",
        "BIGINT\n",
        "BIGINT;",
        "ENUM('a')",
        "DECIMAL(1,1)(2)",
        "DECIMAL(٣,1)",
        "VARCHAR[1+1]",
        "VARCHAR" + "[" * 1000,
        "STRUCT(" * 100_000,
    ],
)
def test_nothing_else_is_one(text: str) -> None:
    assert not is_parquet_type(text)
