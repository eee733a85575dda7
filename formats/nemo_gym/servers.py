"""The resources servers that NeMo Gym ships whose verify a reward rule says exactly, setting by setting.

Each is a function of a row's fields and the server's config, as release 0.7.0 has them. What a rule cannot say raises
`UnsaidError`; the tests score replies by both.
"""

import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from envconvert.formats.rules import (
    Answer,
    Calls,
    Choice,
    Cleaning,
    Combined,
    Contains,
    Exact,
    ExpectedCall,
    Extraction,
    Line,
    Lower,
    Map,
    Matches,
    Math,
    Outcomes,
    Regex,
    Replace,
    Rule,
    Schema,
    Similar,
    Squeeze,
    Strip,
    Weighted,
)
from envconvert.formats.taskset import Reply, Tool, ToolCall

Fields = Mapping[str, Any]
Chain = tuple[Extraction, ...]


class UnsaidError(Exception):
    """No rule says what the server does: the setting, and what is the matter with it."""

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(f"{setting}: {reason}")
        self.setting = setting
        self.reason = reason


class Scoring(msgspec.Struct, frozen=True):
    """How a server scores the replies to a row."""

    rule: Rule
    reads: frozenset[str]
    """The fields of the row that it is made of."""
    reference: Reply | None = None
    """A reply that is right."""
    stricter: bool = False
    """A call with an argument that no tool declares is wrong, which the server lets pass."""


def scoring(server: str, fields: Fields, config: Fields, tools: tuple[Tool, ...]) -> Scoring:
    """How `server` scores replies to a row with `fields`. Raises `UnsaidError`."""
    if server not in _SERVERS:
        raise UnsaidError("verify", "what it does is code of its own")
    return _SERVERS[server](fields, config, tools)


def _text(fields: Fields, name: str) -> str:
    """A field that must be text with something in it."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise UnsaidError(name, f"it is {value!r:.80}, and must be text")
    if not value.strip():
        raise UnsaidError(name, "it is empty, and the server finds no reply right")
    return value


def _setting(config: Fields, name: str, default: Any) -> Any:
    value = config.get(name, default)
    if isinstance(value, str) and ("${" in value or value == "???"):
        raise UnsaidError(name, f"it is {value}, which is known only where Gym runs")
    return value


# What several servers do.

_DEEP = 8


def _balanced() -> str:
    """What is before a closing brace, with braces in it that are balanced and not too deep."""
    pattern = r"[^{}]*"
    for _ in range(_DEEP):
        pattern = rf"(?:[^{{}}]|\{{{pattern}\}})*"
    return rf"({pattern})\}}"


_BALANCED = _balanced()


def _unwrapped(*chain: Extraction, then: Chain = (), around: str = r"\s*") -> tuple[Chain, ...]:
    r"""Chains that take `\text{}` off what is extracted, up to two deep."""
    text = Regex(pattern=rf"\A{around}\\text\{{\s*(.*?)\s*\}}{around}\Z", flags="s")
    return tuple((*chain, *(text for _ in range(deep)), *then) for deep in (2, 1, 0))


# mcqa.

_BOX = (Regex(pattern=r".*\\boxed\{(.*)", flags="s"), Regex(pattern=rf"\A{_BALANCED}", which="first"))
"""The last box, and nothing where its braces are not balanced."""
_LETTER = Regex(pattern=r"\A[^A-Za-z]*([A-Z])[^A-Za-z]*\Z|\A\s*([A-Z])\s*[:).\-]")


def _mcqa(fields: Fields, config: Fields, tools: tuple[Tool, ...]) -> Scoring:
    written = _written(fields.get("template_metadata"))
    options = _options(fields.get("options"))
    gold = _text(fields, "expected_answer").strip().upper()
    if gold not in (options or (_LETTERS if written else "")):
        raise UnsaidError("expected_answer", f"{gold!r:.80} is no letter of the options {', '.join(options)}")
    mode = _setting(config, "grading_mode", None) or fields.get("grading_mode", "strict_single_letter_boxed")
    extract, clean, reply = _in_mode(mode, options, gold)
    rule = Answer(
        extract=(*written, *extract), clean=clean, match=Choice(expected=gold, letters=tuple(options or _LETTERS))
    )
    reads = frozenset({"options", "expected_answer", "grading_mode", "template_metadata"})
    return Scoring(rule, reads, None if written else Reply(text=reply))


def _in_mode(
    mode: object, options: Mapping[str, str], gold: str
) -> tuple[tuple[Chain, ...], tuple[Cleaning, ...], str]:
    """How an answer is extracted and cleaned, and a reply that is right."""
    strict, boxed = _unwrapped(*_BOX, then=(_LETTER,)), rf"\boxed{{{gold}}}"
    if mode == "strict_single_letter_boxed":
        return strict, (), boxed
    texts = {letter: _squeezed(text) for letter, text in options.items()}
    if letters := sorted({letter.lower() for letter in options} & set(texts.values())):
        raise UnsaidError("options", f"the text of one is {letters[0]!r}, which is the letter of one too")
    clean = (Lower(), Squeeze(), Map(table={text: letter for letter, text in reversed(texts.items()) if text}))
    if mode == "lenient_boxed":
        only = _only_option(texts)
        return (*strict, (*_BOX, only)) if only else strict, clean, boxed
    if mode == "lenient_answer_colon":
        colon = Regex(pattern=r"answer\s*:\s*(.+)", which="first", flags="i")
        return _unwrapped(_TRIMMED, colon, around=""), clean, f"Answer: {gold}"
    raise UnsaidError("grading_mode", f"{mode!r:.80} looks for lists of letters and normalizes by Unicode's NFKC")


_LETTERS = tuple(string.ascii_uppercase)
_TRIMMED = Regex(pattern=r"\A\s*(.*?)\s*\Z", flags="s")
_ONE_LETTER = re.compile(
    r"(?:[^()\[\]\\]|\\.|\(\?(?:[:!=]|<[!=])[^()]*\))*\(\[(?:[A-Za-z]-[A-Za-z]|[A-Za-z])+\]\)(?![?*+{]).*", re.DOTALL
)
"""A regular expression whose one group is a letter."""


def _written(template: Any) -> tuple[Chain, ...]:
    """What the row's own regular expressions extract, which is tried first."""
    if not isinstance(template, dict) or "output_regex" not in template:
        return ()
    given = template["output_regex"]
    patterns = [given] if isinstance(given, str) else _strings("template_metadata.output_regex", given)
    for pattern in patterns:
        try:
            groups = re.compile(pattern, re.IGNORECASE).groups
        except (re.error, RecursionError, OverflowError) as error:
            reason = f"{pattern!r:.80} is no regular expression: {error}"
            raise UnsaidError("template_metadata.output_regex", reason) from None
        if groups != 1 or not _ONE_LETTER.fullmatch(pattern):
            reason = f"{pattern!r:.80} has other than one group, of a letter; what it finds is normalized by NFKC"
            raise UnsaidError("template_metadata.output_regex", reason)
    return tuple((_TRIMMED, Regex(pattern=pattern, group=1, flags="i")) for pattern in patterns)


def _options(given: Any) -> dict[str, str]:
    """Texts by upper case letter."""
    options: dict[str, str] = {}
    for entry in given if isinstance(given, list) else ():
        for key, text in entry.items() if isinstance(entry, dict) else ():
            if len(key) == 1 and key.isalpha() and isinstance(text, str):
                if not key.isascii() or key.upper() in options:
                    raise UnsaidError("options", f"the letter {key!r} is not of A to Z, or is there twice")
                options[key.upper()] = text
    return options


def _squeezed(text: str) -> str:
    return " ".join(text.lower().split())


def _only_option(texts: Mapping[str, str]) -> Regex | None:
    """The text of an option, where that of no other is there."""
    patterns = {letter: r"\s+".join(map(re.escape, text.split())) for letter, text in texts.items() if text}
    alternatives = [
        rf"\A(?=.*?({pattern}))" + "".join(rf"(?!.*{other})" for name, other in patterns.items() if name != letter)
        for letter, pattern in patterns.items()
    ]
    return Regex(pattern="|".join(alternatives), flags="is") if alternatives else None


# equivalence_rule.

_PREFIX = 10
"""Characters of the answer that weighted_seq_match compares once more."""


def _equivalence(fields: Fields, config: Fields, tools: tuple[Tool, ...]) -> Scoring:
    answer = _text(fields, "expected_answer")
    how = _setting(config, "grading_rule", "exact")
    clean = (Lower(), Squeeze())
    rule: Rule
    if how == "exact":
        rule = Answer(clean=clean, match=Exact(expected=(answer,)))
    elif how == "seq_match":
        rule = Answer(clean=clean, match=Similar(expected=answer))
    elif how == "weighted_seq_match":
        head = min(_PREFIX, len(_squeezed(answer)))
        cut = Replace(pattern=rf"\A(.{{{head}}}).*\Z", text=r"\1", flags="s")
        rule = Combined(
            parts=(
                Weighted(name="sequence", rule=Answer(clean=clean, match=Similar(expected=answer)), weight=0.85),
                Weighted(name="prefix", rule=Answer(clean=(*clean, cut), match=Similar(expected=answer)), weight=0.15),
            )
        )
    else:
        raise UnsaidError("grading_rule", f"{how!r:.80} is none of release 0.7.0")
    return Scoring(rule, frozenset({"expected_answer"}), Reply(text=answer))


# string_match.

_FINAL = (
    Regex(pattern="(?:final\\s+answer|answer)\\s*[:\N{FULLWIDTH COLON}]\\s*(.+)", flags="i"),
    Regex(pattern=r"\A\s*(.*?)\s*(?:\.*\s*\.)?\s*\Z", flags="s"),
)
_TIGHT = Regex(pattern=rf"\\boxed\{{{_BALANCED}")
"""The last box whose braces are balanced."""


def _string(fields: Fields, config: Fields, tools: tuple[Tool, ...]) -> Scoring:
    answer = _text(fields, "expected_answer")
    if fields.get("case_sensitive", False) is not True:
        raise UnsaidError("case_sensitive", "without it, numbers, units, lists and states are compared by code")
    mode = fields.get("extraction_mode", "final_answer")
    ways: dict[Any, tuple[tuple[Chain, ...], str]] = {
        "boxed": (_unwrapped(_TIGHT), rf"\boxed{{{answer}}}"),
        "final_answer": ((_FINAL, *_unwrapped(_TIGHT)), f"Answer: {answer}"),
        "last_line": (((Line(),),), answer),
        "full_response": ((), answer),
    }
    if mode not in ways:
        raise UnsaidError("extraction_mode", f"{mode!r:.80} is none of release 0.7.0")
    extract, reply = ways[mode]
    rule = Answer(extract=extract, clean=(Strip(),), match=Exact(expected=(answer,)))
    return Scoring(rule, frozenset({"expected_answer", "extraction_mode", "case_sensitive"}), Reply(text=reply))


# format_verification.


def _format(fields: Fields, config: Fields, tools: tuple[Tool, ...]) -> Scoring:
    verifier = fields.get("verifier")
    if not isinstance(verifier, dict):
        raise UnsaidError("verifier", "it is no object")
    kind = verifier.get("type", "")
    if kind in ("regex", "inline_prose"):
        return Scoring(_lines(verifier), frozenset({"verifier"}))
    if kind == "string_match":
        return Scoring(*_markers(verifier))
    raise UnsaidError("verifier.type", f"{kind!r:.80} is none of release 0.7.0")


def _lines(verifier: Fields) -> Answer:
    patterns, least = verifier.get("verify_regex", []), verifier.get("verify_min_matches", 1)
    if not isinstance(least, int) or least < 1:
        raise UnsaidError("verifier.verify_min_matches", f"with {least!r:.80}, no reply is wrong")
    if not patterns:
        raise UnsaidError("verifier.verify_regex", "there is none, and the server finds no reply right")
    for pattern in _strings("verifier.verify_regex", patterns):
        try:
            blank = any(re.search(pattern, line) for line in ("", " ", "\t", "   "))
        except (re.error, RecursionError, OverflowError) as error:
            raise UnsaidError("verifier.verify_regex", f"{pattern!r:.80} is no regular expression: {error}") from None
        if blank:
            raise UnsaidError("verifier.verify_regex", f"{pattern!r:.80} matches lines of an empty reply")
    return Answer(match=Matches(patterns=tuple(patterns), where="lines", least=least))


def _markers(verifier: Fields) -> tuple[Answer, frozenset[str], Reply]:
    markers = _strings("verifier.expected_markers", verifier.get("expected_markers", []))
    if not any(marker.strip() for marker in markers):
        raise UnsaidError("verifier.expected_markers", "there is none, and the server finds every reply right")
    literal = {re.escape(marker) for marker in markers}
    for pattern in _strings("verifier.patterns", verifier.get("patterns", [])):
        if pattern not in literal:
            raise UnsaidError("verifier.patterns", f"what {pattern!r:.80} matches must be one of the markers")
    rule = Answer(match=Contains(expected=tuple(markers), score="all"))
    return rule, frozenset({"verifier"}), Reply(text=" ".join(markers))


def _strings(setting: str, values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise UnsaidError(setting, "it is no list of strings")
    return values


# math_with_judge.


def _mathematics(fields: Fields, config: Fields, tools: tuple[Tool, ...]) -> Scoring:
    if _setting(config, "should_use_judge", True) is not False:
        raise UnsaidError("should_use_judge", "a model judges what math-verify finds wrong")
    _text(fields, "question")
    answer = _text(fields, "expected_answer").strip()
    for start, end in ((r"\(", r"\)"), ("$", "$")):
        if len(answer) >= len(start + end) and answer.startswith(start) and answer.endswith(end):
            answer = answer[len(start) : -len(end)].strip()
    if not answer or any(mark in answer for mark in ("$", r"\(", r"\[", r"\boxed")):
        raise UnsaidError("expected_answer", f"{answer!r:.80} sets mathematics within mathematics")
    boxed = Weighted(name="boxed", rule=Answer(extract=(_BOX,), match=Matches(patterns=(r"\S",))))
    right = Weighted(name="right", rule=Answer(match=Math(expected=answer)))
    rule = Combined(parts=(boxed, right), how="gate")
    return Scoring(rule, frozenset({"question", "expected_answer"}), Reply(text=rf"\boxed{{{answer}}}"))


# xlam_fc.


def _function_calls(fields: Fields, config: Fields, tools: tuple[Tool, ...]) -> Scoring:
    given = fields.get("expected_answers", [])
    if not isinstance(given, list) or not all(isinstance(call, dict) for call in given):
        raise UnsaidError("expected_answers", "it is no list of objects")
    declared = {tool.name: tuple((tool.parameters or {}).get("properties") or ()) for tool in tools}
    calls = [_call(call) for call in given]
    for number, (name, arguments) in enumerate(calls):
        for other, others in calls[:number]:
            apart = any(key in others and others[key] != value for key, value in arguments.items())
            if name == other and not apart and arguments != others:
                raise UnsaidError(
                    "expected_answers", f"a call of {name!r:.80} may be that of two, and the first counts"
                )
    expected = [
        ExpectedCall(name=name, arguments=arguments, optional=_others(declared.get(name, ()), arguments))
        for name, arguments in calls
    ]
    rule = Calls(expected=tuple(expected), outcomes=Outcomes(empty=None if calls else 1.0))
    made = [ToolCall(name=name, arguments=msgspec.json.encode(arguments).decode()) for name, arguments in calls]
    return Scoring(rule, frozenset({"expected_answers"}), Reply(calls=tuple(made)), stricter=bool(calls))


def _call(given: Fields) -> tuple[str, dict[str, Any]]:
    name, arguments = given.get("name"), given.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except msgspec.DecodeError:
            arguments = {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise UnsaidError("expected_answers", "a call of it has no name, or no object of arguments")
    return name, arguments


def _others(declared: Iterable[str], arguments: Fields) -> tuple[str, ...]:
    return tuple(name for name in declared if name not in arguments)


# structured_outputs.


def _structured(fields: Fields, config: Fields, tools: tuple[Tool, ...]) -> Scoring:
    kind = fields.get("schema_type", "json")
    if kind != "json":
        raise UnsaidError("schema_type", f"{kind!r:.80} is no JSON")
    if fields.get("response_mode", "text") == "tool_call":
        raise UnsaidError("response_mode", "the arguments of a call are held against the schema")
    try:
        schema = msgspec.json.decode(_text(fields, "schema_str"), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UnsaidError("schema_str", f"it is no JSON object: {error}") from None
    _strictify(schema)
    schema.pop("$schema", None)  # it is read by the server as JSON Schema 2020-12, whatever it says
    if (wrong := next(_wrong(schema), None)) is not None:
        raise UnsaidError("schema_str", f"{wrong} in it may make the server find no reply right")
    rule = Answer(match=Schema(schema=schema))
    return Scoring(rule, frozenset({"schema_str", "schema_type", "response_mode"}))


def _strictify(schema: Any) -> None:
    """As the server does: all properties are required, and there are no others; not below lists such as anyOf."""
    if isinstance(schema, dict):
        if "properties" in schema:
            schema["required"] = list(schema["properties"])
            schema["additionalProperties"] = False
        for value in schema.values():
            _strictify(value)


_TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}
_SCHEMA: dict[str, Callable[[Any], bool]] = {
    "type": lambda v: v in _TYPES if isinstance(v, str) else _is_list(v) and len(v) > 0 and all(t in _TYPES for t in v),
    "enum": lambda v: _is_list(v),
    "required": lambda v: _is_list(v) and all(isinstance(name, str) for name in v) and len(set(v)) == len(v),
    "pattern": lambda v: isinstance(v, str) and _is_pattern(v),
    "uniqueItems": lambda v: isinstance(v, bool),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0,
    ),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), lambda v: _is_number(v)),
    "multipleOf": lambda v: _is_number(v) and v > 0,
    **dict.fromkeys(("title", "description", "format", "$comment"), lambda v: isinstance(v, str)),
    "default": lambda v: True,
    "const": lambda v: True,
    "examples": lambda v: _is_list(v),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly"), lambda v: isinstance(v, bool)),
    "$ref": lambda v: isinstance(v, str) and v.startswith("#/"),
    **dict.fromkeys(("nullable", "example"), lambda v: True),  # they mean nothing there
}
"""Keywords whose values hold no schemas, and what these may be."""
_ONE = ("additionalProperties", "items", "not", "contains", "propertyNames", "if", "then", "else")
_SOME = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")


def _wrong(schema: Any) -> Iterator[str]:
    """Keywords that are unknown, or have a value that makes it no schema."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"{schema!r:.80}"
        return
    for key, value in schema.items():
        if key in _SCHEMA:
            inner, right = [], _SCHEMA[key](value)
        elif key in _ONE:
            inner, right = [value], True
        elif key in _SOME:
            inner, right = (value, len(value) > 0) if isinstance(value, list) else ([], False)
        else:
            inner, right = (list(value.values()), True) if isinstance(value, dict) and key in _NAMED else ([], False)
        if not right:
            yield f"{key}: {value!r:.80}"
        for each in inner:
            yield from _wrong(each)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_pattern(value: str) -> bool:
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


_SERVERS: dict[str, Callable[[Fields, Fields, tuple[Tool, ...]], Scoring]] = {
    "mcqa": _mcqa,
    "equivalence_rule": _equivalence,
    "string_match": _string,
    "format_verification": _format,
    "math_with_judge": _mathematics,
    "structured_outputs": _structured,
    "xlam_fc": _function_calls,
}

SHIPPED: dict[str, Fields] = {
    "mcqa": {"domain": "knowledge"},
    "equivalence_rule": {"domain": "knowledge"},
    "string_match": {"domain": "knowledge"},
    "format_verification": {"domain": "instruction_following"},
    "math_with_judge": {
        "domain": "math",
        "judge_model_server": {"type": "responses_api_models", "name": "policy_model"},
        "judge_responses_create_params": {"input": []},
        "should_use_judge": False,
    },
    "structured_outputs": {"domain": "instruction_following"},
    "xlam_fc": {"domain": "agent"},
}
"""What of their shipped configs they need, and what is otherwise than they do by themselves."""
