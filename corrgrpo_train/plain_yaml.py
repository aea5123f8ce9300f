"""YAML of plain data, read so that nothing in it is lost or grows."""

from typing import Any

import yaml

from corrgrpo_train.errors import UsageError


def read_mapping(text: str, source: str) -> dict[Any, Any]:
    """Read a YAML text that holds a mapping; an empty text is an empty one.

    Args:
        text: the YAML.
        source: where the text is from, for messages.

    Raises:
        UsageError: if it is not YAML, has a key twice or an alias, or holds something else.
    """
    try:
        content = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise UsageError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise UsageError(f"{source} is nested too deeply") from None
    except ValueError as error:  # a date that does not exist, a number of thousands of digits
        raise UsageError(f"{source} holds a value that can't be read: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"{source} must hold lines 'name: value', not {type(content).__name__}")
    return content


class _Loader(yaml.SafeLoader):
    """Reads plain data, and no key twice: of two values one would be ignored without a word."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            # Ten lines of them can stand for more values than fit into memory.
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) are not read",
                problem_mark=self.peek_event().start_mark,  # type: ignore[no-untyped-call]
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            name = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else id(key)
            if name in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is there twice", problem_mark=key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)
