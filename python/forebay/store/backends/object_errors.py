"""Errors of requests to a bucket: what they mean, and which of them may pass."""

import re

from forebay.errors import StoreFull, StoreUnavailable

__all__ = ["Absent", "Conflict", "EmptyObject", "OutcomeUnknown", "Temporary", "translate"]

_MISSING_OBJECT_CODES = (None, "NoSuchKey", "BlobNotFound", "NoSuchUpload")
_MISSING_BUCKET_CODES = ("NoSuchBucket", "ContainerNotFound")
_BUSY_CODES = ("ConditionalRequestConflict", "OperationAborted")
_FULL_CODES = ("QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "InsufficientCapacity")
_TEMPORARY_STATUSES = (408, 429, 500, 502, 503, 504)
_REFUSED_STATUSES = (429, 503)
_METADATA_HOSTS = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")


class Absent(Exception):
    """The object does not exist."""


class EmptyObject(Exception):
    """A range of an object without content."""


class Conflict(Exception):
    """The object is not in the state that a conditional write expects."""


class OutcomeUnknown(StoreUnavailable):
    """A write was sent, and its answer did not arrive: the object may be there now, or appear later."""


class Temporary(Exception):
    """A request that may succeed if it is made again."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent
        """Whether the server may have done what was requested."""


def translate(error: Exception, address: str, bucket: str) -> Exception:
    """Return the error to raise in place of one of the library, whose text may hold what must not be shown."""
    from obstore import exceptions as library

    text = str(error)
    status, code = _find_status(text), _find_code(text)
    if code in _MISSING_BUCKET_CODES:
        return StoreUnavailable(f"there is no bucket {bucket!r}: create it, or correct the address {address}")
    if code in _BUSY_CODES:
        return Temporary(f"the store {address} answered {code}; call again", was_sent=False)
    if isinstance(error, library.AlreadyExistsError | library.PreconditionError | library.NotModifiedError):
        return Conflict()
    if isinstance(error, FileNotFoundError) and code in _MISSING_OBJECT_CODES:
        return Absent()
    # MinIO answers a range of an empty object with a header that is not valid.
    if "NotPartial" in text or status == 416 or 'value: "bytes 0--1/0"' in text:
        return EmptyObject()
    if status == 507 or code in _FULL_CODES:
        return StoreFull(f"the store {address} has no room left: delete objects, or raise the limit of the bucket")
    if isinstance(error, NotImplementedError | library.NotSupportedError) or status == 501:
        return StoreUnavailable(f"the store {address} lacks conditional writes, which are needed: use another server")
    if not isinstance(error, library.BaseError | OSError):
        return error
    answer = " ".join(str(word) for word in ("answered", status, code) if word is not None)
    if isinstance(error, library.PermissionDeniedError | library.UnauthenticatedError) or status in (401, 403):
        return StoreUnavailable(
            f"the store {address} {answer}: check the credentials in the environment, and that they may read, write, "
            "list and delete there"
        )
    if status is not None and status not in _TEMPORARY_STATUSES:
        return StoreUnavailable(f"the store {address} {answer}: check the endpoint, the region and the credentials")
    if any(host in text for host in _METADATA_HOSTS):
        return StoreUnavailable(
            f"the store {address} needs credentials, and there are none: set them in the environment"
        )
    problem = answer if status is not None else "cannot be reached"
    return Temporary(
        f"the store {address} {problem}: check the endpoint and the network, then call again",
        was_sent=status not in _REFUSED_STATUSES and "kind: Connect" not in text,
    )


def _find_status(text: str) -> int | None:
    match = re.search(r"status code: (\d{3})", text) or re.search(r"\bstatus: (\d{3})\b", text)
    return int(match[1]) if match else None


def _find_code(text: str) -> str | None:
    match = re.search(r"<Code>(\w{1,64})</Code>", text)
    return match[1] if match else None
