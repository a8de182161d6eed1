"""HTML as text: everything is escaped that was not built as an element."""

from html.parser import HTMLParser

from forebay.dashboard.html import Html, element, join
from hypothesis import given
from hypothesis import strategies as st

# NUL and carriage returns cannot stand in HTML, and a surrogate cannot be encoded.
texts = st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=40)


class _Reader(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@given(texts, texts)
def test_any_text_stays_text(text: str, attribute: str) -> None:
    reader = _Reader(element("p", text, element("b", text), title=attribute))
    assert reader.tags == ["p", "b"]
    assert reader.attributes == [("title", attribute)]
    assert reader.text == text * 2


def test_children_may_be_nested_numbers_and_nothing() -> None:
    assert element("p", ["a", ("b", None), [1]], None, Html("<i></i>")) == "<p>ab1<i></i></p>"
    assert join("<", element("br"), 0) == "&lt;<br>0"


def test_attributes() -> None:
    markup = element("input", class_="a", data_handle="b", required=True, checked=False, title=None, value=0)
    assert markup == '<input class="a" data-handle="b" required value="0">'


def test_an_element_may_have_an_attribute_with_the_name_of_a_parameter() -> None:
    assert element("input", name="token") == '<input name="token">'
