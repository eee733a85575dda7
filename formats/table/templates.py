"""Templates over a row: Jinja2 expressions in a sandbox, with what data sets need of functions, and bounds.

A mapping may come from people whom nobody knows. Its templates reach neither Python nor files, and do not loop; what
one makes of a row is at most a megabyte.
"""

import re
import string
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import StrictUndefined, TemplateError, nodes
from jinja2.sandbox import SandboxedEnvironment

from envconvert.formats.grader.grade import extracted

_CHARACTERS = 1_000_000
_PADS = {"center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map", "translate"}
_FILTERS = {"trim", "lower", "upper", "replace", "join", "length", "first", "last", "int", "float", "string", "list"}
_FILTERS |= {"default", "round", "abs", "tojson", "sort", "unique", "title", "capitalize"}
_LOOPS = (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)
_ALONE = re.compile(r"\s*\{\{((?:(?!\}\}).)*)\}\}\s*", re.DOTALL)


class TemplateFaultError(Exception):
    """A template cannot be read, or makes nothing of a row; the message says why."""


class _Sandbox(SandboxedEnvironment):
    intercepted_binops = frozenset(["*", "**", "%"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Numbers only: a string times a number, or a number to a power, may take all memory."""
        if operator == "**" or not (isinstance(left, (int, float)) and isinstance(right, (int, float))):
            raise TemplateFaultError(f"{operator} is for numbers here, and ** is not there")
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """No methods that pad: they too may take all memory."""
        return self.unsafe_undefined(obj, attribute) if attribute in _PADS else super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """As `getattr`, to which it falls back."""
        if isinstance(obj, Mapping) or argument not in _PADS:
            return super().getitem(obj, argument)
        return self.unsafe_undefined(obj, argument)


def lettered(options: Sequence[Any] | Mapping[str, Any]) -> str:
    """`options`, a list or an object by letter, a line each: `A. first`."""
    return "\n".join(f"{letter}. {text}" for letter, text in _options(options).items())


def letters(options: Sequence[Any] | Mapping[str, Any]) -> list[str]:
    """The letters of `options`."""
    return list(_options(options))


def letter(answer: Any, options: Sequence[Any] | Mapping[str, Any]) -> str:
    """The letter of the right one: `answer` is a letter, a position that begins at 0, or the option itself."""
    there = _options(options)
    if isinstance(answer, str) and answer.strip().upper() in there:
        return answer.strip().upper()
    if isinstance(answer, int) and 0 <= answer < len(there):
        return list(there)[answer]
    found = [name for name, text in there.items() if text == answer]
    if len(found) == 1:
        return found[0]
    raise TemplateFaultError(f"{answer!r} is none of the options {', '.join(there)}")


def _options(options: Any) -> dict[str, Any]:
    if isinstance(options, Mapping) and {"label", "text"} <= options.keys():  # as datasets stores a list of objects
        options = dict(zip(options["label"], options["text"], strict=True))
    if isinstance(options, Mapping):
        return {str(name): text for name, text in options.items()}
    if isinstance(options, (list, tuple)) and 0 < len(options) <= len(string.ascii_uppercase):
        return dict(zip(string.ascii_uppercase, options, strict=False))
    raise TemplateFaultError(f"{options!r} is no list of options")


def boxed(text: str) -> str:
    r"""What the last `\boxed{…}` of `text` holds."""
    found = extracted([{"by": "boxed"}], text)
    if found is None:
        raise TemplateFaultError("there is no \\boxed{} in it")
    return found


def in_out(inputs: Sequence[str], outputs: Sequence[str]) -> list[dict[str, Any]]:
    """Cases of a program, by what it is given and what it prints."""
    if len(inputs) != len(outputs) or not inputs:
        raise TemplateFaultError(f"there are {len(inputs)} inputs and {len(outputs)} outputs")
    return [{"by": "io", "stdin": given, "stdout": wanted} for given, wanted in zip(inputs, outputs, strict=True)]


@cache
def _environment() -> SandboxedEnvironment:
    environment = _Sandbox(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)
    environment.filters = {name: filter for name, filter in environment.filters.items() if name in _FILTERS}
    environment.globals = {}
    environment.filters.update(lettered=lettered, letters=letters, letter=letter, boxed=boxed)
    environment.globals.update(in_out=in_out)
    return environment


@cache
def compiled(source: str) -> Callable[[Mapping[str, Any]], Any]:
    """The template `source`, which gives a value for a row.

    That of one expression alone is its value, such as a list; else it is text. Raises `TemplateFaultError`.
    """
    environment = _environment()
    try:
        tree = environment.parse(source)
        if loop := next(tree.find_all(_LOOPS), None):
            raise TemplateFaultError(f"{type(loop).__name__.lower()} is not there for templates")
        if alone := _ALONE.fullmatch(source):
            expression = environment.compile_expression(alone[1], undefined_to_none=False)
            return lambda row: expression(**row)
        template = environment.from_string(source)
    except TemplateError as error:
        raise TemplateFaultError(str(error)) from None
    return lambda row: template.render(row)


def value(source: str, row: Mapping[str, Any]) -> Any:
    """What the template `source` gives for `row`. Raises `TemplateFaultError`."""
    try:
        made = compiled(source)(row)
        if isinstance(made, StrictUndefined):
            str(made)  # raises, and says what is not there
    except TemplateFaultError:
        raise
    except Exception as error:  # of the expression: any kind
        raise TemplateFaultError(f"{type(error).__name__}: {error}"[:500]) from None
    if isinstance(made, str) and len(made) > _CHARACTERS:
        raise TemplateFaultError(f"it makes {len(made)} characters, and {_CHARACTERS} are the most")
    return made


def values(said: Any, row: Mapping[str, Any]) -> Any:
    """`said` with each string in it as the value that it has as a template."""
    if isinstance(said, str):
        return value(said, row) if "{{" in said or "{%" in said else said
    if isinstance(said, dict):
        return {name: values(inner, row) for name, inner in said.items()}
    if isinstance(said, list):
        return [values(inner, row) for inner in said]
    return said
