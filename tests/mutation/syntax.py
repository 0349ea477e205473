"""The part of Lua's grammar that mutations need: where statements and operands begin and end."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

_TOKEN = re.compile(
    r"(?P<blank>\s+|--[^\n]*)|(?P<name>[A-Za-z_]\w*)|(?P<number>\d+(?:\.\d+)?)|(?P<text>'(?:\\.|[^'\\\n])*')"
    r"|(?P<sign>\.\.\.|\.\.|==|~=|<=|>=|[-+*/%#<>=(){}\[\];:,.])"
)
_KEYWORDS = frozenset(
    [
        *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not"),
        *("or", "repeat", "return", "then", "true", "until", "while"),
    ]
)
_TIGHTNESS = {
    **dict.fromkeys(["or"], 1),
    **dict.fromkeys(["and"], 2),
    **dict.fromkeys(["<", ">", "<=", ">=", "~=", "=="], 3),
    **dict.fromkeys([".."], 4),
    **dict.fromkeys(["+", "-"], 5),
    **dict.fromkeys(["*", "/", "%"], 6),
}
_UNARY = 7


class Token(NamedTuple):
    """A word of the source."""

    kind: str
    text: str
    start: int
    stop: int


class Span(NamedTuple):
    """A stretch of the source."""

    start: int
    stop: int


class Operation(NamedTuple):
    """Two operands and the operator between them."""

    sign: Token
    left: Span
    right: Span


@dataclass(slots=True)
class Syntax:
    """The elements of a source that mutations change."""

    tokens: list[Token]
    dropped: list[Span] = field(default_factory=list)
    """Statements that can be dropped: all but declarations."""
    conditions: list[Span] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    negations: list[Token] = field(default_factory=list)
    series: list[list[Span]] = field(default_factory=list)
    """The values of each list."""
    paired: list[tuple[list[Span], list[Span]]] = field(default_factory=list)
    """The targets and values of each assignment of several."""
    bound: list[tuple[str, list[Token]]] = field(default_factory=list)
    """Names bound together: by `function`, or by `unpack(KEYS)` and `unpack(ARGV)`."""
    ends: set[Token] = field(default_factory=set)
    """The last word within each such `unpack`: its upper bound, if given."""


class GrammarError(ValueError):
    """A source that this grammar does not cover."""


def tokens_of(source: str) -> list[Token]:
    """Return the words of a source without blanks and comments."""
    found, at = [], 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if not match:
            raise GrammarError(f"cannot read {source[at : at + 20]!r}")
        kind, text = str(match.lastgroup), match[0]
        if kind != "blank":
            found.append(Token("keyword" if text in _KEYWORDS else kind, text, match.start(), match.end()))
        at = match.end()
    return found


def parse(source: str) -> Syntax:
    """Return the syntax of a source."""
    reader = _Reader(tokens_of(source), source)
    reader.block()
    if reader.next.kind != "end":
        raise GrammarError(f"{reader.next.text!r} outside any statement")
    return reader.found


class _Reader:
    """Reads from left to right, one method a rule of the grammar."""

    def __init__(self, tokens: list[Token], source: str) -> None:
        self.found, self.source, self.at = Syntax(tokens), source, 0
        self.end = Token("end", "", len(source), len(source))

    @property
    def next(self) -> Token:
        tokens = self.found.tokens
        return tokens[self.at] if self.at < len(tokens) else self.end

    def take(self, *expected: str) -> Token:
        token = self.next
        if expected and token.text not in expected:
            raise GrammarError(f"{token.text!r} where one of {expected} is expected")
        self.at += 1
        return token

    def took(self, text: str) -> bool:
        if self.next.text != text or self.next.kind == "text":
            return False
        self.at += 1
        return True

    def since(self, start: int) -> Span:
        return Span(start, self.found.tokens[self.at - 1].stop)

    def block(self) -> None:
        while self.next.kind != "end" and self.next.text not in {"end", "else", "elseif", "until"}:
            start, is_declaration = self.next.start, self.next.text == "local"
            getattr(self, f"_{self.next.text}" if self.next.kind == "keyword" else "_plain")()
            if not is_declaration:
                self.found.dropped.append(self.since(start))
            self.took(";")

    def _local(self) -> None:
        self.take("local")
        if self.took("function"):
            self.take()
            self.body("function")
            return
        names = self.names()
        if not self.took("="):
            return
        values = self.values()
        text = self.source[values[0].start : values[0].stop]
        unpacked = re.match(r"unpack\((KEYS|ARGV)", text)
        if unpacked and len(values) == 1:
            self.found.bound.append((unpacked[1], names))
            self.found.ends.add(self.found.tokens[self.at - 2])

    def _if(self) -> None:
        self.take("if")
        self.condition("then")
        while (token := self.take("elseif", "else", "end")).text != "end":
            if token.text == "elseif":
                self.condition("then")
            else:
                self.block()

    def _while(self) -> None:
        self.take("while")
        self.condition("do")
        self.take("end")

    def condition(self, then: str) -> None:
        self.found.conditions.append(self.expression())
        self.take(then)
        self.block()

    def _for(self) -> None:
        self.take("for")
        self.names()
        self.take("=", "in")
        self.values()
        self.take("do")
        self.block()
        self.take("end")

    def _return(self) -> None:
        self.take("return")
        if self.next.kind != "end" and self.next.text not in {"end", "else", "elseif"}:
            self.values()

    def _break(self) -> None:
        self.take("break")

    def _plain(self) -> None:
        targets = [self.expression()]
        while self.took(","):
            targets.append(self.expression())
        if not self.took("="):
            return
        values = self.values()
        if len(targets) == len(values) > 1:
            self.found.paired.append((targets, values))

    def body(self, binding: str) -> None:
        self.take("(")
        names = [] if self.next.text == ")" else self.names()
        self.take(")")
        self.found.bound.append((binding, names))
        self.block()
        self.take("end")

    def names(self) -> list[Token]:
        names = [self.take()]
        while self.took(","):
            names.append(self.take())
        return names

    def values(self) -> list[Span]:
        values = [self.expression()]
        while self.took(","):
            values.append(self.expression())
        return values

    def expression(self, tightness: int = 0) -> Span:
        start = self.next.start
        if self.next.text in {"not", "-", "#"} and self.next.kind != "text":
            sign = self.take()
            self.expression(_UNARY)
            if sign.text == "not":
                self.found.negations.append(sign)
        else:
            self.operand()
        left = self.since(start)
        while self.next.kind != "text" and _TIGHTNESS.get(self.next.text, 0) > tightness:
            sign = self.take()
            own = _TIGHTNESS[sign.text]
            right = self.expression(own - 1 if sign.text == ".." else own)
            self.found.operations.append(Operation(sign, left, right))
            left = self.since(start)
        return left

    def operand(self) -> None:
        token = self.take()
        if token.text == "function":
            self.body("function")
        elif token.text == "{":
            self.table()
        elif token.text == "(":
            self.expression()
            self.take(")")
        elif token.kind not in {"name", "number", "text"} and token.text not in {"nil", "true", "false", "..."}:
            raise GrammarError(f"{token.text!r} is not an operand")
        while self.next.kind == "sign" and self.next.text in {"(", "[", ".", ":"}:
            sign = self.take()
            if sign.text in {".", ":"}:
                self.take()
            elif sign.text == "[":
                self.expression()
                self.take("]")
            else:
                if self.next.text != ")" or self.next.kind == "text":
                    self.values()
                self.take(")")

    def table(self) -> None:
        entries: list[Span] = []
        while not self.took("}"):
            start = self.next.start
            if self.next.kind == "name" and self.found.tokens[self.at + 1].text == "=":
                self.take()
                self.take("=")
                self.expression()
            else:
                self.expression()
                entries.append(self.since(start))
            if not self.took(","):
                self.take("}")
                break
        if len(entries) > 1:
            self.found.series.append(entries)
