"""Run folders as a trainer leaves them, with what a model might write to do harm."""

import json
import random
from pathlib import Path
from typing import Any

import yaml

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    '<img src=x onerror="window.hacked = 2">',
    "<svg onload='window.hacked = 3'><iframe srcdoc='<script>parent.hacked = 4</script>'></iframe>",
    "</bdi></div></main><style>body { display: none }</style><!-- ",
    "\u202eright to left\u202c \u2066isolated",
    "null \x00 and bell \x07 and escape \x1b[31m",
    "lone \ud800 surrogates \udfff",
    '{{ 7 * 7 }} {% raw %} ${7 * 7} <a href="javascript:window.hacked = 5">link</a>',
    "hidden \U000e0041\U000e0042 tags and \u200b spaces",
)
CALL = '<tool_call>\n{"name": "get_balance", "arguments": {"of": "me"}}\n</tool_call>'
COMPONENTS = ("run", "pass", "<b>cost</b>")


def tokens_of(text: str) -> list[str]:
    """The text in pieces of four characters, a space spelled as by byte-level tokenizers, all in ASCII."""
    spelled = text.encode("ascii").decode().replace(" ", "Ġ").replace("\n", "Ċ")
    return [spelled[place : place + 4] for place in range(0, len(spelled), 4)]


def transcript(step: int, group: int, member: int, text: str, **more: Any) -> dict[str, Any]:
    """A row of a transcripts file: a prompt, a sampled tool call, the tool's answer, a sampled text."""
    said = [text] if not text.isascii() or "\x00" in text else tokens_of(text)
    parts = [(["Aska", "Ġtool"], False), (tokens_of(CALL), True), (["resultĠ42"], False), (said, True)]
    tokens = [token for some, _ in parts for token in some]
    sampled = [flag for some, flag in parts for _ in some]
    return {
        "task_id": f"task-{group}",
        "group": group,
        "member": member,
        "prompt": "Ask a tool",
        "texts": [CALL, text],
        "status": "ok" if member % 2 else "length",
        "error": None,
        "reward": member / 4,
        "components": dict.fromkeys(COMPONENTS, member / 4),
        "metrics": {"calls": 1.0},
        "advantage": member - 1.5,
        "tokens": tokens,
        "sampled": sampled,
        "logprobs": [-0.25 * (place % 8) if flag else 0.0 for place, flag in enumerate(sampled)],
    } | more


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """One JSON object a line, in ASCII."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="ascii")


def write_run(folder: Path, *, method: str = "corrgrpo", seed: int = 0, steps: int = 20, members: int = 4) -> Path:
    """A whole run folder; the first transcripts of the first step are hostile."""
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        value = step / steps + 0.05 * draw.random()
        row: dict[str, Any] = {
            "step": step,
            "reward/mean": value,
            "policy/entropy": 2 - value,
            "policy/clip_share": 0.1,
        }
        for place, name in enumerate(COMPONENTS):
            row |= {
                f"components/{name}/mean": value / (place + 1),
                f"components/{name}/std": 0.4,
                f"weights/base/{name}": 1.0,
                f"weights/effective/{name}": 1.0 + place * step / steps,
                f"estimator/constant_share/{name}": 0.25,
            }
            row |= {f"estimator/correlation/{name}/{other}": 0.5 - value for other in COMPONENTS[place + 1 :]}
        row |= {"estimator/correlation_sum": 4.0 - value, "estimator/ratio_to_grpo": 0.5 + value}
        row |= {"estimator/corrgrpo_to_grpo": 0.5 + value, "tokens/completion_mean": 30.0, "groups/drawn": 4.0}
        rows.append(row)
        if step % 5 == 0:
            scores = {f"validation/components/{n}": value / (i + 1) for i, n in enumerate(COMPONENTS)}
            rows.append({"step": step, "validation/reward": value, **scores})
    write_rows(folder / "metrics.jsonl", rows)
    write_rows(folder / "timings.jsonl", [{"step": s, "seconds/rollout": 1.5} for s in range(1, steps + 1)])
    values = [[float(m > 0), float(m > 1), m / 4] for _ in range(2) for m in range(4)]
    groups = {"names": COMPONENTS, "groups": [0] * 4 + [1] * 4, "tasks": ["a"] * 4 + ["b"] * 4, "values": values}
    write_rows(folder / "episodes.jsonl", [{"step": step, **groups} for step in range(1, steps + 1)])
    settings = {
        "method": method,
        "objective": "grpo",
        "env": "Toy-v0",
        "model": "tiny",
        "seed": seed,
        "output": str(folder),
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    (folder / "versions.json").write_text('[{"after_step": 0, "python": "3.11.7", "packages": {"torch": "2.13.0"}}]')
    for step in range(1, steps + 1):
        texts = [HOSTILE[m] if step == 1 and m < len(HOSTILE) else f"answer {m} of step {step}" for m in range(members)]
        some = [transcript(step, m // 4, m % 4, text) for m, text in enumerate(texts)]
        write_rows(folder / "transcripts" / f"step_{step:06d}.jsonl", some)
    return folder
