"""`sluice import`: the records of a JSONL file, each an event where it says something new."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gateway.cli.gateways import KeyOption, UrlOption, at_gateway
from gateway.cli.input import read_input
from gateway.cli.output import JsonOption, print_json, say
from gateway.cli.servers import watched

if TYPE_CHECKING:
    from gateway.client import Client

AT_ONCE = 500
"""Records of one request."""
AT_ONCE_BYTES = 512 * 1024
TRIES = 5
"""Of records that may be sent again."""
RESULTS = ("new", "unchanged", "edited", "renamed", "linked")
_NDJSON = {"content-type": "application/x-ndjson"}
_WAIT_S = 60.0


class _Record(NamedTuple):
    line: int
    text: bytes


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSONL, a record a line; - reads stdin.")],
    of_type: Annotated[str, typer.Option("--type", metavar="TYPE", help="The aggregates' type.")],
    event: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="The event that a record becomes; else the type's only one."),
    ] = None,
    ref: Annotated[
        str | None, typer.Option(metavar="FIELD", help="The field that is the record's external ref.")
    ] = None,
    actor: Annotated[
        str | None,
        typer.Option(metavar="TYPE:ID", help="Who acts; else system_importer:test_data_importer."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be, and write nothing.")] = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import records: each goes to the aggregate of its external ref, else of its content, else to a new one.
    What says nothing new is not written, so a file may be imported again, and after a break."""
    asked = {"type": of_type, "event": event, "ref": ref, "actor": actor, "import": str(uuid.uuid4())}
    params = {name: value for name, value in asked.items() if value is not None}
    texts = read_input(file).split(b"\n")
    records = [_Record(n, text) for n, text in enumerate(texts, 1) if text.strip()]

    def work(client: Client) -> Counter[str]:
        counts: Counter[str] = Counter()
        with watched("import") as watcher:
            watcher.begin(len(records))
            good = _announced(client, params, records, counts) if ref is not None else records
            for part in _parts(good):
                for each, answer in _settled(client, {**params, "dry_run": str(dry_run).lower()}, part):
                    counts[answer.get("result", "refused")] += 1
                    _say_line(each.line, answer, quiet=as_json or not dry_run)
                watcher.advance(len(part))
        return counts

    counts = at_gateway(url, api_key, work, as_json=as_json)
    if as_json:
        print_json({name: counts[name] for name in (*RESULTS, "refused")})
    else:
        would = " would be" if dry_run else ""
        say(", ".join([f"{counts[name]}{would} {name}" for name in (*RESULTS, "refused")]))
    if counts["refused"]:
        raise typer.Exit(1)


def _announced(
    client: Client, params: dict[str, str], records: Sequence[_Record], counts: Counter[str]
) -> Sequence[_Record]:
    """Of a file of several requests, tells all refs before the first: none of their aggregates is taken for
    another record's. Returns the records but those that contradict an earlier one of their ref."""
    if sum(1 for _ in _parts(records)) < 2:
        return records
    said: dict[str, Any] = {}
    good: list[_Record] = []
    for each in records:
        try:
            value = json.loads(each.text)
            external = value.get(params["ref"])
        except (ValueError, RecursionError, AttributeError):
            external = None  # the gateway says what is wrong
        if external is None or said.setdefault(str(external), value) == value:
            good.append(each)
        else:
            counts["refused"] += 1
            why = "invalid_field: an earlier line says something else of this ref"
            say(f"line {each.line}: {why}", err=True)
    for part in _parts([_Record(0, json.dumps({params["ref"]: name}).encode()) for name in said]):
        _sent(client, {**params, "only_refs": "true"}, part)
    return good


def _parts(records: Sequence[_Record]) -> Iterator[list[_Record]]:
    part, size = list[_Record](), 0
    for each in records:
        if part and (len(part) == AT_ONCE or size + len(each.text) > AT_ONCE_BYTES):
            yield part
            part, size = [], 0
        part.append(each)
        size += len(each.text) + 1
    if part:
        yield part


def _settled(
    client: Client, params: dict[str, str], part: Sequence[_Record]
) -> list[tuple[_Record, dict[str, Any]]]:
    """Each record with its answer, in order; those that may be sent again are."""
    from gateway.errors import REFUSALS

    found: dict[int, dict[str, Any]] = {}
    left = list(part)
    for again in range(TRIES):
        found |= zip([each.line for each in left], _sent(client, params, left), strict=True)
        left = [each for each in left if (code := found[each.line].get("code")) and REFUSALS[code].retryable]
        if not left or again == TRIES - 1:
            break
        time.sleep(0.2 * 2**again)
    return [(each, found[each.line]) for each in part]


def _sent(client: Client, params: dict[str, str], part: Sequence[_Record]) -> list[dict[str, Any]]:
    from gateway.client.retry import Answer, Call, Request

    def told(answer: Answer) -> list[dict[str, Any]]:
        return [json.loads(line) for line in answer.content.splitlines()]

    body = b"\n".join([each.text for each in part])
    return client.call(Call(Request("POST", "/_/import", params, _NDJSON, body, _WAIT_S), told))


def _say_line(line: int, answer: dict[str, Any], *, quiet: bool) -> None:
    """Refusals always; what would be only where that is asked for."""
    if "result" not in answer:
        say(f"line {line}: {answer['code']}: {answer['error']}", err=True)
    elif not quiet and answer["result"] != "unchanged":
        was = f" from {answer['was']}" if "was" in answer else ""
        say(f"line {line}: {answer['result']}{was} {answer['key'] or ''}".rstrip())
