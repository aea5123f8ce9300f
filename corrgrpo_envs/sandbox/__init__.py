r"""Running untrusted programs: one interface, workers beside this process or in containers.

```python
from corrgrpo_envs.sandbox import Check, Limits, shared

sandbox = shared()
check = Check(test="def check(candidate):\n    assert candidate([1, 2]) == 3", entry_point="Solution().total")
verdict = sandbox.judge("class Solution:\n    def total(self, xs): return sum(xs)", check, Limits(cpu_seconds=2))
verdict.outcome  # Outcome.PASSED
```

What runs programs, how they are held and what that costs: `docs/sandbox.md`.
"""

from corrgrpo_envs.sandbox.isolation import LEVELS, Isolation, SandboxError
from corrgrpo_envs.sandbox.jobs import Case, Check, Limits
from corrgrpo_envs.sandbox.pool import HOSTS, Sandbox, close_all, shared
from corrgrpo_envs.sandbox.verdicts import Measurement, Outcome, Returned, Round, Times, Verdict

__all__ = [
    "HOSTS",
    "LEVELS",
    "Case",
    "Check",
    "Isolation",
    "Limits",
    "Measurement",
    "Outcome",
    "Returned",
    "Round",
    "Sandbox",
    "SandboxError",
    "Times",
    "Verdict",
    "close_all",
    "shared",
]
