# ruff: noqa: E501 (programs, as long as they are)
"""The judge: a test that runs apart from the program sees it as it would see a function of its own."""

import pytest

from corrgrpo_envs.sandbox import Case, Check, Limits, Outcome, Sandbox

NODES = """
class ListNode:
    def __init__(self, val=0, next=None):
        self.val, self.next = val, next

class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val, self.left, self.right = val, left, right

def linked(values):
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head

def plain(node):
    values = []
    while node:
        values.append(node.val)
        node = node.next
    return values
"""
LIMITS = Limits(cpu_seconds=1.0, memory_mb=512)


def judged(
    sandbox: Sandbox, program: str, test: str, *, entry: str = "f", setup: str = "", names: tuple[str, ...] = ()
):
    lines = "\n".join("    " + line for line in test.strip("\n").split("\n"))
    check = Check(test=f"def check(candidate):\n{lines}", entry_point=entry, setup=setup, names=names)
    return sandbox.judge(program, check, LIMITS)


def test_positional_and_named_arguments(sandbox: Sandbox) -> None:
    program = "def f(a, b=2, *c, d, **e): return [a, b, c, d, e]"
    verdict = judged(
        sandbox,
        program,
        "assert candidate(1, d=4) == [1, 2, (), 4, {}]\nassert candidate(1, 3, 5, d=4, x=6)[4] == {'x': 6}",
    )
    assert verdict.passed
    assert verdict.calls == 2


def test_assertion_of_the_test_and_of_the_program_differ(sandbox: Sandbox) -> None:
    failed = judged(sandbox, "def f(x): return x", "assert candidate(1) == 2, 'not two'")
    own = judged(sandbox, "def f(x): assert False, 'mine'", "assert candidate(1) == 2")
    assert (failed.outcome, own.outcome) == (Outcome.FAILED, Outcome.EXCEPTION)
    assert "not two" in failed.message
    assert "mine" in own.message


def test_failed_exactly_one_of_many(sandbox: Sandbox) -> None:
    verdict = judged(sandbox, "def f(x): return x if x != 57 else 0", "for x in range(100): assert candidate(x) == x")
    assert (verdict.outcome, verdict.calls) == (Outcome.FAILED, 58)


def test_exceptions_reach_the_test(sandbox: Sandbox) -> None:
    program = "class Mine(ValueError): pass\ndef f(x):\n    if x: raise Mine('bad ' + str(x))\n    raise KeyError(3)"
    test = """
for x, kind in ((1, ValueError), (0, KeyError), (0, LookupError)):
    try:
        candidate(x)
        assert False, "nothing raised"
    except kind as error:
        assert x == 0 or "bad 1" in str(error)
"""
    assert judged(sandbox, program, test).passed


def test_uncaught_exception_names_kind_and_line(sandbox: Sandbox) -> None:
    verdict = judged(sandbox, "def f(x):\n    return 1 / x", "assert candidate(0) == 0")
    assert verdict.outcome is Outcome.EXCEPTION
    assert verdict.message == "ZeroDivisionError: division by zero (line 2)"


def test_error_of_the_test_on_a_result(sandbox: Sandbox) -> None:
    verdict = judged(sandbox, "def f(x): return None", "assert len(candidate(0)) == 0")
    assert verdict.outcome is Outcome.TEST_ERROR
    assert verdict.failed_by_program


@pytest.mark.parametrize(
    ("test", "setup"),
    [
        ("def check(candidate:", ""),
        ("x = 1", ""),
        ("check = 5", ""),
        ("import nothing_like_this", ""),
        ("def check(candidate): pass", "1 / 0"),
        ("def check(candidate): undefined_name", ""),
        ("raise SystemExit", ""),
    ],
)
def test_broken_tests_are_not_the_programs_fault(sandbox: Sandbox, test: str, setup: str) -> None:
    verdict = sandbox.judge("def f(): pass", Check(test=test, entry_point="f", setup=setup), LIMITS)
    assert verdict.outcome is Outcome.INVALID_TEST
    assert not verdict.failed_by_program


def test_lists_are_edited_in_place(sandbox: Sandbox) -> None:
    program = "def f(xs, grid, d, s):\n    xs.sort(); grid[0][1] = 9; grid.append([7]); d['b'] = [2]; d['a'].append(1); s.add(5)"
    test = """
xs, row, s = [3, 1, 2], [1, 2], {1}
grid, d = [row], {'a': []}
assert candidate(xs, grid, d, s) is None
assert xs == [1, 2, 3] and row == [1, 9] and grid == [[1, 9], [7]] and d == {'a': [1], 'b': [2]} and s == {1, 5}
ys = [5, 4]
candidate(ys, grid=[[0, 0]], d={'a': []}, s=set())
assert ys == [4, 5]
"""
    assert judged(sandbox, program, test).passed


def test_unedited_arguments_stay_the_same_objects(sandbox: Sandbox) -> None:
    test = "xs = [[1], [2]]\nfirst = xs[0]\nassert candidate(xs) == [[1], [2]]\nassert xs[0] is first"
    assert judged(sandbox, "def f(xs): return xs", test).passed


def test_nodes_go_and_come(sandbox: Sandbox) -> None:
    program = (
        NODES
        + """
def f(head):
    before = None
    while head:
        head.next, before, head = before, head, head.next
    return before
"""
    )
    test = """
assert plain(candidate(linked([1, 2, 3]))) == [3, 2, 1]
assert candidate(None) is None
head = linked([1, 2])
back = candidate(head)
assert back.next is head and head.next is None
"""
    assert judged(sandbox, program, test, setup=NODES).passed


def test_program_may_define_nodes_again(sandbox: Sandbox) -> None:
    program = "class ListNode:\n    def __init__(self, v, n=None): self.val, self.next = v, n\ndef f(head): return ListNode(0, head)"
    assert judged(sandbox, program, "assert plain(candidate(linked([1]))) == [0, 1]", setup=NODES).passed


def test_trees_edited_in_place_and_lists_of_nodes(sandbox: Sandbox) -> None:
    program = (
        NODES
        + "def f(trees):\n    for t in trees: t.left, t.right = t.right, t.left\n    return [t.val for t in trees] + [trees[0]]"
    )
    test = """
tree = TreeNode(1, TreeNode(2), None)
result = candidate([tree, tree])
assert result[:2] == [1, 1] and result[2] is tree
assert tree.left.val == 2 and tree.right is None
assert candidate([tree])[0] == 1 and tree.left is None and tree.right.val == 2
"""
    assert judged(sandbox, program, test, setup=NODES).passed


def test_floats_and_kinds_are_exact(sandbox: Sandbox) -> None:
    program = "def f(x): return x"
    test = """
import math
for x in (0.1 + 0.2, 1e308, 5e-324, -0.0, math.inf, 10**400, 'ä\\U0001f600', b'x', (1, (2,)), {1: {2}}, True, 1.0):
    y = candidate(x)
    assert y == x and type(y) is type(x)
assert math.isnan(candidate(math.nan))
assert candidate((1,)) != [1]
"""
    assert judged(sandbox, program, test).passed


def test_one_instance_for_the_whole_test(sandbox: Sandbox) -> None:
    program = "class Solution:\n    n = 0\n    def f(self):\n        self.n += 1\n        return self.n"
    assert judged(sandbox, program, "assert [candidate(), candidate()] == [1, 2]", entry="Solution().f").passed


def test_further_functions_by_name(sandbox: Sandbox) -> None:
    program = "def f(x): return x\ndef g(x): return 2 * x"
    assert judged(sandbox, program, "assert g(candidate(2)) == 4", names=("g",)).passed


def test_missing_package_is_named(sandbox: Sandbox) -> None:
    for program in ("import numpy.linalg as la", "def f():\n    from torch import nn"):
        verdict = judged(sandbox, program, "candidate()")
        assert verdict.outcome is Outcome.MISSING_PACKAGE
        assert verdict.missing in ("numpy", "torch")


def test_times_and_memory_are_reported(sandbox: Sandbox) -> None:
    program = "import time\ndef f():\n    x = bytearray(80 << 20)\n    end = time.process_time() + 0.2\n    while time.process_time() < end: pass"
    verdict = judged(sandbox, program, "candidate()")
    assert verdict.passed
    assert 0.2 <= verdict.cpu_seconds < 0.6
    assert verdict.wall_seconds >= 0.2
    assert verdict.memory_bytes > 80 << 20


def test_cpu_time_limits_and_not_wall_time(sandbox: Sandbox) -> None:
    spins = "def f():\n    while True: pass"
    verdict = sandbox.judge(spins, Check("def check(c): c()", "f"), Limits(cpu_seconds=0.3, wall_seconds=1000))
    assert verdict.outcome is Outcome.TIMEOUT
    assert 0.3 <= verdict.cpu_seconds < 0.6
    sleeps = "import time\ndef f(): time.sleep(0.5)"
    assert sandbox.judge(sleeps, Check("def check(c): c()", "f"), Limits(cpu_seconds=0.2, wall_seconds=30)).passed


def test_test_that_loops_on_a_result_is_a_timeout(sandbox: Sandbox) -> None:
    program = NODES + "def f():\n    a = ListNode(1); a.next = a; return a"
    limits = Limits(cpu_seconds=0.3, wall_seconds=2)
    check = Check("def check(c):\n    n = c()\n    while n: n = n.next", "f", setup=NODES)
    verdict = sandbox.judge(program, check, limits)
    assert verdict.outcome is Outcome.TIMEOUT


def test_large_values_and_programs(sandbox: Sandbox) -> None:
    program = "#" * 200_000 + "\ndef f(xs): return xs[::-1]"
    test = "xs = list(range(200_000))\nassert candidate(xs) == xs[::-1]\ntext = 'ab' * 500_000\nassert candidate(text) == text[::-1]"
    assert judged(sandbox, program, test).passed


def test_objects_of_classes_that_the_test_takes_by_name(sandbox: Sandbox) -> None:
    """The test makes objects of the program's classes and passes them back; it sees nothing of them but who they are."""
    program = """
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
    def __eq__(self, other): return True
    __hash__ = None
class Other: pass
def f(pairs): return sum(p.a * p.b for p in pairs)
def g(pair): pair.a = 10; return pair
def h(): return [Pair(1, 2), 3]
def other(): return Other()
"""
    test = """
p = Pair(2, 5)
assert f([Pair(1, 2), p, Pair(b=4, a=3)]) == 24
assert g(p) is p and f([p]) == 50
assert g(Pair(0, 0)) != p and h()[0] != 3
"""
    names = ("f", "g", "h", "other", "Pair")
    assert judged(sandbox, program, test, entry="f", names=names).passed
    lying = judged(sandbox, program, "assert g(Pair(1, 1)) == 5", entry="f", names=names)
    assert lying.outcome is Outcome.FAILED
    unnamed = judged(sandbox, program, "other()", entry="f", names=names)
    assert unnamed.outcome is Outcome.FAILED


def test_matches_of_patterns_are_true(sandbox: Sandbox) -> None:
    program = "import re\ndef f(text): return re.search('b+', text)"
    assert judged(sandbox, program, "assert candidate('abc')\nassert not candidate('ac')").passed
    assert judged(sandbox, program, "assert candidate('abc') == 'b'").outcome is Outcome.FAILED


def test_large_arguments_are_limited_by_the_test_alone(sandbox: Sandbox) -> None:
    limits = Limits(cpu_seconds=5.0, value_bytes=1 << 16)
    test = "def check(c):\n    xs = list(range(100_000))\n    assert c(xs) == 100_000\n    assert xs[0] == %d and len(xs) == 100_000"
    for program, first in (("def f(xs): return len(xs)", 0), ("def f(xs): xs.reverse(); return len(xs)", 99_999)):
        assert sandbox.judge(program, Check(test % first, "f"), limits).passed
    returned = sandbox.judge("def f(xs): return xs", Check(test % 0, "f"), limits)
    assert returned.outcome is Outcome.OUTPUT_LIMIT
    grown = sandbox.judge("def f(xs): xs *= 4; return len(xs) // 4", Check(test % 0, "f"), limits)
    assert grown.outcome is Outcome.OUTPUT_LIMIT


def test_tests_share_a_judge_and_nothing_else(sandbox: Sandbox) -> None:
    """What an earlier test did to its interpreter, or a program to values of the test, is not there for the next."""
    spoils = (
        "import builtins, random, sys\nkept = [[3, 1]]\nbuiltins.sorted = len\nbuiltins.leak = 1\nsys.setrecursionlimit(100)\n"
        "def check(c):\n    assert c(kept) is None"
    )
    sandbox.judge("def f(x): x.append(1)", Check(spoils, "f"), LIMITS)
    looks = """
import builtins, random
kept = [[3, 1]]
drawn = random.random()
def deep(n): return n and deep(n - 1)
def check(c):
    assert deep(5000) == 0
    assert not hasattr(builtins, 'leak') and sorted([2, 1]) == [1, 2]
    assert kept == [[3, 1]] and c(kept) is None and kept == [[3, 1], 1]
    import sys
    assert not hasattr(sys.modules['test'], 'spoils')
"""
    for _ in range(2):
        verdict = sandbox.judge("def f(x): x.append(1)", Check(looks, "f"), LIMITS)
        assert verdict.passed, verdict


def test_random_numbers_are_the_same_in_every_run(sandbox: Sandbox) -> None:
    program = "import random\ndef f(): return [random.random(), random.randrange(100)]"
    values = [sandbox.call(program, "f", limits=LIMITS).value for _ in range(2)]
    assert values[0] == values[1] is not None


def test_the_judge_is_replaced_when_a_test_does_not_end(sandbox: Sandbox) -> None:
    spins = Check("def check(c):\n    c()\n    while True: pass", "f")
    limits = Limits(cpu_seconds=0.2, wall_seconds=1)
    assert sandbox.judge("def f(): pass", spins, limits).outcome is Outcome.TIMEOUT
    assert judged(sandbox, "def f(): return 1", "assert candidate() == 1").passed
    big = Check("x = []\ndef check(c):\n    while True: x.append('x' * c())", "f")
    assert sandbox.judge("def f(): return 1 << 20", big, Limits(cpu_seconds=30)).outcome is not Outcome.PASSED
    assert judged(sandbox, "def f(): return 1", "assert candidate() == 1").passed


# ---- printed output ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "program",
    [
        "print(sum(map(int, input().split())))",
        "import sys\nprint(sum(map(int, sys.stdin.read().split())))",
        "import os\nprint(sum(map(int, os.read(0, 1000).split())))",
        "print(sum(map(int, open(0).read().split())))",
        "if __name__ == '__main__':\n    import sys\n    print(sum(map(int, sys.stdin.buffer.readline().split())))\n    sys.exit(0)",
        "import threading\ndef main(): print(sum(map(int, input().split())))\nthreading.stack_size(1 << 26)\nthreading.Thread(target=main).start()",
        "import os\nos.write(1, b'%d' % sum(map(int, input().split())))\nos._exit(0)",
        "import sys\nprint(sum(map(int, input().split())))\nsys.stdout.close()",
        "import sys\nprint(sum(map(int, input().split())), flush=True)\nsys.stdout = None",
        "import sys\nsys.__stdout__.write(str(sum(map(int, sys.__stdin__.readline().split()))))",
        "import atexit, io, sys\nsys.stdout = io.StringIO()\n"
        "atexit.register(lambda: sys.__stdout__.write(sys.stdout.getvalue()))\nprint(sum(map(int, input().split())))",
        "print(sum(map(int, input().split())))\nexit()\nprint(1)",
        "print(sum(map(int, input().split())))\nquit(1)\nprint(1)",
    ],
)
def test_programs_that_read_and_print(sandbox: Sandbox, program: str) -> None:
    cases = [Case("1 2\n", "3\n"), Case("10 20 30", "60"), Case("0\n", " 0.00 \n\n")]
    verdict = sandbox.judge_output(program, cases, LIMITS)
    assert verdict.passed, verdict
    assert verdict.calls == 3


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("print(4)", Outcome.FAILED),
        ("print(3, 3)", Outcome.FAILED),
        ("print(3)\nprint(3)", Outcome.FAILED),
        ("", Outcome.FAILED),
        ("print(3); 1 / 0", Outcome.EXCEPTION),
        ("import atexit; atexit.register(print, 4); print(3)", Outcome.FAILED),
        ("import io, sys; sys.stdout = io.StringIO(); print(3)", Outcome.FAILED),
        ("print(3", Outcome.SYNTAX_ERROR),
        ("while True: print('x' * 10000)", Outcome.OUTPUT_LIMIT),
        ("while True: pass", Outcome.TIMEOUT),
        ("import os; os.kill(os.getpid(), 9)", Outcome.EXCEPTION),
        ("import numpy", Outcome.MISSING_PACKAGE),
        ("import os; os.write(3, b'\\0\\0\\0\\1K')", Outcome.FAILED),
        ("import os; os.write(3, b'\\xff' * 9)", Outcome.OUTPUT_LIMIT),
        ("print('\\ud800')", Outcome.FAILED),
        ("print('sNaN')", Outcome.FAILED),
        ("print('NaN -sNaN1')", Outcome.FAILED),
        ("print('1e9999999999999999999')", Outcome.FAILED),
    ],
)
def test_wrong_programs_that_print(sandbox: Sandbox, program: str, outcome: Outcome) -> None:
    verdict = sandbox.judge_output(program, [Case("1 2", "3")], Limits(cpu_seconds=0.5, wall_seconds=3))
    assert verdict.outcome is outcome, verdict


# ---- other requests ------------------------------------------------------------------------------------------


def test_parse_and_compile(sandbox: Sandbox) -> None:
    assert sandbox.parse("return 1").passed
    assert sandbox.compile("return 1").outcome is Outcome.SYNTAX_ERROR
    assert sandbox.compile("x = 1").passed
    for source in ("x = (", "x = 1\0", "x = " + "-" * 300_000 + "1", "'\ud800'", "(" * 1000):
        assert sandbox.parse(source).failed_by_program
    assert sandbox.parse("\n".join(f"x{k} = {k} + {k}" for k in range(3000))).passed


def test_call_returns_values(sandbox: Sandbox) -> None:
    returned = sandbox.call("def f(a, *, b): return {a: [b, (1.5, None)]}", "f", "k", b={1, 2}, limits=LIMITS)
    assert returned.value == {"k": [{1, 2}, (1.5, None)]}
    assert sandbox.call("def f(): raise ValueError('x')", "f", limits=LIMITS).verdict.outcome is Outcome.EXCEPTION
    assert sandbox.call("def f(): return object()", "f", limits=LIMITS).verdict.outcome is Outcome.FAILED
    assert sandbox.call("import os; os._exit(0)", "f", limits=LIMITS).verdict.outcome is Outcome.EXCEPTION


def test_wrong_limits_are_named() -> None:
    for name, value in (
        ("cpu_seconds", 0),
        ("memory_mb", -1),
        ("memory_mb", 8),
        ("wall_seconds", float("nan")),
        ("cpu_seconds", "5"),
    ):
        with pytest.raises(ValueError, match=name):
            Limits(**{name: value})


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"sandbox 'dokcer' is unknown.*'docker'"):
        Sandbox("dokcer")
    with pytest.raises(ValueError, match="minimum"):
        Sandbox(minimum="best")
    with pytest.raises(ValueError, match="workers"):
        Sandbox(workers=0)
