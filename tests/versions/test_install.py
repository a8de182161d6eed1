"""Installing forebay beside a server changes no version of another package."""

import pytest
from sdk_versions import Environment, run_pip

pytestmark = pytest.mark.slow


def test_no_other_package_changes(environment: Environment) -> None:
    before, after = environment.packages_before, environment.packages_after
    assert len(before) > 10
    assert {name: after.get(name) for name in before} == before
    run_pip(environment.python, "check")
