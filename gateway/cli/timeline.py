"""`sluice events` and `sluice tail`: what was appended and what is being appended, by a running gateway."""

from __future__ import annotations

import re
import time
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gateway.cli.gateways import KeyOption, UrlOption, at_gateway
from gateway.cli.output import JsonOption, print_json_text, print_table, say, say_parts

if TYPE_CHECKING:
    from gateway.client import Client, Event, FeedOptions

PAGE = 1000
COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red")
_SPAN = re.compile(r"([0-9]{1,9})([smhd])")
_OPTIONS = {
    "types": "--type",
    "event_types": "--event-type",
    "tags": "--tag",
    "actor": "--actor",
    "correlation_id": "--correlation",
    "from_time": "--since",
}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

TypesOption = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TYPE", help="Only events of this aggregate type; repeatable."),
]
EventTypesOption = Annotated[
    list[str] | None,
    typer.Option("--event-type", metavar="TYPE", help="Only events of this event type; repeatable."),
]
TagsOption = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Only events with this tag; repeated: with all these tags."),
]
ActorOption = Annotated[str | None, typer.Option(metavar="TYPE:ID", help="Only events of this actor.")]
LimitOption = Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="At most this many.")]


def events(
    aggregate_type: Annotated[
        str | None, typer.Argument(metavar="TYPE", help="The type of one aggregate.")
    ] = None,
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="The aggregate's key, or an alias with @.")
    ] = None,
    correlation: Annotated[
        str | None,
        typer.Option(metavar="UUID", help="Only events with this correlation id, of all aggregates."),
    ] = None,
    actor: ActorOption = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            "--from-time",
            metavar="TIME",
            help="Only events since then: RFC 3339, Unix seconds, or 15m, 1h, 2d ago.",
        ),
    ] = None,
    types: TypesOption = None,
    event_types: EventTypesOption = None,
    tags: TagsOption = None,
    from_: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="VERSION", min=1, help="The first version to list; only with TYPE and KEY."
        ),
    ] = None,
    order: Annotated[
        Literal["asc", "desc"] | None,
        typer.Option(help="desc: newest first; default: desc, but asc with TYPE, --correlation or --since."),
    ] = None,
    limit: LimitOption = 100,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the events of an aggregate, or of all: by correlation id, actor, time, type or tag."""
    options = _filters(types, event_types, tags, actor, correlation, since)
    if aggregate_type is None:
        if from_ is not None:
            raise typer.BadParameter(
                "a version belongs to one aggregate: give TYPE and KEY, or use --since", param_hint="--from"
            )
        descending = order == "desc" or (order is None and not (correlation or since))
        found, more = at_gateway(
            url, api_key, lambda client: _of_feed(client, options, descending, limit), as_json=as_json
        )
    else:
        if key is None:
            raise typer.BadParameter("give TYPE and KEY, or --type for all of a type", param_hint="KEY")
        if options:
            raise typer.BadParameter(f"{_OPTIONS[next(iter(options))]} cannot be combined with TYPE and KEY")
        place = (aggregate_type, key)
        found, more = at_gateway(
            url, api_key, lambda client: _of_one(client, place, from_, order or "asc", limit), as_json=as_json
        )
    if as_json:
        print_json_text(
            b'{"ok":true,"events":[%b],"more":%b}' % (b",".join(found), b"true" if more else b"false")
        )
        return
    _print(found, with_key=aggregate_type is None)
    if more:
        say(f"only the first {len(found):,} are listed: raise --limit for more", err=True)


def tail(
    types: TypesOption = None,
    event_types: EventTypesOption = None,
    tags: TagsOption = None,
    actor: ActorOption = None,
    correlation: Annotated[
        str | None, typer.Option(metavar="UUID", help="Only events with this correlation id.")
    ] = None,
    after: Annotated[
        str,
        typer.Option(metavar="POSITION", help="Start after this: a feed position, `now` or `beginning`."),
    ] = "now",
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after this many events.")
    ] = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print events as they are committed, until Ctrl-C; with --json, a line each as in the feed."""
    from gateway.client.answers import decode_event

    options: FeedOptions = {**_filters(types, event_types, tags, actor, correlation, None), "after": after}

    def work(client: Client) -> None:
        client.feed(limit=1, **options)  # a refusal is said at once
        for count, document in enumerate(client.follow_json(**options), 1):
            if as_json:
                print_json_text(document)
            else:
                _say(decode_event(document))
            if count == limit:
                break

    try:
        at_gateway(url, api_key, work, as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _filters(
    types: list[str] | None,
    event_types: list[str] | None,
    tags: list[str] | None,
    actor: str | None,
    correlation: str | None,
    since: str | None,
) -> FeedOptions:
    given: Any = {
        "types": _names(types),
        "event_types": _names(event_types),
        "tags": _names(tags),
        "actor": actor,
        "correlation_id": correlation,
        "from_time": None if since is None else _moment(since),
    }
    found: FeedOptions = {name: value for name, value in given.items() if value}  # type: ignore[assignment]
    return found


def _names(given: list[str] | None) -> list[str]:
    return [name for each in given or () for name in each.split(",") if name]


def _moment(text: str) -> str:
    """A time as the API takes it: `15m` is a quarter of an hour ago."""
    span = _SPAN.fullmatch(text)
    return text if span is None else f"{time.time() - int(span[1]) * _SECONDS[span[2]]:.3f}"


def _of_one(
    client: Client, place: tuple[str, str], first: int | None, order: str, limit: int
) -> tuple[list[bytes], bool]:
    """The events as JSON, and whether there are more."""
    from gateway.client.calls import get

    found: list[bytes] = []
    following = first
    while len(found) < limit:
        params = {"order": order, "limit": str(min(PAGE, limit - len(found)))}
        if following is not None:
            params["from"] = str(following)
        page = _page(client.call(get((*place, "events"), params)).content)
        found += [bytes(each) for each in page["events"]]
        following = page["next"]
        if following is None:
            return found, False
    return found, True


def _of_feed(client: Client, options: FeedOptions, descending: bool, limit: int) -> tuple[list[bytes], bool]:
    from gateway.client.calls import feed_params, get

    found: list[bytes] = []
    params = feed_params(options) | ({"order": "desc"} if descending else {})
    while len(found) < limit:
        params["limit"] = str(min(PAGE, limit - len(found)))
        page = _page(client.call(get(("_", "feed"), params)).content)
        found += [bytes(each) for each in page["events"]]
        if page["caught_up"]:
            return found, False
        params["after"] = page["position"]
        params.pop("from_time", None)
    return found, True


def _page(content: bytes) -> dict[str, Any]:
    import msgspec

    parts = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
    told = {name: msgspec.json.decode(value) for name, value in parts.items() if name != "events"}
    return {**told, "events": msgspec.json.decode(parts["events"], type=list[msgspec.Raw])}


def _print(found: list[bytes], *, with_key: bool) -> None:
    from gateway.client.answers import decode_event

    whose = ["aggregate", "key"] if with_key else []
    rows = []
    for document in found:
        event = decode_event(document)
        of = [event.aggregate_type, event.key] if with_key else []
        rows.append([_at(event), *of, str(event.version), event.type, _actor(event), event.id, _data(event)])
    print_table(["at", *whose, "version", "event", "actor", "id", "data"], rows, fold={"data"})


def _say(event: Event) -> None:
    colour = COLOURS[zlib.crc32(event.aggregate_type.encode()) % len(COLOURS)]
    say_parts(
        (_at(event), "bright_black"),
        (f"{event.aggregate_type}.{event.type}", colour),
        (event.key, None),
        (str(event.version), "bright_black"),
        (_actor(event), None),
        (_data(event), "bright_black"),
    )


def _at(event: Event) -> str:
    moment = datetime.fromtimestamp(event.metadata.timestamp, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def _actor(event: Event) -> str:
    return f"{event.metadata.actor.type}:{event.metadata.actor.id}"


def _data(event: Event) -> str:
    import msgspec

    return msgspec.json.format(bytes(event.raw), indent=-1).decode()
