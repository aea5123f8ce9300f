"""What tools return, as the text that the policy reads: writing it, cutting it, finding a payload in it."""

import importlib
import json
import re
from functools import lru_cache
from typing import Any

_NOT_WORD = re.compile(r"[^0-9A-Za-z]+")
_TRACE = 20


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
    reduced to letters and digits; of each long one the first and the last 20 are kept.
    """
    lines = [_NOT_WORD.sub("", line) for line in payload.splitlines()]
    long = [line for line in lines if len(line) >= _TRACE]
    return frozenset(line[:_TRACE] for line in long) | frozenset(line[-_TRACE:] for line in long)


def shows(output: str, wanted: frozenset[str]) -> bool:
    """Whether an output holds one of the traces of a payload."""
    words = _NOT_WORD.sub("", output)
    return any(trace in words for trace in wanted)


def _yaml_text(data: Any) -> str:
    """Write YAML as PyYAML's safe dumper in Python does, which the published texts come from.

    The one in C is five times faster. It breaks long double-quoted texts in other places: where a quote occurs, its
    text is not taken.
    """
    yaml = importlib.import_module("yaml")
    try:
        text = str(yaml.dump(data, Dumper=_fast_dumper(), allow_unicode=True))
    except UnicodeEncodeError:  # lone surrogates
        text = '"'
    if '"' in text:
        text = str(yaml.safe_dump(data, allow_unicode=True))
    return text.strip()


@lru_cache(maxsize=1)
def _fast_dumper() -> Any:
    yaml = importlib.import_module("yaml")

    class StateDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        """Writes states; the package's enumerations are texts, of which C takes only exact ones."""

    StateDumper.add_multi_representer(str, lambda dumper, data: dumper.represent_str(str(data)))
    return StateDumper
