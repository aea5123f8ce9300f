"""Reading MBPP's rows, and what their tests take for granted.

| variant | statement | before the tests | splits |
| --- | --- | --- | --- |
| full | `text` | `test_setup_code` | ids 11 to 510 `test`, 511 to 600 `validation`, others `train` |
| sanitized | `prompt` | `test_imports`, a list | all `test` |

Both have `task_id`, `code` (a right program) and `test_list` (assertions). The tests were written to run in the
namespace of that program: `imports`, `classes` and `names` say what of it they use.
"""

import ast
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from corrgrpo_envs.datasets import Row, fingerprint, is_hub_id, read_rows, schema_error
from corrgrpo_envs.errors import DatasetError
from corrgrpo_envs.tasks import Task


@dataclass(frozen=True, slots=True)
class MBPPRow:
    """One row.

    Attributes:
        statement: what is asked.
        tests: assertions.
        code: a right program.
        entry_point: the function of the program that the tests call.
        names: further functions and classes of the program that the tests call.
        test_imports: imports that come with the tests, for tests and program.
        setup: source that runs before the tests.
        imports: imports of `code` that tests or setup use.
        classes: classes of `code` that the setup uses.
    """

    statement: str
    tests: tuple[str, ...]
    code: str
    entry_point: str
    names: tuple[str, ...] = ()
    test_imports: str = ""
    setup: str = ""
    imports: str = ""
    classes: str = ""

    @property
    def judged_as_published(self) -> bool:
        """Whether the published evaluation can judge programs for the row.

        It wraps the tests into a function `check`, which hides a program's own, and runs the setup before the program.
        """
        return self.entry_point != "check" and not self.classes


@dataclass(frozen=True, slots=True)
class Variant:
    """A form of the data set.

    Attributes:
        file: its name in a folder.
        config: its configuration on the hub.
        statement: the field with what is asked.
        before: gives imports of tests and program, and the setup, from a row.
        split: gives the split of a task.
    """

    file: str
    config: str
    statement: str
    before: Callable[[Row], tuple[str, str]]
    split: Callable[[int | str], str]


def _published_split(task_id: int | str) -> str:
    if isinstance(task_id, str) or 11 <= task_id <= 510:
        return "test"
    return "validation" if 511 <= task_id <= 600 else "train"


def _always_test(task_id: int | str) -> str:
    return "test"


def _setup_code(row: Row) -> tuple[str, str]:
    return "", row.require("test_setup_code", str, "").replace("\r", "")


def _import_lines(row: Row) -> tuple[str, str]:
    return "\n".join(_texts(row, "test_imports", row.require("test_imports", list, []))), ""


VARIANTS: Mapping[str, Variant] = {
    "full": Variant("mbpp.jsonl", "full", "text", _setup_code, _published_split),
    "sanitized": Variant("sanitized-mbpp.json", "sanitized", "prompt", _import_lines, _always_test),
}


def rows(dataset: str, variant: str) -> tuple[Task[MBPPRow], ...]:
    """Read all rows of a variant.

    Raises:
        DatasetError: naming file, row and field, also if the rows are those of another variant.
    """
    path = _place(dataset, VARIANTS[variant])
    return _rows(path, variant, fingerprint(path))


@lru_cache(maxsize=8)
def _rows(path: str, variant: str, state: object) -> tuple[Task[MBPPRow], ...]:
    return tuple(_task(row, variant) for row in read_rows(path))


def _place(dataset: str, variant: Variant) -> str:
    """The built-in file, a folder's file, or a hub id with its configuration."""
    if dataset == "builtin":
        return str(files("envs_assets") / "mbpp" / variant.file)
    path = Path(dataset).expanduser()
    if path.is_dir():
        return next((str(path / name) for name in _spellings(variant.file) if (path / name).is_file()), dataset)
    if not is_hub_id(dataset) or ":" in dataset:
        return dataset
    name, at, revision = dataset.partition("@")
    return f"{name}:{variant.config}{at}{revision}"


def _spellings(name: str) -> tuple[str, str]:
    return name, f"{name}.gz"


def _task(row: Row, name: str) -> Task[MBPPRow]:
    variant, other = VARIANTS[name], next(one for one in VARIANTS if one != name)
    if row.get(variant.statement) is None and row.get(VARIANTS[other].statement) is not None:
        raise DatasetError(
            f"{row.source}, row {row.number}: is a row of MBPP's {other} variant; make the environment with "
            f"variant={other!r}"
        )
    task_id = row.get("task_id")
    if isinstance(task_id, bool) or not isinstance(task_id, int | str) or not str(task_id).strip():
        raise schema_error(row.source, row.number, "task_id", "a whole number or a text", task_id)
    tests = _texts(row, "test_list", row.require("test_list", list))
    code = row.require("code", str).replace("\r", "")
    imports, setup = variant.before(row)
    statement = row.require(variant.statement, str)
    if not tests:
        raise schema_error(row.source, row.number, "test_list", "a list of assertions", [])
    data = _data(row, statement, tests, code, imports, setup)
    return Task(str(task_id), variant.split(task_id), data)


def _data(row: Row, statement: str, tests: tuple[str, ...], code: str, test_imports: str, setup: str) -> MBPPRow:
    tree, used = _tree(row, "code", code), _used(_tree(row, "test_list", "\n".join(tests)))
    early = _used(_tree(row, "test_setup_code", setup))
    defined = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    classes = [node for node in defined if isinstance(node, ast.ClassDef) and node.name in early]
    # The last definition of a name is the one that counts; functions first, since a class is no entry point.
    called = {node.name: node for node in defined if node.name in used and node not in classes}
    names = sorted(called, key=lambda name: (isinstance(called[name], ast.ClassDef), used[name]))
    if not names:
        raise schema_error(row.source, row.number, "test_list", "assertions that call a function of 'code'", tests[0])
    return MBPPRow(
        statement,
        tests,
        code,
        entry_point=names[0],
        names=tuple(names[1:]),
        test_imports=test_imports,
        setup=setup,
        imports="\n".join(_imports(tree, {*used, *early})),
        classes="\n\n".join(map(ast.unparse, classes)),
    )


def _used(tree: ast.AST) -> dict[str, int]:
    """The names that a source uses, with the order in which they first occur."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    found.sort(key=lambda node: (node.lineno, node.col_offset))
    return {name: place for place, name in enumerate(dict.fromkeys(node.id for node in found))}


def _imports(tree: ast.Module, used: set[str]) -> Iterable[str]:
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            if bound & {*used, "*"}:
                yield ast.unparse(node)


def _tree(row: Row, field: str, source: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # published programs have backslashes that mean nothing
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise schema_error(row.source, row.number, field, "Python source", source) from None


def _texts(row: Row, field: str, values: list[object]) -> tuple[str, ...]:
    for number, value in enumerate(values):
        if not isinstance(value, str):
            raise schema_error(row.source, row.number, f"{field}[{number}]", "a text", value)
    return tuple(str(value).replace("\r", "") for value in values)
