"""Every message of an error, a warning or a note and every option's help in one list, held to the same rules.

`python -m pytest -s tests/test_messages.py` prints it: file and line, kind, text. Fields are shown as `{expression}`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hydractl import errors
from tests.steps.test_guide import DIALECT

PACKAGE = Path(errors.__file__).parent
ERRORS = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
NOTES = {"note", "on_note", "warn"}
#: The place of the help among the arguments.
HELPS = {"Option": 0, "required": 0, "output_option": 0, "ratio_option": 0, "_listed": 0, "option": 1}
LONGEST = 280  # characters, fields left out


class Message(NamedTuple):
    place: str
    kind: str
    text: str

    @property
    def prose(self) -> str:
        """The text without its fields."""
        return re.sub(r"\{[^{}]*\}", "{}", self.text)


def texts(node: ast.expr | None) -> list[str]:
    """The texts that an expression may be; several if a condition chooses among them, none if it holds no prose."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(p.value if isinstance(p, ast.Constant) else f"{{{ast.unparse(p.value)}}}" for p in parts)]
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            pairs = [(a, b) for a in texts(left) or ["{}"] for b in texts(right) or ["{}"]]
            return [a + b for a, b in pairs if a + b != "{}{}"]
        case ast.IfExp(body=body, orelse=other):
            return texts(body) + texts(other)
        case _:
            return []


def name_of(node: ast.expr) -> str:
    """The name of a constant or of a called function; empty for other code."""
    if isinstance(node, ast.Call):
        return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return node.id if isinstance(node, ast.Name) and node.id.isupper() else ""


def named(trees: list[ast.Module]) -> dict[str, list[str]]:
    """The texts of constants, and those that functions return or yield, by name."""
    table: dict[str, list[str]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.returns is not None and "str" in ast.unparse(node.returns):
                ends = [end.value for end in ast.walk(node) if isinstance(end, ast.Return | ast.Yield)]
                table[node.name] = [text for end in ends for text in texts(end) if " " in text]
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                table[node.targets[0].id] = texts(node.value)
    return table


def spoken(node: ast.AST) -> tuple[str, ast.expr] | None:
    """The kind of a message and the expression of its text; None for other code."""
    if not isinstance(node, ast.Call):
        return None
    name = name_of(node)
    kind = "error" if name in ERRORS else "note" if name in NOTES else "help" if name in HELPS else ""
    place = HELPS.get(name, 0)
    if not kind or len(node.args) <= place:
        return None
    return kind, node.args[place]


def messages() -> Iterator[Message]:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    table = named(list(trees.values()))
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if (message := spoken(node)) is not None:
                kind, expression = message
                for text in texts(expression) or table.get(name_of(expression), []):
                    yield Message(f"{path.relative_to(PACKAGE)}:{node.lineno}", kind, text)


ALL = sorted(set(messages()))
EVERY = ("error", "note", "help")
DIALECT_HERE = (  # what a message would rather say by a noun, or by who does what
    r"\b(?:is|are) no\b|\b(?:has|have) none\b|\bgive less\b|\bgive (?:more|others?)(?=$|,|:)|\bname (?:others?|some)$"
    r"|\b(?:a|one) \w+ a (?:line|sample|word)\b|\b(?:is|are) there\b|\bwhat is there\b|\bso many\b|\bplease\b"
)
STARTS = r"^(?:[a-z`{\[]|(?:AUROC|ID|NLL|OOD|ONNX)\b)"
REMEDY = r"[:;?] ?.|\b(?:expected|needs?|cannot|should|must)\b"
FRAGMENT = r"^[\W_]*(?:\(and \{\} more\))?$|^--"  # fields alone, whose texts stand elsewhere, and flags


def prose(*kinds: str) -> dict[str, str]:
    """The texts of some kinds, by where they stand."""
    return {f"{m.place} {m.prose}": m.prose for m in ALL if m.kind in kinds and not re.match(FRAGMENT, m.prose)}


def test_all_are_collected_and_listed() -> None:
    print(*(f"{message.place}  {message.kind}  {message.text}" for message in ALL), sep="\n")
    assert len(prose("error")) > 450 and len(prose("note")) > 20 and len(prose("help")) > 150


def test_they_are_plain_english() -> None:
    assert not [m for m, text in prose(*EVERY).items() if re.search(f"{DIALECT}|{DIALECT_HERE}", text)]


def test_they_are_set_alike() -> None:
    assert not [m for m, text in prose(*EVERY).items() if re.search("  |!$|^ | $", text) or text.count("`") % 2]
    assert not [m for m, text in prose("error", "note").items() if text.endswith(".") or not re.match(STARTS, text)]
    assert not [m for m, text in prose("help").items() if not re.match(r"[A-Z{].*[.}]$", text)]


def test_an_error_names_a_remedy() -> None:
    assert not [m for m, text in prose("error").items() if not re.search(REMEDY, text)]


def test_none_is_long() -> None:
    assert not [m for m, text in prose(*EVERY).items() if len(text) > LONGEST]
