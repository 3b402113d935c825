"""How commands reach a running gateway: its URL, a key, and a client whose failures are sentences."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from gateway.cli.database import DEVELOPMENT
from gateway.cli.output import print_json, refuse
from gateway.cli.setting_files import read_file
from gateway.config import ConfigError
from gateway.server_urls import redacted

if TYPE_CHECKING:
    from gateway.client import Client, SluiceError

_T = TypeVar("_T")

GIVE_UP_S = 15.0
"""A person at a terminal waits for no longer; a program has the client."""

KEY_REFUSED = "does not accept the key: give a valid one in SLUICE_KEY, SLUICE_KEY_FILE or --key"

UrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="URL of the gateway; default: SLUICE_URL.")
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="The API key; prefer SLUICE_KEY or SLUICE_KEY_FILE."),
]


def api_key(option: str | None) -> str:
    """The option, else SLUICE_KEY, else what the file SLUICE_KEY_FILE holds. Raises ConfigError."""
    text, path = option or os.environ.get("SLUICE_KEY", ""), os.environ.get("SLUICE_KEY_FILE", "")
    if not text.strip() and path:
        try:
            text = read_file(path)
        except (OSError, UnicodeDecodeError) as fault:
            why = getattr(fault, "strerror", None) or "it must be UTF-8 text"
            raise ConfigError((f"SLUICE_KEY_FILE: {path} can't be read: {why}",)) from None
    if not text.strip():
        raise ConfigError(("a gateway requires a key: set SLUICE_KEY or SLUICE_KEY_FILE, or give --key",))
    return text.strip()


def at_gateway(
    url: str | None, key: str | None, work: Callable[[Client], _T], *, as_json: bool = False
) -> _T:
    """What the work returns. A refusal ends the command with 1: its sentence, or the answer as JSON."""
    from gateway.client import Client, NotCommitted, OutcomeUnknown, Patience, Refused, SluiceError

    place = _url(url)
    try:
        client = Client(place, api_key(key), patience=Patience(give_up_s=GIVE_UP_S))
    except ValueError as fault:
        raise ConfigError((f"SLUICE_URL or --url: {fault}",)) from None
    except Refused as refused:
        raise ConfigError((refused.error,)) from None
    try:
        with client:
            return work(client)
    except Refused as refused:
        if as_json and refused.body:
            print_json(refused.body)
            raise typer.Exit(1) from None
        if refused.code == "unauthorized":
            why = f"{refused.code}: the gateway at {redacted(place)} {KEY_REFUSED}"
            refuse(why, code=refused.code, error=refused.error)
        where = f" ({refused.path})" if refused.path else ""
        path = {"path": refused.path} if refused.path else {}
        refuse(f"{refused.code}: {refused.error}{where}", code=refused.code, error=refused.error, **path)
    except OutcomeUnknown as trouble:
        key_used = trouble.idempotency_key
        refuse(_of(place, trouble), code="outcome_unknown", idempotency_key=key_used)
    except NotCommitted as trouble:
        refuse(_of(place, trouble), code="not_committed")
    except SluiceError as trouble:
        refuse(_of(place, trouble), code="unavailable")
    except UnicodeEncodeError:
        refuse("an argument is not UTF-8")


def _of(place: str, trouble: SluiceError) -> str:
    return f"the gateway at {redacted(place)}: {trouble}"


def fetched(
    client: Client, segments: tuple[str, ...], params: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The answer to a GET of the path of these segments."""
    from gateway.client.calls import get

    return _decoded(client.call(get(segments, params or {})).content)


def posted(client: Client, segments: tuple[str, ...], body: Mapping[str, object]) -> dict[str, Any]:
    """Likewise to a POST."""
    from gateway.client.calls import post

    return _decoded(client.call(post(segments, body)).content)


def _decoded(content: bytes) -> dict[str, Any]:
    from gateway.json_values import decode_data

    return cast(dict[str, Any], decode_data(content))


def _url(option: str | None) -> str:
    """Raises ConfigError where nothing says which gateway is meant."""
    if url := option or os.environ.get("SLUICE_URL"):
        return url
    hints = [f"For the instance in this folder, first run `. {DEVELOPMENT}`"] if DEVELOPMENT.exists() else []
    raise ConfigError(("the gateway's URL is missing: set SLUICE_URL, or give --url", *hints))
