"""Records of a foreign system, as requests: which of them go together, and what became of each. Pure.

An import says one thing of each external ref. Where it takes several requests, the gateway hears of all refs
first, so that no record takes an aggregate whose own record comes later (docs/names.md).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gateway.client.bulk import Lines
from gateway.client.encoding import encode
from gateway.client.errors import NotCommitted, OutcomeUnknown, Refused
from gateway.client.model import Imported
from gateway.client.options import ImportOptions, check_options
from gateway.client.retry import Answer, Call, Request

RECORDS_MAX = 500
"""Of one request."""
BYTES_MAX = 512 * 1024
Record = Mapping[str, object] | bytes
"""A JSON object, or its text."""
Outcome = Imported | Refused | NotCommitted | OutcomeUnknown
_NDJSON = {"content-type": "application/x-ndjson"}
_WAIT_S = 60.0
_CONTRADICTS = "An earlier record has other content for this ref; an import has one record for each ref."

_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")  # line breaks stand between tokens only


class Import:
    """All records of an import: `parts` are sent one after the other, `announced` before them. Raises
    TypeError for options that it does not know."""

    def __init__(self, aggregate_type: str, records: Iterable[Record], options: ImportOptions) -> None:
        check_options(options, ImportOptions)
        self.id = options.get("import_id") or str(uuid.uuid4())
        self._ref = options.get("ref")
        self._params = {"type": aggregate_type, "import": self.id}
        for name in ("event", "ref"):
            if (value := options.get(name)) is not None:
                self._params[name] = str(value)
        if (actor := options.get("actor")) is not None:
            self._params["actor"] = f"{actor.type}:{actor.id}"
        if options.get("dry_run"):
            self._params["dry_run"] = "true"
        texts = [each.translate(_ONE_LINE) if isinstance(each, bytes) else encode(each) for each in records]
        parts, announced = list(_parts(texts)), list[list[bytes]]()
        only_refs = options.get("only_refs", False)
        if only_refs and self._ref is None:
            raise TypeError("only_refs needs `ref`, the field that is a record's external ref")
        if self._ref is not None and (only_refs or len(parts) > 1):
            texts_or_refusals, refs = self._checked(self._ref, texts)
            announced = [[text for text in part if isinstance(text, bytes)] for part in _parts(refs)]
            parts = list(_parts(texts_or_refusals))
        self.parts = [] if only_refs else parts
        self.announced = announced

    def _checked(self, ref: str, texts: Sequence[bytes]) -> tuple[list[bytes | Refused], list[bytes]]:
        """The records, and a refusal in the place of each that contradicts an earlier one; and all refs."""
        said: dict[str, object] = {}
        checked: list[bytes | Refused] = []
        for text in texts:
            value = _decoded(text)
            external = value.get(ref) if isinstance(value, dict) else None
            if external is None or said.setdefault(str(external), value) == value:
                checked.append(text)
            else:
                checked.append(Refused(422, "invalid_field", _CONTRADICTS, ref, {}))
        return checked, [encode({ref: external}) for external in said]

    def announcement(self, refs: Sequence[bytes]) -> Call[None]:
        return Call(self._request({**self._params, "only_refs": "true"}, b"\n".join(refs)), _nothing)

    def lines(self, part: Sequence[bytes | Refused]) -> Lines[Imported]:
        """Of a part, what is sent."""
        texts = [(self.id, each) for each in part if isinstance(each, bytes)]
        return Lines(texts, lambda body: self._request(self._params, body), _imported)

    def _request(self, params: Mapping[str, str], body: bytes) -> Request:
        return Request("POST", "/_/import", params, _NDJSON, body, _WAIT_S)


def outcomes_of(part: Sequence[bytes | Refused], sent: Iterable[Outcome]) -> Iterator[Outcome]:
    """Of each record of a part, in their order; `sent` are those of what was sent."""
    answers = iter(sent)
    for each in part:
        yield each if isinstance(each, Refused) else next(answers)


def _parts(texts: Iterable[bytes | Refused]) -> Iterator[list[bytes | Refused]]:
    part, size = list[bytes | Refused](), 0
    for each in texts:
        own = len(each) + 1 if isinstance(each, bytes) else 0
        if part and (len(part) == RECORDS_MAX or size + own > BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(each)
        size += own
    if part:
        yield part


def _decoded(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None  # the gateway says what is wrong


def _imported(answer: Answer) -> Imported:
    return msgspec.json.decode(answer.content, type=Imported)


def _nothing(_: Answer) -> None:
    return
