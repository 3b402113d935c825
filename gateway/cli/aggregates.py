"""`sluice show` and `sluice append`: one aggregate, through a running gateway."""

from __future__ import annotations

import getpass
import os
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.gateways import KeyOption, UrlOption, at_gateway, fetched
from gateway.cli.input import read_input
from gateway.cli.output import JsonOption, moment, print_json, print_json_text, refuse, say

if TYPE_CHECKING:
    from gateway.client import Actor, AppendOptions, Client

TypeArgument = Annotated[str, typer.Argument(metavar="TYPE", help="The aggregate type, as in the spec.")]
AggregateArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="The aggregate's key, or an alias with @.")
]


def show(
    aggregate_type: TypeArgument,
    key: AggregateArgument,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Show the state at this time: RFC 3339 or Unix seconds."),
    ] = None,
    at_length: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Show the state after the first N events.")
    ] = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print an aggregate's state, its aliases and its length."""
    import msgspec

    from gateway.client.calls import get

    asked = {"at": at, "at_length": None if at_length is None else str(at_length)}
    params = {name: value for name, value in asked.items() if value is not None}

    def work(client: Client) -> tuple[bytes, bytes]:
        state = client.call(get((aggregate_type, key), params))
        return state.content, client.call(get((aggregate_type, key, "aliases"))).content

    state, named = at_gateway(url, api_key, work, as_json=as_json)
    aliases = msgspec.json.decode(named).get("aliases", [])
    parts = msgspec.json.decode(state, type=dict[str, msgspec.Raw])
    if as_json:
        print_json_text(msgspec.json.encode({**parts, "aliases": aliases}))
        return
    metadata = msgspec.json.decode(parts["metadata"])
    say("  ".join([aggregate_type, msgspec.json.decode(parts["key"]), *aliases]))
    say(f"length {metadata['length']}{_times(metadata)}")
    print_json_text(bytes(parts["data"]), indent=2)


def append(
    aggregate_type: Annotated[
        str, typer.Argument(metavar="TYPE", help="The aggregate type, as in the spec.")
    ] = "",
    key: Annotated[str, typer.Argument(metavar="KEY", help="The aggregate's key, or an alias with @.")] = "",
    event_type: Annotated[
        str, typer.Argument(metavar="EVENT_TYPE", help="The event type, as in the spec.")
    ] = "",
    data: Annotated[str, typer.Argument(metavar="DATA", help="JSON; - reads stdin.")] = "{}",
    actor: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE:ID", help="The actor; default: SLUICE_ACTOR, else you (a UUIDv5 of your login)."
        ),
    ] = None,
    target: Annotated[str | None, typer.Option(metavar="TYPE:ID", help="The target of the event.")] = None,
    previous_length: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Append only if the aggregate has exactly N events."),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Key under which this command may be repeated; default: a new key."),
    ] = None,
    correlation: Annotated[str | None, typer.Option(metavar="UUID", help="The correlation id.")] = None,
    file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A body of POST /_/append instead of TYPE, KEY, EVENT, DATA; - reads stdin."
        ),
    ] = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Append an event, exactly once: a request without a response is repeated with the same Idempotency-Key.

    With --file, events of several aggregates, all or none."""
    import msgspec

    if file is not None:
        if aggregate_type or target is not None or previous_length is not None:
            why = "the file says what to append: leave TYPE, KEY, --target and --previous-length out"
            raise typer.BadParameter(why, param_hint="--file")
        _append_file(file, actor, idempotency_key, correlation, url, api_key, as_json=as_json)
        return
    if not event_type:
        raise typer.BadParameter("give TYPE, KEY and EVENT_TYPE, or --file", param_hint="EVENT_TYPE")
    text = read_input(data) if data == "-" else os.fsencode(data)
    try:
        text.decode()  # of which Raw takes no notice
        msgspec.json.decode(text, type=msgspec.Raw)  # numbers of any size
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise typer.BadParameter(f"this is not JSON: {fault}", param_hint="DATA") from None

    def work(client: Client) -> Any:
        options: AppendOptions = {"actor": _actor(client, actor), "wait": True}
        if target is not None:
            options["target"] = _target(target)
        if previous_length is not None:
            options["previous_length"] = previous_length
        if idempotency_key is not None:
            options["idempotency_key"] = idempotency_key
        if correlation is not None:
            options["correlation_id"] = correlation
        return client.append(aggregate_type, key, event_type, msgspec.Raw(text), **options)

    receipt = at_gateway(url, api_key, work, as_json=as_json)
    if as_json:
        shown = {"ok": True, "key": receipt.key, "event_id": receipt.event_id, "length": receipt.length}
        shown |= {"aliases": list(receipt.aliases)} if receipt.aliases else {}
        print_json({**shown, "replayed": receipt.replayed})
        return
    said = "already appended" if receipt.replayed else "appended"
    say("  ".join([f"{said}: event {receipt.event_id}", aggregate_type, receipt.key, *receipt.aliases]))
    say(f"length {receipt.length}")


def _append_file(
    file: str,
    actor: str | None,
    idempotency_key: str | None,
    correlation: str | None,
    url: str | None,
    api_key: str | None,
    *,
    as_json: bool,
) -> None:
    import msgspec

    from gateway.client.calls import post_append

    try:
        body = msgspec.json.decode(read_input(file), type=dict[str, msgspec.Raw])
        metadata = msgspec.json.decode(body.get("metadata", b"{}"), type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        raise typer.BadParameter(
            f"{file} is not a body of POST /_/append: {fault}", param_hint="--file"
        ) from None

    def work(client: Client) -> Any:
        if "actor" not in metadata or actor is not None:
            metadata["actor"] = msgspec.Raw(msgspec.json.encode(_actor(client, actor)))
        body["metadata"] = msgspec.Raw(msgspec.json.encode(metadata))
        return client.call(post_append(msgspec.json.encode(body), idempotency_key, correlation))

    answer = at_gateway(url, api_key, work, as_json=as_json)
    if as_json:
        print_json_text(answer.content)
        return
    told = msgspec.json.decode(answer.content)
    for event in told["events"]:
        say("  ".join([f"event {event['event_id']}", event["aggregate_type"], event["key"],
                       f"length {event['length']}"]))  # fmt: skip
    replayed = answer.headers.get("idempotency-replayed") == "true"
    events = "1 event" if told["count"] == 1 else f"{told['count']} events"
    say(f"{'appended before' if replayed else 'appended'}: {events}")


def _pair(text: str, hint: str) -> tuple[str, str]:
    kind, colon, identity = text.partition(":")
    if not (kind and colon and identity):
        raise typer.BadParameter(f"{text!r} is not TYPE:ID, such as user:global", param_hint=hint)
    return kind, identity


def _target(text: str) -> Any:
    from gateway.client import Target

    return Target(*_pair(text, "--target"))


def _actor(client: Client, option: str | None) -> Actor:
    """As given, or the person at this terminal: of type `user` where the spec has it, else its first agent
    type; the id is the same for the same login name, here and on every machine."""
    from gateway.client import Actor, Refused

    if given := option or os.environ.get("SLUICE_ACTOR"):
        return Actor(*_pair(given, "--actor"))
    try:
        types = fetched(client, ("_", "spec"))["spec"].get("agent_types", [])
    except Refused as refused:
        if refused.code != "forbidden":
            raise
        types = ["user"]  # a narrow key may not read the spec
    if not types:
        refuse("the spec has no agent_types: nothing can be appended")
    login = getpass.getuser()
    kind = "user" if "user" in types else types[0]
    found = Actor(kind, str(uuid.uuid5(uuid.NAMESPACE_OID, f"login:{login}")))
    say(f"actor {found.type}:{found.id} (login {login}; --actor names another)", err=True)
    return found


def _times(metadata: dict[str, Any]) -> str:
    named = (("created", metadata["created_at"]), ("updated", metadata["updated_at"]))
    shown = [f"{name} {moment(datetime.fromtimestamp(at, UTC))}" for name, at in named if at is not None]
    return "".join([f", {each}" for each in shown])
