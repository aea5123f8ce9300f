"""LiveCodeBench's tests: reading them, and running them by the published rules.

Published private tests are a JSON text that was pickled, deflated and written in base 64. The pickle holds one text, so
an unpickler that refuses every class and function reads it.
"""

import base64
import io
import json
import pickle
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NoReturn

from corrgrpo_envs.code.livecodebench_rows import LiveCodeBenchRow
from corrgrpo_envs.datasets import schema_error
from corrgrpo_envs.sandbox import Case, Check, Limits, Outcome, Sandbox, Verdict

_LARGEST = 1 << 31  # bytes of one row's tests
_SETUP = "import json\nimport sys\nsys.set_int_max_str_digits(50_000)\n"
_TEST = """\
CASES = json.loads({cases!r})


def check(candidate):
    for number, (lines, expected) in enumerate(CASES, 1):
        result = candidate(*map(json.loads, lines))
        if type(result) is tuple:
            result = list(result)
        assert result == json.loads(expected), f"wrong result for test {{number}}"
"""


@dataclass(frozen=True, slots=True)
class OutputTests:
    """Tests of a program that reads standard input; each runs in a process of its own."""

    cases: tuple[Case, ...]

    def judge(self, sandbox: Sandbox, program: str, limits: Limits) -> Verdict:
        """Compare what the program prints: line by line, exactly or as decimal numbers."""
        return sandbox.judge_output(program, self.cases, limits)


@dataclass(frozen=True, slots=True)
class FunctionTests:
    """Tests of a method: its arguments, one line of JSON each, and the result as JSON."""

    function: str
    cases: tuple[Case, ...]

    def judge(self, sandbox: Sandbox, program: str, limits: Limits) -> Verdict:
        """Call the method of one object for all tests; results are compared by `==`, a tuple as a list.

        The limit holds for one test. A program that takes longer for all of them together is judged again, each test
        in a process of its own.
        """
        verdict = sandbox.judge(program, self.check(self.cases), limits)
        if verdict.outcome is not Outcome.TIMEOUT or len(self.cases) == 1:
            return verdict
        spent, calls = verdict.cpu_seconds, 0
        for case in self.cases:
            verdict = sandbox.judge(program, self.check([case]), limits)
            spent, calls = spent + verdict.cpu_seconds, calls + verdict.calls
            if not verdict.passed:
                break
        return replace(verdict, cpu_seconds=spent, calls=calls)

    def check(self, cases: Sequence[Case]) -> Check:
        """Some of the tests as the sandbox takes them."""
        pairs = json.dumps([[_lines(case.given), case.expected] for case in cases])
        return Check(_TEST.format(cases=pairs), f"Solution().{self.function}", setup=_SETUP)


@lru_cache(maxsize=16)
def read_tests(row: LiveCodeBenchRow) -> OutputTests | FunctionTests:
    """All tests of a row, public ones first.

    Raises:
        DatasetError: if they can't be read, or there are none.
    """
    cases = (*_cases(row, "public_test_cases", row.public), *_cases(row, "private_test_cases", unpacked(row)))
    if not cases:
        raise schema_error(row.source, row.number, "private_test_cases", "at least one test, or public ones", [])
    if row.function is None:
        return OutputTests(cases)
    for case in cases:
        for text in (*_lines(case.given), case.expected):
            _checked_json(row, text)
    return FunctionTests(row.function, cases)


class TextUnpickler(pickle.Unpickler):
    """Reads texts, numbers and containers of them; refuses every class and function."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse."""
        raise pickle.UnpicklingError(f"a pickle of tests holds a text and no {module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        """Refuse."""
        raise pickle.UnpicklingError("a pickle of tests holds a text and no reference")


def unpacked(row: LiveCodeBenchRow) -> str:
    """A row's private tests as JSON.

    Raises:
        DatasetError: if they are neither JSON nor a packed text.
    """
    text = row.private.strip()
    if not text or text[0] in "[{":
        return text or "[]"
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(text, validate=True), _LARGEST)
        if not inflater.eof:
            raise ValueError("cut off, or too large")
        found = TextUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # a pickle can raise anything
        reason = f"JSON, or JSON that was pickled, deflated and written in base 64 ({type(error).__name__}: {error})"
        raise schema_error(row.source, row.number, "private_test_cases", reason, row.private) from None
    if not isinstance(found, str):
        raise schema_error(row.source, row.number, "private_test_cases", "a packed text", found)
    return found


def _cases(row: LiveCodeBenchRow, field: str, text: str) -> tuple[Case, ...]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise schema_error(row.source, row.number, field, "a list of tests as JSON", text) from None
    if not isinstance(found, list):
        raise schema_error(row.source, row.number, field, "a list of tests", found)
    return tuple(_case(row, f"{field}[{number}]", case) for number, case in enumerate(found))


def _case(row: LiveCodeBenchRow, field: str, case: Any) -> Case:
    if not isinstance(case, dict):
        raise schema_error(row.source, row.number, field, "an object with 'input' and 'output'", case)
    for name in ("input", "output"):
        if not isinstance(case.get(name), str):
            raise schema_error(row.source, row.number, f"{field}.{name}", "a text", case.get(name))
    return Case(case["input"], case["output"])


def _lines(given: str) -> list[str]:
    return given.strip("\n").split("\n") if given.strip() else []


def _checked_json(row: LiveCodeBenchRow, text: str) -> None:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        raise schema_error(
            row.source, row.number, "input or output of a test of a method", "JSON, one line an argument", text
        ) from None
