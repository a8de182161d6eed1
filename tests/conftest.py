import os

import pytest
from hypothesis import settings
from stores import Clock

# Shared machines are slow at times; slowness is a bench's business. CI must fail for a change, not for a seed.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture
def clock() -> Clock:
    return Clock()
