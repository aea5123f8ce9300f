"""Timing takes turns: first come, first served, the dead give up their places, and nobody waits for ever."""

import itertools
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from corrgrpo_envs.sandbox import Check, Limits, Sandbox, turns


def _hold(queues: Path, taken: Any) -> None:
    with turns.turn([0], queues):
        taken.set()
        time.sleep(100)


def _waiting(queue: Path, count: int) -> None:
    end = time.monotonic() + 30
    while len([name for name in os.listdir(queue) if name.isdigit()]) < count:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_first_come_first_served(tmp_path: Path) -> None:
    order: list[int] = []
    inside = 0
    most = 0

    def work(number: int) -> None:
        nonlocal inside, most
        with turns.turn([0], tmp_path):
            inside += 1
            most = max(most, inside)
            order.append(number)
            time.sleep(0.02)
            inside -= 1

    with turns.turn([0], tmp_path):
        threads = []
        for number in range(6):
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            _waiting(tmp_path / "0", number + 2)
    for thread in threads:
        thread.join(30)
    assert order == list(range(6))
    assert most == 1
    assert os.listdir(tmp_path / "0") == ["door"]


def test_free_core_is_preferred(tmp_path: Path) -> None:
    with turns.turn([3, 5], tmp_path) as first, turns.turn([3, 5], tmp_path) as second:
        assert (first, second) == (3, 5)
        with turns.turn([5, 3, 9], tmp_path) as third:
            assert third == 9


def test_a_killed_process_gives_its_turn_up(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    taken = context.Event()
    process = context.Process(target=_hold, args=(tmp_path, taken))
    process.start()
    assert taken.wait(60)
    assert process.pid is not None
    threading.Timer(0.3, os.kill, (process.pid, signal.SIGKILL)).start()
    start = time.monotonic()
    with turns.turn([0], tmp_path, longest_wait=60):
        assert time.monotonic() - start < 30
    process.join(10)


def test_waiting_ends(tmp_path: Path) -> None:
    with turns.turn([0], tmp_path), turns.turn([0], tmp_path, longest_wait=0.1) as core:
        assert core == 0


def test_without_a_folder_nobody_waits() -> None:
    with turns.turn([0], None), turns.turn([0], None) as core:
        assert core == 0


def test_measurements_of_two_sandboxes_take_turns(embedded: Sandbox, tmp_path: Path, monkeypatch: Any) -> None:
    """Two that are asked to use one core at once: no round of one lies within a measurement of the other."""
    monkeypatch.setattr(turns, "folder", lambda: tmp_path)
    core = min(os.sched_getaffinity(0))
    spans: list[tuple[float, float]] = []
    ask = Sandbox._ask

    def timed(self: Sandbox, *arguments: Any) -> Any:
        begin = time.monotonic()
        report = ask(self, *arguments)
        spans.append((begin, time.monotonic()))
        return report

    monkeypatch.setattr(Sandbox, "_ask", timed)
    program = "def f(n): return sum(range(20000))"
    check = Check("def check(c):\n    assert c(0) == 199990000", "f")

    def work() -> None:
        other = Sandbox("embedded", workers=1)
        assert other.measure(program, program, check, Limits(), rounds=2, max_rounds=2, core=core).measured
        other.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    spans.sort()
    assert len(spans) == 3
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
