"""What is there only with an extra: how to get it, as the README says it."""

__all__ = ["how_to_install"]


def how_to_install(extra: str) -> str:
    """What to do where something of an extra is missing; forebay is installed from a checkout or a wheel."""
    return (
        f"install forebay again with the extra {extra}: "
        f"pip install '.[{extra}]' in a checkout, or pip install 'dist/….whl[{extra}]' of a wheel"
    )
