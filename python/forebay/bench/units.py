"""Times and ratios as people read them."""

__all__ = ["format_duration", "format_ratio"]


def format_duration(seconds: float) -> str:
    """Format a time with three digits, in the unit that suits."""
    if seconds >= 1000:
        return f"{seconds:,.0f} s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        # Rounded first: 999.9 µs are 1 ms.
        if float(f"{seconds / scale:.3g}") >= 1:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def format_ratio(ratio: float) -> str:
    """Format how many times one is the other."""
    return f"{ratio:,.0f} ×" if ratio >= 100 else f"{ratio:.3g} ×"
