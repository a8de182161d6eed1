"""Whether these tests run under Wine, which does not do all that Windows does."""

import sys

__all__ = ["IS_WINE"]

IS_WINE = False
if sys.platform == "win32":
    import ctypes

    IS_WINE = hasattr(ctypes.WinDLL("ntdll"), "wine_get_version")
