"""Common shapes of data sets: the prompt, the reference and the rule of each, as templates over its columns."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from envconvert.formats.table.rows import Row

Columns = Mapping[str, str]
"""The column for each role that a preset has."""


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """One shape. In its templates `<role>` stands for the column that has the role."""

    name: str
    about: str
    roles: tuple[str, ...]
    prompt: str
    reference: str
    reward: Mapping[str, Any]

    def task(self, columns: Columns) -> dict[str, Any]:
        """Its part of a mapping's `task`."""
        return {"prompt": _named(self.prompt, columns), "reference": _named(self.reference, columns)}

    def rule(self, columns: Columns) -> dict[str, Any]:
        """Its `reward`."""
        made = _named(dict(self.reward), columns)
        assert isinstance(made, dict)
        return made


def _named(said: Any, columns: Columns) -> Any:
    if isinstance(said, str):
        return re.sub(r"<(\w+)>", lambda found: columns.get(found[1], found[0]), said)
    if isinstance(said, Mapping):
        return {name: _named(inner, columns) for name, inner in said.items()}
    return [_named(inner, columns) for inner in said] if isinstance(said, list) else said


_LETTER = r"(?i)answer\s*:\s*\(?([A-Z])\b"

PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="function-tests",
            about="the head of a Python function, and tests that call it",
            roles=("prompt", "solution", "test", "entry_point"),
            prompt="Complete this function, and reply with all of it in one block of Python.\n\n"
            "```python\n{{ <prompt> }}\n```",
            reference="```python\n{{ <prompt> }}{{ <solution> }}\n```",
            reward={
                "kind": "cases",
                "cases": [{"by": "program", "text": "{{ <test> }}\n\ncheck({{ <entry_point> }})\n"}],
            },
        ),
        Preset(
            name="stdin-stdout",
            about="a problem, and what a program prints for some inputs; there is no reference",
            roles=("question", "inputs", "outputs"),
            prompt="{{ <question> }}\n\nReply with one block of Python: a program that reads standard input.",
            reference="",
            reward={"kind": "cases", "cases": "{{ in_out(<inputs>, <outputs>) }}"},
        ),
        Preset(
            name="multiple-choice",
            about="a question, options, and the right one: its letter, its position from 0, or its text",
            roles=("question", "options", "answer"),
            prompt="{{ <question> }}\n\n{{ <options> | lettered }}\n\nEnd with a line `Answer: ` and the letter.",
            reference="Answer: {{ <answer> | letter(<options>) }}",
            reward={
                "kind": "answer",
                "extract": [
                    [{"by": "regex", "pattern": _LETTER}],
                    [{"by": "line"}, {"by": "strip", "characters": "().* "}],
                ],
                "match": {
                    "by": "choice",
                    "expected": "{{ <answer> | letter(<options>) }}",
                    "letters": "{{ <options> | letters }}",
                },
            },
        ),
        Preset(
            name="boxed-math",
            about="a problem of mathematics, and a solution whose answer is in \\boxed{}",
            roles=("question", "solution"),
            prompt="{{ <question> }}\n\nPut the final answer in \\boxed{}.",
            reference="{{ <solution> }}",
            reward={
                "kind": "answer",
                "extract": [[{"by": "boxed"}]],
                "match": {"by": "math", "expected": "{{ <solution> | boxed }}"},
            },
        ),
        Preset(
            name="final-number",
            about="a question, and an answer that is a number or ends with `#### ` and one",
            roles=("question", "answer"),
            prompt="{{ <question> }}\n\nEnd with a line that has `#### ` and the final number, and nothing else.",
            reference="{% if '####' in <answer> | string %}{{ <answer> }}{% else %}#### {{ <answer> }}{% endif %}",
            reward={
                "kind": "answer",
                "extract": [[{"by": "regex", "pattern": r"####[ \t]*(\S.*)"}], [{"by": "line"}]],
                "match": {
                    "by": "number",
                    "expected": "{{ (<answer> | string).split('####')[-1] | trim | replace(',', '') }}",
                },
            },
        ),
        Preset(
            name="exact",
            about="a question, and an answer that is compared as text, but for case and space",
            roles=("question", "answer"),
            prompt="{{ <question> }}\n\nPut the answer, and nothing else, on the last line.",
            reference="{{ <answer> }}",
            reward={
                "kind": "answer",
                "extract": [[{"by": "line"}]],
                "clean": [{"by": "squeeze"}, {"by": "lower"}],
                "match": {"by": "exact", "expected": ["{{ <answer> | string }}"]},
            },
        ),
    )
}
"""By name, those that ask for more before those that ask for less."""

_NAMES = {
    "question": ("question", "problem", "prompt", "instruction", "query", "input", "problem_statement"),
    "answer": ("answer", "final_answer", "answer_key", "answerKey", "correct_answer", "target", "label", "output"),
    "options": ("choices", "options", "endings"),
    "prompt": ("prompt", "starter_code"),
    "solution": ("solution", "canonical_solution", "reference_solution", "answer", "output", "response"),
    "test": ("test", "tests"),
    "entry_point": ("entry_point",),
    "inputs": ("inputs", "test_inputs"),
    "outputs": ("outputs", "test_outputs"),
}
"""What a column of a role is called, the likeliest first."""


class Guess(msgspec.Struct, frozen=True, kw_only=True):
    """What some rows look like."""

    preset: Preset
    columns: dict[str, str]
    unsure: tuple[str, ...]
    """What to look at."""


def guess(rows: Sequence[Row]) -> Guess | None:
    """The shape of `rows`, some of a data set; None where they look like none."""
    there = set(rows[0]) if rows else set()
    for preset in PRESETS.values():
        named = {role: next((name for name in _NAMES[role] if name in there), None) for role in preset.roles}
        columns = {role: name for role, name in named.items() if name is not None}
        whole = len(columns) == len(preset.roles) == len(set(columns.values()))
        if whole and all(_LOOKS[preset.name](row, columns) for row in rows):
            return Guess(preset=preset, columns=columns, unsure=_unsure(preset, columns, there))
    return None


def _unsure(preset: Preset, columns: Columns, there: set[str]) -> tuple[str, ...]:
    found = []
    for role, column in columns.items():
        if others := [name for name in _NAMES[role] if name in there - set(columns.values())]:
            found.append(f"{role} is the column {column!r}; it might be {' or '.join(map(repr, others))}")
    if preset.name == "exact":
        found.append("answers are compared as text: numbers, lists or programs want another rule")
    return tuple(found)


def _is_number(text: Any) -> bool:
    return re.fullmatch(r"\s*-?\$?[\d,]*\.?\d+%?\s*", str(text).split("####")[-1]) is not None


_LOOKS: dict[str, Callable[[Row, Columns], bool]] = {
    "final-number": lambda row, of: _is_number(row[of["answer"]]),
    "boxed-math": lambda row, of: "\\boxed{" in str(row[of["solution"]]),
    "multiple-choice": lambda row, of: isinstance(row[of["options"]], (list, dict)),
    "function-tests": lambda row, of: f"def {row[of['entry_point']]}" in str(row[of["prompt"]]),
    "stdin-stdout": lambda row, of: isinstance(row[of["inputs"]], list) and isinstance(row[of["outputs"]], list),
    "exact": lambda row, of: isinstance(row[of["answer"]], (str, int, float)),
}
"""Whether a row is of a preset's shape; a position is no final number where there are options."""
