"""What tools return, as the text that the policy reads: writing it, cutting it, finding a payload in it."""

import importlib
import json
import re
from functools import lru_cache
from typing import Any

_NOT_WORD = re.compile(r"[\W_]+")
_TRACE = 20
_LINE = 60


def result_text(result: Any) -> str:
    """Write what a tool returned: pydantic objects and lists as YAML, all else by `str`."""
    if hasattr(result, "model_dump"):
        return _yaml_text(result.model_dump())
    if isinstance(result, list):
        return _yaml_text([item.model_dump() if hasattr(item, "model_dump") else str(item) for item in result])
    return str(result)


def error_text(message: str) -> str:
    """Write an error as a tool's output."""
    return json.dumps({"error": message}, ensure_ascii=False)


def cut_middle(text: str, length: int) -> str:
    """Keep the first and the last half of a text that is longer than `length` characters.

    The mark that says how much is missing comes on top of `length`.
    """
    if len(text) <= length:
        return text
    half = length // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[len(text) - half :]}"


@lru_cache(maxsize=4096)
def traces(payload: str) -> frozenset[str]:
    """Texts of which at least one is in every output that shows a good part of the payload.

    On its way into the state and out again a payload is wrapped, quoted and escaped anew, so its lines are
    reduced to letters and digits; of each long one the first and the last 20 are kept, or the whole of the longest
    where none is long.
    """
    lines = [_NOT_WORD.sub("", line) for line in payload.splitlines()]
    long = [line for line in lines if len(line) >= _TRACE] or [max(lines, key=len, default="")]
    return frozenset(part for line in long for part in (line[:_TRACE], line[-_TRACE:]) if part)


def shows(output: str, wanted: frozenset[str]) -> bool:
    """Whether an output holds one of the traces of a payload."""
    words = _NOT_WORD.sub("", output)
    return any(trace in words for trace in wanted)


def _yaml_text(data: Any) -> str:
    """Write YAML as PyYAML's safe dumper in Python does, which the published texts come from."""
    if isinstance(data, list) and data:
        # The items of a list are written one by one, without regard to each other.
        return "".join(map(_item_text, data)).strip()
    return _dumped(data).strip()


def _item_text(item: Any) -> str:
    lines = _record_lines(item) if type(item) is dict else None
    return _dumped([item]) if lines is None else f"- {lines[0]}\n" + "".join(f"  {line}\n" for line in lines[1:])


def _record_lines(record: dict[Any, Any]) -> list[str] | None:
    """The lines of an object of short values, most of what tools return; None if it needs the dumper."""
    lines = []
    for key in sorted(record) if all(type(key) is str for key in record) else ():
        name, value = _short_text(key), record[key]
        if type(value) is str:
            text = _short_text(value)
        elif value is None or type(value) in (bool, int):
            text = {None: "null", True: "true", False: "false"}.get(value) if type(value) is not int else str(value)
        elif type(value) is float:
            text = _float_text(repr(value))
        else:
            return None
        # Longer lines are broken, keys that long are written otherwise.
        if name is None or text is None or len(name) + len(text) > _LINE:
            return None
        lines.append(f"{name}: {text}")
    return lines or None


@lru_cache(maxsize=16384)
def _short_text(value: str) -> str | None:
    """A text as it stands in a line of YAML; None if it does not fit into one, or is quoted by escapes."""
    if len(value) > _LINE or not value.isprintable():
        return None
    text = _dumped([value])[2:-1]
    return None if '"' in text else text


@lru_cache(maxsize=4096)
def _float_text(written: str) -> str:
    return _dumped([float(written)])[2:-1]


def _dumped(data: Any) -> str:
    """YAML by the dumper in C, five times faster than that in Python.

    It breaks long double-quoted texts in other places: where a quote occurs, its text is not taken.
    """
    yaml = importlib.import_module("yaml")
    try:
        text = str(yaml.dump(data, Dumper=_fast_dumper(), allow_unicode=True))
    except UnicodeEncodeError:  # lone surrogates
        text = '"'
    return str(yaml.safe_dump(data, allow_unicode=True)) if '"' in text else text


@lru_cache(maxsize=1)
def _fast_dumper() -> Any:
    yaml = importlib.import_module("yaml")

    class StateDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        """Writes states; the package's enumerations are texts, of which C takes only exact ones."""

    StateDumper.add_multi_representer(str, lambda dumper, data: dumper.represent_str(str(data)))
    return StateDumper
