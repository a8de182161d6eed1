import os

from hypothesis import settings

# Shared machines are slow at times; slowness is a bench's business. CI must fail for a change, not for a seed.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
