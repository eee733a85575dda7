"""A mapping to begin with: what `envconvert init` writes for a data file, with what it inferred and what to look at."""

import json
from pathlib import Path
from typing import Any

import tomli_w

from envconvert.formats.files import UnreadableSourceError
from envconvert.formats.losses import one_line
from envconvert.formats.table.presets import PRESETS, guess
from envconvert.formats.table.reader import sample
from envconvert.formats.table.rows import Row

_WIDTH = 60


def beginning(file: Path, name: str) -> str:
    """A mapping for `file`, of the taskset `name`. Raises `UnreadableSourceError` where nothing is inferred."""
    found = sample(file)
    if not found:
        raise UnreadableSourceError(file, "it has no rows")
    shape = guess(found)
    if shape is None:
        shapes = "; ".join(f"{preset.name}: {preset.about}" for preset in PRESETS.values())
        reason = f"its columns, {', '.join(found[0])}, have no known shape ({shapes}); write {_OWN}"
        raise UnreadableSourceError(file, reason)
    preset = shape.preset
    lines = [
        f"# {preset.name}, from {len(found)} rows of {one_line(file.name)}: {preset.about}.",
        *(f"# Look at this: {one_line(doubt)}." for doubt in shape.unsure),
        "# Columns, and what the first row has there:",
        *(f"#   {one_line(f'{column}: {_shown(value)}')}" for column, value in found[0].items()),
        "",
        tomli_w.dumps({"name": name, "data": file.name, "preset": preset.name}).rstrip("\n"),
        '# licence = "…"          # an SPDX identifier',
        '# data = {train = "…", test = "…"} instead, where there are splits',
        "",
        "[columns]  # which column has each role of the preset",
        tomli_w.dumps(shape.columns).rstrip("\n"),
        "",
        "[task]",
        *_id(found),
        "# What the preset says, and you may say otherwise:",
        *(f"# {line}" for line in tomli_w.dumps(preset.task(shape.columns)).splitlines()),
        "",
        "# The rule that scores a reply (formats/rules.py). A table [reward] of your own takes its place:",
        *(f"# {line}" for line in tomli_w.dumps({"reward": preset.rule(shape.columns)}).splitlines()),
    ]
    return "\n".join(lines) + "\n"


_OWN = "an envconvert.toml of your own, with task.prompt and reward (docs/porting-a-paper.md)"


def _id(rows: list[Row]) -> list[str]:
    """A column whose values tell the rows apart, if one is called like an id; else ids are made of what a row holds."""
    for column in ("id", "task_id", "uuid", "problem_id", "name"):
        values = [row.get(column) for row in rows]
        if all(isinstance(value, (str, int)) for value in values) and len(set(values)) == len(values):
            return [f'id = "{{{{ {column} }}}}"']
    return ['# id = "{{ column }}"   # else 12 digits of the row\'s SHA-256']


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace").decode()
    return f"{type(value).__name__} {text if len(text) <= _WIDTH else text[:_WIDTH] + '…'}"
