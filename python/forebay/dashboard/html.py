"""Build HTML. Every text is escaped, unless it is `Html` already."""

import html
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Child", "Html", "element", "join"]

_VOID_ELEMENTS = frozenset(("br", "col", "hr", "img", "input", "link", "meta"))


class Html(str):
    """Markup that is already escaped."""

    __slots__ = ()


Child: TypeAlias = "Html | str | int | Sequence[Child] | None"
Attribute: TypeAlias = "str | int | float | bool | None"


def element(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """Return an element. Its texts and attributes are escaped.

    An underscore at the end of an attribute's name is dropped, and the others become hyphens: `class_`, `aria_label`.
    `None` and `False` leave an attribute out; `True` is an attribute without a value.
    """
    start = f"<{name}{''.join(_format_attribute(key, value) for key, value in attributes.items())}>"
    return Html(start if name in _VOID_ELEMENTS else f"{start}{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    """Return texts and elements as one, without an element around them."""
    return Html("".join(map(_render, children)))


def _render(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, list | tuple):
        return "".join(map(_render, child))
    return html.escape(str(child))


def _format_attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.removesuffix("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
