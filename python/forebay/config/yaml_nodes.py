"""Parser of YAML that keeps the positions of values. PyYAML does the work."""

from typing import TYPE_CHECKING, Any, NoReturn

from forebay.config.nodes import Member, Node
from forebay.errors import InvalidArgument

if TYPE_CHECKING:
    import yaml

__all__ = ["parse_yaml"]


def parse_yaml(text: str) -> Node:
    """Parse a document. Raises `InvalidArgument` with the line of an error, or if PyYAML is not installed."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise InvalidArgument("reading it needs PyYAML, the extra yaml of forebay: pip install PyYAML") from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return Node(0, 0, None) if root is None else _Converter().convert(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f"line {mark.line + 1}: "
        raise InvalidArgument(f"{where}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InvalidArgument(str(error).partition("\n")[0]) from None
    except RecursionError:
        raise InvalidArgument("it is nested too deep") from None


class _Converter:
    """Converter of the nodes of PyYAML."""

    def __init__(self) -> None:
        import yaml

        self._constructor = yaml.constructor.SafeConstructor()
        self._seen: set[int] = set()

    def convert(self, node: "yaml.Node") -> Node:
        import yaml

        if id(node) in self._seen:
            self._fail(node, "an anchor with an alias, which forebay cannot edit; write the value twice")
        self._seen.add(id(node))
        start, end = node.start_mark.index, node.end_mark.index
        value: Any
        if isinstance(node, yaml.MappingNode):
            value = self._convert_members(node)
            ends = [member.end for member in value.values()]
        elif isinstance(node, yaml.SequenceNode):
            value = [self.convert(item) for item in node.value]
            ends = [item.end for item in value]
        else:
            return Node(start, end, self._construct(node))
        # PyYAML lets a block end where the next token starts, after blank lines and comments.
        return Node(start, end if node.flow_style else max(ends), value, is_block=not node.flow_style)

    def _convert_members(self, node: "yaml.MappingNode") -> dict[str, Member]:
        import yaml

        members: dict[str, Member] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fail(key, "a key that is no text")
            if key.value in members:
                self._fail(key, f"a second {key.value}")
            self._seen.add(id(key))
            members[key.value] = Member(key.start_mark.index, key.end_mark.index, self.convert(value))
        return members

    def _construct(self, node: "yaml.Node") -> Any:
        import yaml

        try:
            return self._constructor.construct_object(node)
        except (yaml.constructor.ConstructorError, ValueError):
            # The value has a tag of an application, such as `!secret`.
            return node.value

    def _fail(self, node: "yaml.Node", found: str) -> NoReturn:
        raise InvalidArgument(f"line {node.start_mark.line + 1} has {found}", node.start_mark.index)
