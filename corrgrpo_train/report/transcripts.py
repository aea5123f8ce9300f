"""`read_transcripts`: a sample of the episodes that runs saved as text, for the page's browser."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from corrgrpo_train.report.runs import Run, is_number, json_object, open_file
from corrgrpo_train.report.text import pieces, visible

LIMIT = 2000
"""Transcripts on a page, all runs together."""
LONGEST_TEXT = 20_000
"""Characters of a prompt or of one text between sampled ones; the rest stays in the file."""
LONGEST_NAME = 500
"""Characters of a task's id, a status, the name of a component or metric."""
MOST_TOKENS = 4_000
"""Sampled tokens of a transcript that are shown; the rest stays in the file."""
SPACE = 30_000_000
"""Characters of all transcripts together, about; then no more are taken."""

_FILE = re.compile(r"(?P<kind>.+)_(?P<step>\d+)")


@dataclass
class Sample:
    """Transcripts as they stand on the page.

    Attributes:
        rows: one dict per transcript.
        prompts: the texts that rows name by their place; the members of a group have one in common.
        total: how many the runs hold.
        notes: what could not be read.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    prompts: dict[str, int] = field(default_factory=dict)
    total: int = 0
    notes: list[str] = field(default_factory=list)

    def data(self, runs: Sequence[Run]) -> dict[str, Any]:
        """What the page's script reads."""
        return {
            "runs": [visible(run.label) for run in runs],
            "prompts": list(self.prompts),
            "rows": self.rows,
            "total": self.total,
        }


def read_transcripts(runs: Sequence[Run], limit: int = LIMIT) -> Sample:
    """Read transcripts of evenly spaced files, so that they come from the whole of each run.

    Args:
        runs: their folders are read.
        limit: at most so many.
    """
    sample = Sample()
    files = {place: _files(run.folder / "transcripts", sample) for place, run in enumerate(runs)}
    counts = {path: lines for some in files.values() for path, lines in some.items()}
    sample.total = sum(counts.values())
    space = SPACE
    for place, some in files.items():
        share = limit * (place + 1) // len(runs) - limit * place // len(runs)
        for path, wanted in _spread(some, share).items():
            for row in _first(path, wanted, sample):
                shown = _transcript(row, sample.prompts)
                space -= _size(row)
                if space < 0:
                    told = f"only {len(sample.rows)} transcripts are on this page: they are long"
                    sample.notes.append(told)
                    return sample
                sample.rows.append({"run": place, **_place(path), **shown})
    return sample


def _files(folder: Path, sample: Sample) -> dict[Path, int]:
    """Files and their number of lines, by step."""
    counts = {}
    paths = (path for path in folder.glob("*.jsonl") if _FILE.fullmatch(path.stem))
    for path in sorted(paths, key=lambda path: (_place(path)["step"], path.name)):
        try:
            with open_file(path) as file:
                counts[path] = sum(1 for _ in file)
        except OSError as error:
            sample.notes.append(f"{path.name} cannot be read: {error.strerror}")
    return counts


def _spread(counts: Mapping[Path, int], limit: int) -> dict[Path, int]:
    """How many rows of which files: all of evenly spaced files; of a single file that is too long, its first."""
    paths = list(counts)
    if sum(counts.values()) <= limit:
        return dict(counts)
    taken = max(1, len(paths) * limit // sum(counts.values()))
    chosen = {paths[round(place * (len(paths) - 1) / max(1, taken - 1))] for place in range(taken)}
    wanted, left = {}, limit
    for path in paths:
        if path in chosen and left:
            wanted[path] = min(counts[path], left)
            left -= wanted[path]
    return wanted


def _first(path: Path, wanted: int, sample: Sample) -> Iterator[dict[str, Any]]:
    broken = 0
    try:
        with open_file(path) as file:
            for number, line in enumerate(file):
                if number == wanted:
                    break
                row = json_object(line)
                if row is None:
                    broken += 1
                else:
                    yield row
    except OSError as error:
        sample.notes.append(f"{path.name} cannot be read: {error.strerror}")
    if broken:
        sample.notes.append(f"{path.name}: {broken} lines are no transcripts and are left out")


def _place(path: Path) -> dict[str, Any]:
    match = _FILE.fullmatch(path.stem)
    assert match is not None, "only such files are read"
    return {"kind": match["kind"].replace("_", " "), "step": int(match["step"])}


def _transcript(row: Mapping[str, Any], prompts: dict[str, int]) -> dict[str, Any]:
    tokens, sampled, logprobs = (_list(row, name) for name in ("tokens", "sampled", "logprobs"))
    prompt = _shortened(_text(row.get("prompt")))
    parts = _parts([_text(token) for token in tokens], sampled, logprobs)
    if not parts:  # no tokens: what was said, at least
        texts = (_text(text) for text in _list(row, "texts"))
        parts = [{"said": [_shortened(text)], "logprobs": [None]} for text in texts]
    return {
        "task": _name(row.get("task_id")),
        "group": _number(row.get("group")),
        "member": _number(row.get("member")),
        "status": _name(row.get("status")),
        "error": None if row.get("error") is None else visible(_shortened(_text(row["error"]))),
        "reward": _number(row.get("reward")),
        "advantage": _number(row.get("advantage")),
        "components": _numbers(row.get("components")),
        "metrics": _numbers(row.get("metrics")),
        "prompt": prompts.setdefault(visible(prompt), len(prompts)),
        "parts": parts,
    }


def _parts(tokens: list[str], sampled: list[Any], logprobs: list[Any]) -> list[dict[str, Any]]:
    """The episode from its first sampled token on: `said` and `logprobs` by token, `given` as one text."""
    count = min(len(tokens), len(sampled))
    texts = pieces(tokens)[:count]
    flags = [bool(flag) for flag in sampled[:count]]
    begins = [place for place in range(count) if place == 0 or flags[place] != flags[place - 1]]
    left = MOST_TOKENS
    parts: list[dict[str, Any]] = []
    for begin, end in pairwise([*begins, count]):
        if not flags[begin]:
            if parts:
                parts.append({"given": visible(_shortened("".join(texts[begin:end])))})
            continue
        stop = min(end, begin + left)
        left -= stop - begin
        values = [_number(value) for value in logprobs[begin:stop]]
        values += [None] * (stop - begin - len(values))
        part: dict[str, Any] = {
            "said": [visible(_shortened(text)) for text in texts[begin:stop]],
            "logprobs": [None if value is None else round(value, 3) for value in values],
        }
        parts.append(part | ({"cut": end - stop} if stop < end else {}))
    return parts


def _shortened(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    cut = f"[… {len(text) - 2 * half} characters are left out here; the JSONL file has them …]"
    return f"{text[:half]}\n{cut}\n{text[-half:]}"


def _size(row: Mapping[str, Any]) -> int:
    return (
        200
        + min(LONGEST_TEXT, len(_text(row.get("prompt")))) // 4
        + 16 * min(MOST_TOKENS, sum(map(bool, _list(row, "sampled"))))
    )


def _list(row: Mapping[str, Any], name: str) -> list[Any]:
    value = row.get(name)
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _name(value: object) -> str:
    text = _text(value)
    return visible(text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and is_number(value) else None


def _numbers(values: object) -> dict[str, float | None]:
    if not isinstance(values, Mapping):
        return {}
    return {_name(name): _number(value) for name, value in values.items()}
