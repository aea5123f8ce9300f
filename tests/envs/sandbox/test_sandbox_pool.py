# ruff: noqa: E501 (programs, as long as they are)
"""Workers: shared, replaced when they die, at home in one process, gone with it."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandbox_processes import alive, children, gone, worker_processes

from corrgrpo_envs.sandbox import Check, Limits, Outcome, Sandbox, SandboxError, close_all, shared
from corrgrpo_envs.sandbox.__main__ import main
from corrgrpo_envs.sandbox.hosts.embedded import EmbeddedHost
from corrgrpo_envs.sandbox.worker import WorkerLostError

CHECK = Check("def check(candidate):\n    assert candidate(2) == 4", "f")
GOOD, BAD = "def f(x): return 2 * x", "def f(x): return x"
LIMITS = Limits(cpu_seconds=1.0)


@pytest.fixture
def own() -> Iterator[Sandbox]:
    sandbox = Sandbox("embedded", workers=1)
    assert sandbox.judge(GOOD, CHECK, LIMITS).passed
    yield sandbox
    sandbox.close()


def test_shared_is_one_per_arguments() -> None:
    assert shared("embedded") is shared("embedded")
    assert shared("embedded") is not shared("embedded", workers=1)


def test_nothing_starts_before_it_is_used() -> None:
    before = children(os.getpid())
    Sandbox("embedded")
    assert children(os.getpid()) == before


def test_closing_ends_every_process_and_use_starts_anew(own: Sandbox) -> None:
    pids = worker_processes(own)
    assert len(pids) >= 2
    own.close()
    assert gone(pids)
    assert own.judge(GOOD, CHECK, LIMITS).passed


@pytest.mark.parametrize("place", range(3))
def test_a_killed_worker_is_replaced(own: Sandbox, place: int) -> None:
    pids = worker_processes(own)
    os.kill(pids[min(place, len(pids) - 1)], signal.SIGKILL)
    assert own.judge(GOOD, CHECK, LIMITS).passed
    assert own.judge(BAD, CHECK, LIMITS).outcome is Outcome.FAILED
    assert gone(pids)


SPINS = "import time\ndef f(x):\n    end = time.process_time() + 0.3\n    while time.process_time() < end: pass\n    return 2 * x"


def busy(sandbox: Sandbox, threads: int) -> list[threading.Thread]:
    """Threads that judge a program each, which takes a while; all have begun."""
    judging = [threading.Thread(target=sandbox.judge, args=(SPINS, CHECK, LIMITS)) for _ in range(threads)]
    for thread in judging:
        thread.start()
    end = time.monotonic() + 20
    while len(sandbox._workers) - len(sandbox._idle) < threads and time.monotonic() < end:
        time.sleep(0.005)
    return judging


def test_all_workers_killed_while_idle_are_replaced() -> None:
    """Each of them would use up a try, were it taken."""
    sandbox = Sandbox("embedded", workers=3)
    for thread in busy(sandbox, 3):
        thread.join(60)
    assert len(sandbox._idle) == 3
    for worker in list(sandbox._workers):
        os.kill(worker._link._process.pid, signal.SIGKILL)
    assert sandbox.judge(GOOD, CHECK, LIMITS).passed
    assert len(sandbox._idle) == sandbox._started == 1
    sandbox.close()


def test_closing_while_workers_are_in_use_gives_their_places_back() -> None:
    sandbox = Sandbox("embedded", workers=2)
    for _ in range(2):
        judging = busy(sandbox, 2)
        sandbox.close()
        for thread in judging:
            thread.join(60)
        assert (sandbox._started, sandbox._idle) == (0, [])
    assert sandbox.judge(GOOD, CHECK, LIMITS).passed
    sandbox.close()


@pytest.mark.parametrize("place", [0, -1, -2, -3])
def test_killed_in_the_middle_no_verdict_is_wrong(own: Sandbox, place: int) -> None:
    """Some process of the worker is killed while a program runs: a new worker gives the verdict."""
    verdicts = []
    thread = threading.Thread(target=lambda: verdicts.append(own.judge(SPINS, CHECK, LIMITS)))
    before = worker_processes(own)
    thread.start()
    end = time.monotonic() + 10
    while len(running := worker_processes(own)) < len(before) + 1 and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(running[place], signal.SIGKILL)
    thread.join(120)
    assert verdicts[0].passed, verdicts
    assert own.judge(GOOD, CHECK, LIMITS).passed


class Dying:
    """A host whose workers start and then fail."""

    name = "embedded"

    def __init__(self, failures: int) -> None:
        self.failures, self.started = failures, 0
        self._real = EmbeddedHost(())

    def start(self) -> Any:
        self.started += 1
        worker = self._real.start()
        if self.started <= self.failures:
            os.kill(worker._link._process.pid, signal.SIGKILL)
        return worker


@pytest.mark.parametrize(("failures", "outcome"), [(1, Outcome.PASSED), (2, Outcome.INFRASTRUCTURE_ERROR)])
def test_infrastructure_is_tried_twice(failures: int, outcome: Outcome) -> None:
    sandbox = Sandbox("embedded", workers=1)
    host = Dying(failures)
    sandbox._hosts = [host]
    verdict = sandbox.judge(GOOD, CHECK, LIMITS)
    assert verdict.outcome is outcome
    assert not verdict.failed_by_program
    assert host.started == 2
    sandbox.close()


def test_worker_that_never_starts_is_infrastructure() -> None:
    sandbox = Sandbox("embedded", workers=1)
    sandbox._hosts = [EmbeddedHost((), interpreter="/bin/false")]
    assert sandbox.judge(GOOD, CHECK, LIMITS).outcome is Outcome.INFRASTRUCTURE_ERROR
    with pytest.raises(WorkerLostError, match="does not start"):
        sandbox.isolation()


def test_without_an_engine_docker_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(SandboxError, match="Docker"):
        Sandbox("docker", workers=1).judge(GOOD, CHECK, LIMITS)


def test_several_threads_get_their_own_verdicts() -> None:
    sandbox = Sandbox("embedded", workers=2)
    outcomes: dict[int, Outcome] = {}

    def work(number: int) -> None:
        check = Check(f"def check(candidate):\n    assert candidate({number}) == {number * 2}", "f")
        outcomes[number] = sandbox.judge(GOOD if number % 2 else BAD, check, LIMITS).outcome

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {number: Outcome.PASSED if number % 2 else Outcome.FAILED for number in range(1, 13)}
    assert len(sandbox._workers) <= 2
    sandbox.close()


def _in_a_fork(sandbox: Sandbox, answers: Any) -> None:
    answers.put((sandbox.judge(GOOD, CHECK, LIMITS).outcome, len(worker_processes(sandbox))))
    sandbox.close()


def test_a_forked_process_has_workers_of_its_own(own: Sandbox) -> None:
    pids = worker_processes(own)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    process = context.Process(target=_in_a_fork, args=(own, answers))
    process.start()
    assert answers.get(timeout=120)[0] is Outcome.PASSED
    process.join(60)
    assert all(map(alive, pids))
    assert own.judge(GOOD, CHECK, LIMITS).passed
    assert worker_processes(own) == pids


SCRIPT = """
import sys, threading, time
from corrgrpo_envs.sandbox import Check, Limits, shared

sandbox = shared("embedded", workers=1)
sandbox.judge("def f(): pass", Check("def check(c): c()", "f"))
print([worker._link._process.pid for worker in sandbox._workers][0], flush=True)
"""
ENDS = {
    "killed while idle": ("time.sleep(100)", signal.SIGKILL),
    "killed during a job": (
        "sandbox.judge('while True: pass', Check('def check(c): c()', 'f'), Limits(cpu_seconds=100))",
        signal.SIGKILL,
    ),
    "interrupted during a job": (
        "sandbox.judge('while True: pass', Check('def check(c): c()', 'f'), Limits(cpu_seconds=100))",
        signal.SIGINT,
    ),
    "at its own end": ("time.sleep(0.5)", None),
    "by an exception": ("time.sleep(0.5); raise RuntimeError", None),
    "with a job in a thread": (
        "threading.Thread(target=sandbox.judge, args=('while True: pass', Check('def check(c): c()', 'f'), "
        "Limits(cpu_seconds=100)), daemon=True).start(); time.sleep(0.5)",
        None,
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_workers_end_with_their_process(how: str) -> None:
    script, sent = ENDS[how]
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT + script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=root,
        start_new_session=True,  # signals of this test are for the process alone
    ) as process:
        assert process.stdout is not None
        top = int(process.stdout.readline())
        pids = [top, *children(top)]
        assert len(pids) >= 2
        if sent is not None:
            time.sleep(0.3)
            process.send_signal(sent)
        process.wait(60)
    assert gone(pids)


def test_a_forgotten_sandbox_ends_its_workers() -> None:
    sandbox = Sandbox("embedded", workers=1)
    sandbox.isolation()
    pids = worker_processes(sandbox)
    del sandbox
    gc.collect()
    assert gone(pids)


def _shared_in_a_process(answers: Any) -> None:
    sandbox = shared("embedded", workers=1)
    outcome = sandbox.judge(GOOD, CHECK, LIMITS).outcome
    answers.put((outcome, worker_processes(sandbox)))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_shared_in_processes_of_their_own(method: str) -> None:
    """As in `AsyncVectorEnv`: every process has workers of its own, which end with it."""
    assert shared("embedded", workers=1).judge(GOOD, CHECK, LIMITS).passed
    ours = worker_processes(shared("embedded", workers=1))
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    processes = [context.Process(target=_shared_in_a_process, args=(answers,)) for _ in range(2)]
    for process in processes:
        process.start()
    found = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert [outcome for outcome, _ in found] == [Outcome.PASSED] * 2
    theirs = [set(pids) for _, pids in found]
    assert not theirs[0] & theirs[1]
    assert not set(ours) & (theirs[0] | theirs[1])
    assert gone([*theirs[0], *theirs[1]])
    assert shared("embedded", workers=1).judge(GOOD, CHECK, LIMITS).passed
    assert worker_processes(shared("embedded", workers=1)) == ours


def test_forks_of_a_process_with_busy_threads() -> None:
    """A trainer forks (data loaders) while its threads judge: no lock is inherited, no stream shared."""
    sandbox = Sandbox("embedded", workers=2)
    stop = threading.Event()
    outcomes: list[Outcome] = []

    def work() -> None:
        while not stop.is_set():
            outcomes.append(sandbox.judge(GOOD, CHECK, LIMITS).outcome)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    codes = []
    try:
        for _ in range(8):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    code = 0 if sandbox.judge(BAD, CHECK, LIMITS).outcome is Outcome.FAILED else 2
                    sandbox.close()
                finally:
                    os._exit(code)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    sandbox.close()
    assert codes == [0] * 8
    assert set(outcomes) == {Outcome.PASSED}


def test_an_interrupt_leaves_no_answer_behind(own: Sandbox) -> None:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        own.judge("import time\ndef f(x): time.sleep(5)", CHECK, LIMITS)
    assert own.judge(GOOD, CHECK, LIMITS).passed


def _state(sandbox: Sandbox) -> tuple[list[int], int, int]:
    pids = worker_processes(sandbox)
    descriptors = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in (*pids, os.getpid()))
    memory = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pids, descriptors, memory * 4096


MIXED = {
    GOOD: Outcome.PASSED,
    BAD: Outcome.FAILED,
    "1 +": Outcome.SYNTAX_ERROR,
    "import os; os._exit(1)": Outcome.EXCEPTION,
    "def f(x): return [x] * 10**5": Outcome.FAILED,
    "x = [0] * 10**10": Outcome.MEMORY_LIMIT,
}


def _wrong(sandbox: Sandbox, jobs: int) -> list[tuple[str, Any]]:
    """Judge so many programs of every kind; return the verdicts that are not as they should be."""
    wrong = []
    for number in range(jobs):
        program, wanted = list(MIXED.items())[number % len(MIXED)]
        verdict = sandbox.judge(program, CHECK, LIMITS)
        if verdict.outcome is not wanted:
            wrong.append((program, verdict))
    return wrong


def test_nothing_grows(own: Sandbox) -> None:
    assert not _wrong(own, 12)
    gc.collect()
    before = _state(own)
    assert not _wrong(own, 60)
    gc.collect()
    after = _state(own)
    assert after[:2] == before[:2]
    assert after[2] < before[2] + (4 << 20)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_soak(own: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    """20,000 jobs; a process of the worker is killed now and then in the middle of one."""
    assert not _wrong(own, 300)
    gc.collect()
    report = []
    threads = threading.active_count()
    for part in range(4):
        before = _state(own)
        assert not _wrong(own, 5000)
        gc.collect()
        after = _state(own)
        report.append(
            f"{5000 * (part + 1)} jobs: {len(after[0])} processes, {after[1]} descriptors, {after[2] >> 20} MiB"
        )
        assert len(after[0]) == len(before[0])
        assert after[1] == before[1]
        assert after[2] < before[2] + (8 << 20)
        pids = worker_processes(own)
        timer = threading.Timer(0.05, os.kill, (pids[part % len(pids)], signal.SIGKILL))
        timer.start()
        assert not _wrong(own, 60)
        timer.join()
        assert gone(pids)
    assert threading.active_count() == threads
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(report) + "\n")


def test_report_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--host", "embedded"]) == 0
    printed = capsys.readouterr().out
    for word in ("host", "level", "system calls", "files", "users", "namespaces"):
        assert word in printed


def test_close_all_closes_what_is_open(own: Sandbox) -> None:
    pids = worker_processes(own)
    close_all()
    assert gone(pids)
