"""Names that are each given once."""

__all__ = ["Names"]


class Names:
    """Names that are taken. One that is wanted again gets a number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def free(self, wanted: str) -> str:
        """The name, or the first with a number that nobody has."""
        name, number = wanted, self._next.get(wanted, 2)
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        # Where the last search ended: thousands may want the same.
        self._next[wanted] = number
        self._taken.add(name)
        return name
