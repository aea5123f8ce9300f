"""`Sandbox`: runs untrusted programs on workers that it starts when they are needed."""

import atexit
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from corrgrpo_envs.errors import shown, unknown
from corrgrpo_envs.sandbox import turns
from corrgrpo_envs.sandbox.hosts import docker, embedded
from corrgrpo_envs.sandbox.inside.decoder import Decoder
from corrgrpo_envs.sandbox.inside.encoder import Encoder
from corrgrpo_envs.sandbox.inside.values import Bounds
from corrgrpo_envs.sandbox.isolation import LEVELS, Isolation, SandboxError
from corrgrpo_envs.sandbox.jobs import Case, Check, Limits
from corrgrpo_envs.sandbox.verdicts import Measurement, Outcome, Returned, Verdict, measurement, too_long, verdict
from corrgrpo_envs.sandbox.worker import Worker, WorkerLostError

HOSTS = ("auto", embedded.NAME, docker.NAME)
PACKAGES = ("sortedcontainers",)
_DEFAULT = Limits()


class Host(Protocol):
    """A place where workers can be started."""

    @property
    def name(self) -> str:
        """The host's name."""

    def start(self) -> Worker:
        """Start a worker; raises SandboxError or WorkerLostError."""


class Sandbox:
    """Runs programs; safe to use from several threads, and after a fork (the child starts workers of its own).

    Args:
        host: `"embedded"`, `"docker"`, or `"auto"`: embedded where it reaches `minimum`, else docker.
        minimum: the least isolation level accepted: `"reduced"`, `"basic"`, `"strong"` or `"full"`.
        workers: at most this many programs at once; None is the number of cores, 8 at most.
        packages: pure Python packages, installed here, that programs may import.
        image: image of the docker host, with a `python3`.

    Raises:
        ValueError: for a wrong host, level or number.
    """

    def __init__(
        self,
        host: str = "auto",
        *,
        minimum: str = "basic",
        workers: int | None = None,
        packages: Sequence[str] = PACKAGES,
        image: str = docker.IMAGE,
    ) -> None:
        if host not in HOSTS:
            raise unknown("sandbox", host, HOSTS)
        if minimum not in LEVELS:
            raise unknown("minimum", minimum, LEVELS)
        if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
            raise ValueError(f"workers must be a positive integer, not {shown(workers)}")
        makers: dict[str, Host] = {
            embedded.NAME: embedded.EmbeddedHost(tuple(packages)),
            docker.NAME: docker.DockerHost(tuple(packages), image=image),
        }
        self._hosts = list(makers.values()) if host == "auto" else [makers[host]]
        self._minimum = minimum
        self._limit = workers or min(8, len(_cores()))
        self._idle: list[Worker]
        self._forget()
        _open.add(self)

    def judge(self, program: str, check: Check, limits: Limits = _DEFAULT) -> Verdict:
        """Run a test against a program. One request, whatever the number of asserts.

        The test and the program run in processes of their own; the program's sees the arguments of calls and
        nothing else of the test.
        """
        if (refused := too_long(program, limits)) is not None:
            return refused
        return verdict(self._ask({"op": "judge", "program": program, **check.plain()}, limits))

    def judge_output(self, program: str, cases: Sequence[Case], limits: Limits = _DEFAULT) -> Verdict:
        """Run a program once for each case and compare what it prints; the first failure ends it."""
        if (refused := too_long(program, limits)) is not None:
            return refused
        pairs = [(case.given, case.expected) for case in cases]
        return verdict(self._ask({"op": "cases", "program": program, "cases": pairs}, limits))

    def measure(
        self,
        program: str,
        reference: str,
        check: Check,
        limits: Limits = _DEFAULT,
        *,
        rounds: int = 8,
        max_rounds: int | None = None,
        budget_seconds: float = 10.0,
        core: int | None = None,
    ) -> Measurement:
        """Judge a program and its reference, then time both in alternated rounds on one core.

        Args:
            program: the program's source.
            reference: the reference's source, run as the program is.
            check: the test of both.
            limits: limits of each run.
            rounds: rounds to make.
            max_rounds: rounds to make at most, while odd and even ones disagree; None is three times `rounds`.
            budget_seconds: CPU time after which no further round begins; two are made in any case.
            core: the core both run on; None chooses one. One measurement runs at a time on a core, also of those
                that other processes of this user make; the others wait in line, two minutes at most.

        Raises:
            ValueError: for a wrong number of rounds or a core that this process may not use.
        """
        most = 3 * rounds if max_rounds is None else max_rounds
        if not 2 <= rounds <= most:
            raise ValueError(f"rounds must be at least 2 and at most max_rounds, not {shown(rounds)}, {shown(most)}")
        if core is not None and core not in _cores():
            raise unknown("core", core, _cores())
        if (refused := too_long(program, limits)) is not None:
            return Measurement(refused, Verdict(Outcome.FAILED, "not run"), why="the program does not pass")
        job = {
            "op": "measure",
            "program": program,
            "reference": reference,
            **check.plain(),
            "rounds": rounds,
            "max_rounds": most,
            "budget": budget_seconds,
        }
        pinned = hasattr(os, "sched_setaffinity")
        # Where no core can be chosen, whoever times at all is waited for.
        cores = [core] if core is not None else self._cores_in_turn() if pinned else [0]
        with turns.turn(cores, turns.folder()) as chosen:
            report = self._ask({**job, "core": chosen if pinned else None}, limits)
        if "sides" not in report:
            failed = verdict(report)
            return Measurement(failed, failed, why=failed.message)
        return measurement(report, pinned=pinned)

    def call(self, program: str, function: str, *arguments: Any, limits: Limits = _DEFAULT, **named: Any) -> Returned:
        """Load a program and call one of its functions; for values that `inside.values` carries."""
        if (refused := too_long(program, limits)) is not None:
            return Returned(refused)
        document = Encoder({}, [], Bounds(size=1 << 28, nodes=1 << 26)).document([list(arguments), named])
        load = {"source": program, "names": {"call": function}, "value_bytes": int(limits.value_bytes)}
        report = self._ask({"op": "call", "load": load, "arguments": document.decode("ascii")}, limits)
        value = None
        if report["outcome"] == Outcome.PASSED:
            try:
                line = report["value"].encode("ascii").split(b"\n")[2]
                value = Decoder({}, [], Bounds(size=int(limits.value_bytes))).value(line)
            except Exception as error:
                report |= {"outcome": "failed", "message": f"the program sent what is no value: {error}"}
        return Returned(verdict(report), value)

    def parse(self, source: str, limits: Limits = _DEFAULT) -> Verdict:
        """Whether a source parses: `PASSED`, or `SYNTAX_ERROR`; a source that breaks the parser never does here."""
        return self._checked(source, "parse", limits)

    def compile(self, source: str, limits: Limits = _DEFAULT) -> Verdict:
        """Whether a source compiles, which is more than parsing (`return` outside a function)."""
        return self._checked(source, "compile", limits)

    def isolation(self) -> Isolation:
        """The isolation reached; starts a worker if there is none yet.

        Raises:
            SandboxError: if the sandbox can't be started.
        """
        worker = self._take()
        try:
            return worker.isolation
        finally:
            self._give(worker)

    def close(self) -> None:
        """End the workers that are idle; those in use end when they have answered."""
        with self._lock:
            self._generation += 1
        self._drop_idle()

    # ---- inside ------------------------------------------------------------------------------------------

    def _checked(self, source: str, mode: str, limits: Limits) -> Verdict:
        if (refused := too_long(source, limits)) is not None:
            return refused
        return verdict(self._ask({"op": "check", "program": source, "mode": mode}, limits))

    def _ask(self, job: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
        """Have a request done; what the sandbox itself fails at is tried once more, on another worker."""
        job = {**job, "limits": limits.plain()}
        report: dict[str, Any] = {}
        for _ in range(2):
            try:
                worker = self._take()
            except WorkerLostError as error:
                report = _lost(error)
                continue
            try:
                report = worker.request(job)
            except WorkerLostError as error:
                self._drop(worker)
                self._drop_idle()  # what ended this one may have ended them too, and they would use up the second try
                report = _lost(error)
                continue
            except BaseException:  # an interrupt in the middle: the stream is out of step
                self._drop(worker)
                raise
            if report.get("outcome") == Outcome.INFRASTRUCTURE_ERROR:
                self._drop(worker)
                continue
            self._give(worker)
            return report
        if report.get("killed"):  # twice by the system: the program takes more memory than there is
            report["outcome"] = Outcome.MEMORY_LIMIT
        return report

    def _take(self) -> Worker:
        with self._free:
            while not self._idle and self._started >= self._limit:
                self._free.wait()
            if self._idle:
                return self._idle.pop()
            self._started += 1
        try:
            worker = self._start()
        except BaseException:
            with self._free:
                self._started -= 1
                self._free.notify()
            raise
        with self._lock:
            self._workers[worker] = self._generation
        return worker

    def _start(self) -> Worker:
        reasons = []
        for host in self._hosts:
            try:
                worker = host.start()
            except SandboxError as error:
                reasons.append(str(error))
                continue
            try:
                worker.isolation.require(self._minimum)
            except SandboxError as error:
                worker.close()
                reasons.append(str(error))
                continue
            self._hosts = [host]
            return worker
        raise SandboxError(" | ".join(reasons))

    def _give(self, worker: Worker) -> None:
        with self._free:
            if self._workers.get(worker) == self._generation:
                self._idle.append(worker)
                self._free.notify()
                return
        self._drop(worker)

    def _drop(self, worker: Worker) -> None:
        with self._free:
            if self._workers.pop(worker, None) is not None:  # else a fork came between: it is the parent's
                self._started -= 1
            self._free.notify()
        worker.close()

    def _drop_idle(self) -> None:
        with self._free:
            idle, self._idle = self._idle, []
        for worker in idle:
            self._drop(worker)

    def _cores_in_turn(self) -> list[int]:
        """The cores of this process, another one first each time."""
        cores = _cores()
        with self._lock:
            self._turn += 1
            first = (self._turn + os.getpid()) % len(cores)
        return cores[first:] + cores[:first]

    def _forget(self) -> None:
        """Begin with no workers."""
        self._lock = threading.Lock()
        self._free = threading.Condition(self._lock)
        self._idle = []
        self._workers: weakref.WeakKeyDictionary[Worker, int] = weakref.WeakKeyDictionary()
        self._started = 0
        self._generation = 0
        self._turn = 0

    def _forked(self) -> None:
        for worker in list(self._workers):
            worker.abandon()
        self._forget()


def shared(
    host: str = "auto", *, minimum: str = "basic", workers: int | None = None, image: str = docker.IMAGE
) -> Sandbox:
    """The sandbox of this process with these arguments: all environments of a process use the same workers."""
    key = (host, minimum, workers, image)
    with _shared_lock:
        if key not in _shared:
            _shared[key] = Sandbox(host, minimum=minimum, workers=workers, image=image)
        return _shared[key]


def close_all() -> None:
    """End the idle workers of every sandbox of this process."""
    for sandbox in list(_open):
        sandbox.close()


def _lost(error: WorkerLostError) -> dict[str, Any]:
    return {"outcome": Outcome.INFRASTRUCTURE_ERROR, "message": str(error)}


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


# Workers are heavy: one set per process, started at first use, never carried across a fork.
_open: weakref.WeakSet[Sandbox] = weakref.WeakSet()
_shared: dict[tuple[str, str, int | None, str], Sandbox] = {}
_shared_lock = threading.Lock()


def _after_fork() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()
    for sandbox in list(_open):
        sandbox._forked()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close_all)
