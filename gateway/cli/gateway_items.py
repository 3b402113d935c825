"""Items that a gateway keeps and commands list, show and change: sagas, timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gateway.cli.gateways import at_gateway, fetched, posted
from gateway.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from gateway.client import Client

PAGE: Final = 1000
LimitOption = Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="At most this many.")]


@dataclass(frozen=True, slots=True)
class Through:
    """The gateway, and how its answer is printed: the options that each command has."""

    url: str | None
    api_key: str | None
    as_json: bool


@dataclass(frozen=True, slots=True)
class Items:
    """`path` is their place at a gateway, `member` the name of one in its answer. Of the `columns` of their
    table the last, the reason, may be folded."""

    path: str
    member: str
    columns: Sequence[str]
    row: Callable[[dict[str, Any]], list[str]]

    def print_all(self, params: Mapping[str, str | None], limit: int, through: Through) -> None:
        """Those that the parameters with a value select."""
        given = {name: text for name, text in params.items() if text is not None}
        found = at_gateway(
            through.url,
            through.api_key,
            lambda client: self._all(client, given, limit),
            as_json=through.as_json,
        )
        if through.as_json:
            print_json(found)
            return
        items = found["items"]
        print_table(self.columns, [self.row(each) for each in items], fold=self.columns[-1:])
        if found["next"] is not None:
            say(f"only the first {len(items):,} are listed: raise --limit for more", err=True)

    def _all(self, client: Client, given: Mapping[str, str], limit: int) -> dict[str, Any]:
        """As one answer of the gateway, put together from pages."""
        items: list[dict[str, Any]] = []
        params = dict(given)
        while True:
            params["limit"] = str(min(PAGE, limit - len(items)))
            page = fetched(client, ("_", self.path), params)
            items += page["items"]
            if page["next"] is None or len(items) == limit:
                return {**page, "items": items}
            params["cursor"] = page["next"]

    def print_one(self, item: str, through: Through) -> None:
        found = at_gateway(
            through.url,
            through.api_key,
            lambda client: fetched(client, ("_", self.path, item)),
            as_json=through.as_json,
        )
        print_json(found if through.as_json else found[self.member])

    def act(
        self,
        item: str,
        act: str,
        through: Through,
        done: Callable[[dict[str, Any]], str],
        body: Mapping[str, str | int] | None = None,
    ) -> None:
        """`done` says what the item is afterwards."""
        found = at_gateway(
            through.url,
            through.api_key,
            lambda client: posted(client, ("_", self.path, item, act), body or {}),
            as_json=through.as_json,
        )
        if through.as_json:
            print_json(found)
        else:
            say(f"{item} is {done(found[self.member])}")
