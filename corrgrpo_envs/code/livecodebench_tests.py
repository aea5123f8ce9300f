"""LiveCodeBench's tests: reading them, and running them by the published rules.

Published private tests are a JSON text that was pickled, deflated and written in base 64. The pickle holds one text, so
it is looked through and never unpickled.
"""

import base64
import json
import pickletools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from corrgrpo_envs.code.livecodebench_rows import LiveCodeBenchRow
from corrgrpo_envs.datasets import schema_error
from corrgrpo_envs.sandbox import Case, Check, Limits, Outcome, Sandbox, Verdict

_LARGEST = 1 << 31  # bytes of one row's tests
_PICKLED_TEXTS = {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
_AROUND_TEXTS = {"PROTO", "FRAME", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "STOP"}
LONGEST_NUMBER = 50_000  # digits
_SETUP = f"import json\nimport sys\nsys.set_int_max_str_digits({LONGEST_NUMBER})\n"
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
        return sandbox.judge_output(program, self.cases, roomy(limits, self.cases))


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
        limits = roomy(limits, self.cases)
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


def roomy(limits: Limits, cases: Sequence[Case]) -> Limits:
    """The limits, with room for the longest right output or result, whatever white space a program adds."""
    longest = max(len(case.expected.encode("utf-8", "surrogatepass")) for case in cases)
    return replace(
        limits,
        output_bytes=max(limits.output_bytes, 2 * longest),
        value_bytes=max(limits.value_bytes, 4 * longest),
    )


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
        return pickled_text(data)
    except Exception as error:  # damaged data: each step has errors of its own
        reason = f"JSON, or JSON that was pickled, deflated and written in base 64 ({type(error).__name__}: {error})"
        raise schema_error(row.source, row.number, "private_test_cases", reason, row.private) from None


def pickled_text(data: bytes) -> str:
    """The text that a pickle holds, read without running the pickle.

    Raises:
        ValueError: if it is no pickle, or holds anything else.
    """
    found = []
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in _PICKLED_TEXTS:
            found.append(str(argument))
        elif opcode.name not in _AROUND_TEXTS:
            raise ValueError(f"a pickle of tests holds one text and no {opcode.name}")
    if len(found) != 1:
        raise ValueError(f"a pickle of tests holds one text, not {len(found)}")
    return found[0]


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
        json.loads(text, parse_int=_checked_digits)
    except (ValueError, RecursionError):
        raise schema_error(
            row.source, row.number, "input or output of a test of a method", "JSON, one line an argument", text
        ) from None


def _checked_digits(digits: str) -> None:
    # Making a number of them is the sandbox's work: this interpreter's limit on digits is lower.
    if len(digits.removeprefix("-")) > LONGEST_NUMBER:
        raise ValueError("a number of too many digits")
