"""What a person sees of an evaluation: progress, tables, published rows."""

import io
import math
import re

from rich.console import Console

from corrgrpo_train.evaluate.display import PLAIN_LINES, Display
from corrgrpo_train.evaluate.results import EnvironmentResult, Result
from corrgrpo_train.evaluate.sample import Sample
from corrgrpo_train.evaluate.summary import aggregates, summarised
from corrgrpo_train.evaluate.tables import show


def sample(task, reward=1.0, environment="e", **metrics):
    components = {} if math.isnan(reward) else {"a": reward}
    return Sample(environment, task, 0, "ok", reward, components, {"a": 1.0}, metrics, ("t",), False, 1, None)


def console(terminal=False):
    return Console(file=io.StringIO(), force_terminal=terminal, width=150, highlight=False, color_system=None)


def test_plain_lines_are_few_and_say_how_long_it_takes():
    output, now = console(), [0.0]
    display = Display(output, clock=lambda: now[0])
    display.begin("E-v0", 100, 1100)
    for number in range(1000):
        now[0] += 0.5
        display.advance([sample(str(number), math.nan if number % 10 == 0 else 0.5)])
    lines = output.file.getvalue().splitlines()
    assert lines[0] == "E-v0: 1100 episodes, 100 are there already"
    assert PLAIN_LINES - 3 <= len(lines) <= PLAIN_LINES + 2
    # 450 of 1,000 to play: 0.5 s each for the other 550.
    halfway = next(line for line in lines if line.startswith("E-v0: 550/1100"))
    assert halfway == "E-v0: 550/1100  mean reward 0.500  unscored 45  4 min 35 s left"
    assert lines[-1] == "E-v0: 1100/1100  mean reward 0.500  unscored 100  0 s left"


def test_a_terminal_has_a_bar_that_leaves_nothing_behind():
    output = console(terminal=True)
    display = Display(output)
    display.begin("E-v0", 0, 2)
    display.advance([sample("a", 0.25)])
    display.close()
    shown = output.file.getvalue()
    assert "1/2" in shown
    assert "mean reward 0.250" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1, "the cursor is back"


def test_quiet_shows_notes_alone():
    output = console()
    display = Display(output, quiet=True)
    display.begin("E-v0", 0, 1)
    display.advance([sample("a")])
    display.note("told \x1b[31m")
    display.close()
    assert output.file.getvalue() == "told ?[31m\n"


def test_published_rows_stand_below_one_s_own():
    scores = {"function_name_score": 1.0, "parameter_names_score": 1.0, "parameter_values_score": 0.5}
    right = {**scores, "all_exact": 1.0, "exact": 1.0, "format_score": 1.0}
    samples = (sample("a", environment="RLLA-v0", **right), sample("b", environment="RLLA-v0", **right))
    found = {"RLLA-v0": summarised(EnvironmentResult("RLLA-v0", ("a", "b"), samples))}
    result = Result({"model": "mine \x1b[1m"}, (1, 1), found, aggregates(found))
    output = console()
    show(output, result)
    shown = output.file.getvalue()
    assert "\x1b" not in shown
    row = next(line for line in shown.splitlines() if "here: mine" in line)
    assert re.findall(r"\d+\.\d+|-", row) == ["100.00", "100.00", "50.00", "100.00", "-", "-", "-", "-", "-"]
    lines = shown.splitlines()
    published = next(number for number, line in enumerate(lines) if "Qwen2.5-7B CorrGRPO" in line)
    assert re.findall(r"\d+\.\d+", lines[published].split("CorrGRPO")[1])[:4] == ["95.07", "94.95", "82.14", "67.61"]
    assert published > lines.index(row)
    assert "protocol: RLLA-4K's 80 test rows, 71 of them with calls" in shown
    # Wilson's interval of 2 of 2: from 1 / (1 + z²/2).
    assert re.search(r"all exact +│ 100.0 % │ +34.2 to 100.0 │ +2 ", shown)
    output = console()
    show(output, result, published=False)
    assert "Published" not in output.file.getvalue()
