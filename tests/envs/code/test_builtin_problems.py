"""The built-in programming problems: their format, their examples, and that each is judged right by its own tests."""

import ast
import copy
import gzip
import inspect
import itertools
import json
import random
import re
from collections import Counter, deque
from pathlib import Path

import pytest

from corrgrpo_envs.code.builtin import DIFFICULTIES, SECTIONS, parse_problem, read_problems
from corrgrpo_envs.code.prelude import PRELUDE
from corrgrpo_envs.errors import DatasetError

FOLDER = Path(__file__).resolve().parents[3] / "envs_assets" / "leetcode" / "problems"
UPSTREAM = Path(__file__).resolve().parents[4] / "shared" / "data" / "leetcode"
PROBLEMS = read_problems()
each_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
pytestmark = pytest.mark.timeout(60)


def namespace(*sources):
    """Run the prelude and then `sources` in a fresh module."""
    names = {"__name__": "problem"}
    exec(compile("\n".join((PRELUDE, *sources)), "problem", "exec"), names)
    return names


def solver(problem, source):
    return eval(problem.entry_point, namespace(source))


def judge(problem, source):
    names = namespace(source, problem.tests)
    names["check"](eval(problem.entry_point, names))


def signature(source):
    """Return name, arguments and result of the last method of `class Solution`, as text."""
    (solution,) = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert solution.name == "Solution"
    (method,) = [node for node in solution.body if isinstance(node, ast.FunctionDef)]
    return method.name, ast.unparse(method.args), ast.unparse(method.returns)


def annotations(problem):
    (method,) = [n for n in ast.walk(ast.parse(problem.starter_code)) if isinstance(n, ast.FunctionDef)]
    return {a.arg: ast.unparse(a.annotation) for a in method.args.args[1:]}, ast.unparse(method.returns)


def prose(problem):
    return problem.statement.partition("\n\nExample 1:")[0]


def test_there_are_enough_of_each_difficulty():
    counts = Counter(problem.difficulty for problem in PROBLEMS)
    assert len(PROBLEMS) >= 130
    assert counts["easy"] >= 60
    assert counts["medium"] >= 45
    assert counts["hard"] >= 25


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_splits_are_stratified(difficulty):
    counts = Counter(problem.split for problem in PROBLEMS if problem.difficulty == difficulty)
    total = counts.total()
    assert abs(counts["train"] / total - 0.7) < 0.05
    assert abs(counts["validation"] / total - 0.15) < 0.05
    assert abs(counts["test"] / total - 0.15) < 0.05


@pytest.mark.parametrize(
    ("tag", "least"),
    [("list-node", 8), ("tree-node", 8), ("in-place", 6), ("float", 6), ("any-order", 4), ("unicode", 3)],
)
def test_special_kinds_are_there(tag, least):
    assert sum(tag in problem.tags for problem in PROBLEMS) >= least


def test_some_references_use_sorted_containers():
    assert sum("from sortedcontainers import" in problem.reference for problem in PROBLEMS) >= 3


def test_ids_titles_and_methods_are_unique():
    for names in zip(*((p.id, p.title.casefold(), p.entry_point) for p in PROBLEMS), strict=True):
        assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", problem.id) for problem in PROBLEMS)
    assert {problem.id for problem in PROBLEMS} == {file.stem for file in FOLDER.iterdir()}


def test_no_statement_is_a_near_copy_of_another():
    def phrases(text):
        words = re.findall(r"\w+", text.casefold())
        return {tuple(words[i : i + 3]) for i in range(len(words) - 2)}

    phrases_of = {problem.id: phrases(prose(problem)) for problem in PROBLEMS}
    for a, b in itertools.combinations(phrases_of, 2):
        both = phrases_of[a] & phrases_of[b]
        assert len(both) < 0.5 * min(len(phrases_of[a]), len(phrases_of[b])), f"{a} and {b}"


@each_problem
def test_programs_have_one_signature(problem):
    head = signature(problem.starter_code)
    assert problem.entry_point == f"Solution().{head[0]}"
    for source in (problem.reference, problem.slow_reference, problem.wrong_answer):
        assert signature(source) == head


@each_problem
def test_tags_agree_with_the_signature(problem):
    arguments, result = annotations(problem)
    heads = " ".join([*arguments.values(), result])
    assert ("list-node" in problem.tags) == ("ListNode" in heads)
    assert ("tree-node" in problem.tags) == ("TreeNode" in heads)
    assert ("float" in problem.tags) == ("float" in result)
    assert ("in-place" in problem.tags) == (result == "None")
    text = " ".join(problem.statement.split())
    assert ("any-order" in problem.tags) == ("any order" in text or "is free" in text)
    assert len(set(problem.tags)) == len(problem.tags)


@each_problem
def test_statement_is_compact(problem):
    words = len(prose(problem).split())
    assert 8 <= words <= (60 if problem.difficulty == "easy" else 85)
    assert re.search(r"^Limits: .+$", problem.statement, re.MULTILINE)
    assert max(map(len, problem.statement.splitlines())) <= 200


@each_problem
def test_tests_are_plain_and_many(problem):
    tree = ast.parse(problem.tests)
    (check,) = tree.body
    assert isinstance(check, ast.FunctionDef)
    assert check.name == "check"
    assert [a.arg for a in check.args.args] == ["candidate"]
    assert 20 <= sum(isinstance(node, ast.Assert) for node in ast.walk(check)) <= 60
    assert not any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(tree))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not names & {"random", "datetime", "time", "hash", "id"}


@each_problem
@pytest.mark.parametrize("program", ["reference", "slow_reference"])
def test_references_pass(problem, program):
    judge(problem, getattr(problem, program))


@each_problem
def test_wrong_answer_fails(problem):
    with pytest.raises((AssertionError, AttributeError, IndexError)):
        judge(problem, problem.wrong_answer)


@each_problem
def test_starter_code_fails(problem):
    with pytest.raises((AssertionError, TypeError)):
        judge(problem, problem.starter_code)


@each_problem
@pytest.mark.parametrize("program", ["reference", "slow_reference"])
def test_examples_are_right(problem, program):
    kinds, result_kind = annotations(problem)
    for example in problem.examples:
        assert list(example.arguments) == list(kinds)
        names = namespace(getattr(problem, program))
        inputs = {name: decode(kinds[name], value, names) for name, value in example.arguments.items()}
        result = eval(problem.entry_point, names)(**inputs)
        if result_kind == "None":
            assert result is None
            name = next(iter(kinds))
            result, kind = inputs[name], kinds[name]
        else:
            kind = result_kind
        found, wanted = encode(kind, result), example.output
        if "any-order" in problem.tags:
            found, wanted = ordered(found), ordered(wanted)
        if "float" in kind:
            assert found == pytest.approx(wanted, abs=1e-6)
        else:
            assert found == wanted
            assert type(found) is type(wanted)


def decode(kind, value, names):
    if kind == "Optional[ListNode]":
        return names["list_node"](value)
    if kind == "List[Optional[ListNode]]":
        return [names["list_node"](values) for values in value]
    if kind == "Optional[TreeNode]":
        return names["tree_node"](value)
    return copy.deepcopy(value)


def encode(kind, value):
    if kind == "Optional[ListNode]":
        return list_values(value)
    if kind == "Optional[TreeNode]":
        return tree_values(value)
    return value


def list_values(node):
    values = []
    while node:
        values.append(node.val)
        node = node.next
    return values


def tree_values(root):
    values, queue = [], deque([root])
    while queue:
        node = queue.popleft()
        values.append(node.val if node else None)
        if node:
            queue += [node.left, node.right]
    while values and values[-1] is None:
        values.pop()
    return values


def ordered(value):
    return sorted(sorted(v) if isinstance(v, list) else v for v in value)


def test_row_runs_as_a_row_of_the_dataset():
    row = PROBLEMS[0].row()
    source = f"{row['prompt']}\n{row['completion']}\n{row['test']}\ncheck({row['entry_point']})"
    exec(compile(source, "row", "exec"), {"__name__": "row"})
    assert row["difficulty"] in ("Easy", "Medium", "Hard")
    assert row["input_output"][0].keys() == {"input", "output"}
    json.dumps(row)


GOOD = (FOLDER / "even-doors.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("# Even Doors", "Even Doors", "must start with"),
        ("- tags: math\n", "", "must start with"),
        ("difficulty: easy", "difficulty: eazy", "Did you mean 'easy'"),
        ("split: train", "split: dev", "split 'dev' is unknown"),
        ("## Slow reference", "## Slow", "needed, in this order"),
        ("## Tests\n\n```python\n", "## Tests\n\n", "section 'Tests' must be one block"),
        ("Input: ", "Given: ", "shows no example"),
        ("Output: 3", "Output: three", "Expecting value"),
        ("Input: first = 3, last", "Input: 3, last", "is not 'name = value, name = value'"),
        ("class Solution:\n    def countEven(self, first: int, last: int) -> int:\n        pass", "pass", "no method"),
    ],
)
def test_malformed_file_is_refused(old, new, message):
    assert old in GOOD
    with pytest.raises(DatasetError, match=f"problem 'even-doors'.*{re.escape(message)}"):
        parse_problem("even-doors", GOOD.replace(old, new, 1) if old != "Input: " else GOOD.replace(old, new))


def test_sections_are_read_verbatim(tmp_path):
    (tmp_path / "even-doors.md").write_text(GOOD, encoding="utf-8")
    (tmp_path / "notes.txt").write_text("not a problem", encoding="utf-8")
    (problem,) = read_problems(tmp_path)
    assert problem == parse_problem("even-doors", GOOD)
    sections = (problem.starter_code, problem.reference, problem.slow_reference, problem.wrong_answer, problem.tests)
    for name, source in zip(SECTIONS[1:], sections, strict=True):
        assert f"## {name}\n\n```python\n{source}```\n" in GOOD


def test_reading_does_not_run_code():
    source = inspect.getsource(inspect.getmodule(read_problems))
    assert not re.search(r"\b(exec|eval|compile|import_module)\(", source.replace("re.compile(", ""))


@pytest.mark.parametrize(
    ("values", "left", "right"),
    [([1], None, None), ([1, 2], 2, None), ([1, None, 3], None, 3), ([1, 2, 3, None, 4], 2, 3)],
)
def test_tree_node_reads_level_by_level(values, left, right):
    root = namespace()["tree_node"](values)
    assert (root.left and root.left.val, root.right and root.right.val) == (left, right)
    assert tree_values(root) == values


def test_lists_and_trees_compare_by_value_and_shape():
    names = namespace()
    build, same = names["list_node"], names["is_same_list"]
    assert build([]) is None
    assert same(build(range(50_000)), build(range(50_000)))
    for a, b in [([1], []), ([], [1]), ([1, 2], [1]), ([1, 2], [2, 1])]:
        assert not same(build(a), build(b))
    build, same = names["tree_node"], names["is_same_tree"]
    chain = [0] + [1, None] * 20_000
    assert same(build(chain), build(chain))
    for a, b in [([1], []), ([1, 2], [1, None, 2]), ([1, 2, 3], [1, 3, 2]), ([1], [2])]:
        assert not same(build(a), build(b))


def test_prelude_offers_what_the_dataset_offers():
    path = UPSTREAM / "LeetCodeDataset-v0.3.1-test.jsonl.gz"
    if not path.exists():
        pytest.skip(f"needs {path.name}")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        prompts = {json.loads(line)["prompt"] for line in file}
    ours, numbers = namespace(), random.Random(0)
    for prompt in prompts:
        theirs = {"__name__": "upstream"}
        exec(compile(prompt, "upstream", "exec"), theirs)
        missing = {name for name in theirs if not name.startswith("_")} - ours.keys()
        assert missing <= {"SortedList", "SortedDict", "SortedSet"}
        assert ours["pow"] is theirs["pow"]
        for _ in range(20):
            values = [0] + [numbers.choice([None, 1, 2]) for _ in range(numbers.randint(0, 12))]
            if "tree_node" in theirs:
                assert tree_values(ours["tree_node"](values)) == tree_values(theirs["tree_node"](values))
            if "list_node" in theirs:
                assert list_values(ours["list_node"](values)) == list_values(theirs["list_node"](values))
