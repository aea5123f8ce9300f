"""What is to be run, and within which limits."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corrgrpo_envs.errors import shown


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use; for a run over several inputs, at each of them.

    Attributes:
        cpu_seconds: CPU time of the program's process.
        memory_mb: address space, MiB.
        wall_seconds: backstop for programs that sleep; None is three times the CPU time and 2 s.
        output_bytes: printed text that is compared.
        value_bytes: encoded size of one result.
        source_bytes: length of the program.

    Raises:
        ValueError: for a limit that is not a positive number.
    """

    cpu_seconds: float = 5.0
    memory_mb: int = 1024
    wall_seconds: float | None = None
    output_bytes: int = 1 << 20
    value_bytes: int = 16 << 20
    source_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None and name == "wall_seconds":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ValueError(f"{name} must be a positive number, not {shown(value)}")
        if self.memory_mb < 64:
            raise ValueError(f"memory_mb must be at least 64 (an interpreter needs that), not {self.memory_mb}")

    @property
    def wall(self) -> float:
        """Seconds of wall time."""
        return 3 * self.cpu_seconds + 2 if self.wall_seconds is None else self.wall_seconds

    def plain(self) -> dict[str, Any]:
        """The limits as a worker reads them."""
        return {
            "cpu": self.cpu_seconds,
            "wall": self.wall,
            "memory": int(self.memory_mb) << 20,
            "output_bytes": int(self.output_bytes),
            "value_bytes": int(self.value_bytes),
        }


@dataclass(frozen=True, slots=True)
class Check:
    """A test in code: it runs apart from the program and calls it through a proxy.

    Attributes:
        test: source that defines `check(candidate)`; asserts decide.
        entry_point: expression that gives the function in the program, e.g. `Solution().twoSum`; evaluated once.
        setup: source that runs before the test, on the test's side: imports, `ListNode`, `TreeNode`, helpers.
        names: further functions of the program that the test calls by name.
    """

    test: str
    entry_point: str
    setup: str = ""
    names: Sequence[str] = ()

    def plain(self) -> Mapping[str, Any]:
        """The test as a worker reads it."""
        return {"test": self.test, "entry_point": self.entry_point, "setup": self.setup, "names": list(self.names)}


@dataclass(frozen=True, slots=True)
class Case:
    """A test in text: what the program reads on standard input and what it should print."""

    given: str
    expected: str
