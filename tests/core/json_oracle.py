"""A second reader of strict JSON, slow and plain, written only from RFC 8259: what the fast ones must agree
with. It shares no code with them, nor with the standard library's scanner."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

DEPTH_MAX = 64
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"'}
HEX = "0123456789abcdefABCDEF"
DIGITS = "0123456789"


class Illegal(Exception):
    pass


def read(body: bytes) -> Any:
    """The value of a strict JSON text. Raises Illegal."""
    try:
        reader = Reader(body.decode("utf-8", "strict"))
    except UnicodeDecodeError:
        raise Illegal("utf-8") from None
    value = reader.value(1)
    reader.blanks()
    if reader.at != len(reader.text):
        raise Illegal("trailing")
    return value


class Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def blanks(self) -> None:
        while self.peek() and self.peek() in " \t\r\n":
            self.at += 1

    def take(self, wanted: str) -> None:
        if not self.text.startswith(wanted, self.at):
            raise Illegal(f"wanted {wanted} at {self.at}")
        self.at += len(wanted)

    def value(self, level: int) -> Any:
        self.blanks()
        first = self.peek()
        if first and first in "{[" and level > DEPTH_MAX:
            raise Illegal("depth")
        if first == "{":
            return self.object(level)
        if first == "[":
            return self.array(level)
        if first == '"':
            return self.string()
        for word, value in (("true", True), ("false", False), ("null", None)):
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return value
        return self.number()

    def object(self, level: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.take("{")
        self.blanks()
        while self.peek() != "}":
            if found:
                self.take(",")
                self.blanks()
            name = self.string()
            if name in found:
                raise Illegal("duplicate")
            self.blanks()
            self.take(":")
            found[name] = self.value(level + 1)
            self.blanks()
        self.take("}")
        return found

    def array(self, level: int) -> list[Any]:
        found: list[Any] = []
        self.take("[")
        self.blanks()
        while self.peek() != "]":
            if found:
                self.take(",")
            found.append(self.value(level + 1))
            self.blanks()
        self.take("]")
        return found

    def string(self) -> str:
        self.take('"')
        units: list[int] = []
        while (char := self.peek()) != '"':
            if not char or ord(char) < 0x20:
                raise Illegal("string")
            self.at += 1
            if char == "\\":
                units.append(self.escape())
            elif ord(char) > 0xFFFF:
                units += [0xD800 + (ord(char) - 0x10000 >> 10), 0xDC00 + (ord(char) - 0x10000 & 0x3FF)]
            else:
                units.append(ord(char))
        self.take('"')
        try:
            text = b"".join(unit.to_bytes(2, "big") for unit in units).decode("utf-16-be")
        except UnicodeDecodeError:
            raise Illegal("surrogate") from None
        if "\0" in text:
            raise Illegal("U+0000")
        return text

    def escape(self) -> int:
        char = self.peek()
        self.at += 1
        if char == "u":
            digits = self.text[self.at : self.at + 4]
            if len(digits) < 4 or any(digit not in HEX for digit in digits):
                raise Illegal("hex")
            self.at += 4
            return int(digits, 16)
        if char not in ESCAPES:
            raise Illegal("escape")
        return ord(ESCAPES[char])

    def digits(self) -> None:
        if not self.peek() or self.peek() not in DIGITS:
            raise Illegal("digit")
        while self.peek() and self.peek() in DIGITS:
            self.at += 1

    def number(self) -> Any:
        start = self.at
        if self.peek() == "-":
            self.at += 1
        if self.peek() == "0":
            self.at += 1
        else:
            self.digits()
        whole = self.at
        if self.peek() == ".":
            self.at += 1
            self.digits()
        if self.peek() and self.peek() in "eE":
            self.at += 1
            if self.peek() and self.peek() in "+-":
                self.at += 1
            self.digits()
        text = self.text[start : self.at]
        if self.at == whole:
            return int(text) if len(text) <= 4300 else Decimal(text)
        if float(text) not in (float("inf"), float("-inf")):
            return float(text)
        try:
            return Decimal(text)
        except InvalidOperation:
            return Decimal("1e999999999999999999").copy_sign(
                Decimal(text[:1] + "1" if text[0] == "-" else "1")
            )


def same(one: Any, other: Any) -> bool:
    """Equality that tells 1 from 1.0 from true, and 0.0 from -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)
