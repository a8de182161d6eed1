"""What the operating system refuses, as our errors; and what is simply not there."""

import errno

from forebay.errors import ForebayError, StoreFull, StoreUnavailable

__all__ = ["absent", "structured"]

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class _Structured:
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError) or isinstance(error, ForebayError):
            return
        if error.errno in _NO_ROOM:
            raise StoreFull("the disk has no room for this payload; free some, or store less of it") from error
        raise StoreUnavailable(f"the store cannot be used: {error.strerror or error}") from error


class _Absent:
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return True
        # A symbolic link is refused as a loop: it is nothing of ours.
        return isinstance(error, OSError) and error.errno == errno.ELOOP


structured = _Structured()
"""Within it, an `OSError` becomes `StoreFull` or `StoreUnavailable`, with the reason in its message."""

absent = _Absent()
"""Within it, what is not there ends the block quietly."""
