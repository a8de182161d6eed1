"""Paths as users and clients write them: in URLs, and with names that Windows reserves.

Each function takes the rules of a system as an argument, so that the rules of Windows are tested everywhere.
"""

import re
import sys
from pathlib import PurePosixPath, PureWindowsPath

__all__ = ["IS_WINDOWS", "NativePath", "check_windows_name", "parse_file_url"]

IS_WINDOWS = sys.platform == "win32"

NativePath: type[PurePosixPath] | type[PureWindowsPath] = PureWindowsPath if IS_WINDOWS else PurePosixPath
"""The class of paths of this system that opens no files."""

_DRIVE_PATTERN = re.compile(r"/[A-Za-z]:(?:/|$)")
_HOST_PATTERN = re.compile(r"[\w-][\w.-]*")
_SHARE_PATTERN = re.compile(r"/[^/]+/[^/]")
_DEVICE_PATTERN = re.compile(
    r"(?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[0-9\u00b9\u00b2\u00b3])(?:$|[ .:])", re.ASCII | re.IGNORECASE
)
_FORBIDDEN_PATTERN = re.compile(r'[\x00-\x1f<>:"/\\|?*]')


def parse_file_url(host: str, path: str, *, is_windows: bool = IS_WINDOWS) -> str | None:
    """Return the path that a `file` URL with this host and this decoded path stands for, or `None` if it has none.

    On Windows that is `C:\\folder` for `file:///C:/folder`, and a share for `file://server/share/folder`.
    """
    is_local = host in ("", "localhost")
    if not is_windows:
        return path if is_local and path.startswith("/") else None
    if not is_local:
        # A host with other characters is a device, such as `\\.\pipe`, or has a port or credentials.
        is_share = _HOST_PATTERN.fullmatch(host) and _SHARE_PATTERN.match(path)
        return str(PureWindowsPath(f"//{host}{path}")) if is_share else None
    return str(PureWindowsPath(path[1:])) if _DRIVE_PATTERN.match(path) else None


def check_windows_name(name: str) -> str | None:
    """Return why Windows cannot or should not use this name; `None` if it can.

    `NUL` is that device in every folder and with every extension, `name:stream` is an alternate data stream of a file,
    and Windows ignores spaces and dots at the end of a name.
    """
    if _DEVICE_PATTERN.match(name):
        return "is the name of a device on Windows"
    if _FORBIDDEN_PATTERN.search(name):
        return "has characters that Windows does not allow in names"
    if name.endswith((" ", ".")):
        return "ends with a space or a dot, which Windows ignores"
    return None
