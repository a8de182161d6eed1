"""Files and folders by descriptors, on the current operating system.

A descriptor of a folder stays valid when the folder is moved, and names are opened relative to it. Links are never
followed: on POSIX symbolic links, on Windows all reparse points. They raise an `OSError` with `ELOOP`.
"""

import sys

if sys.platform == "win32":
    from forebay.system.windows_files import *  # noqa: F403 - its `__all__` names what there is
    from forebay.system.windows_files import __all__ as __all__
else:
    from forebay.system.posix_files import *  # noqa: F403 - its `__all__` names what there is
    from forebay.system.posix_files import __all__ as __all__
