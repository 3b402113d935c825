"""Items that a gateway keeps and commands list, show and change: sagas, timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from gateway.cli.gateways import at_gateway, fetched, posted
from gateway.cli.output import print_json, print_table, say

LimitOption = Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="At most this many.")]


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

    def print_all(self, params: Mapping[str, str | None], through: Through) -> None:
        """Those that the parameters with a value select."""
        given = {name: text for name, text in params.items() if text is not None}
        found = at_gateway(
            through.url,
            through.api_key,
            lambda client: fetched(client, ("_", self.path), given),
            as_json=through.as_json,
        )
        if through.as_json:
            print_json(found)
        else:
            print_table(self.columns, [self.row(each) for each in found["items"]], fold=self.columns[-1:])

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
        body: Mapping[str, str] | None = None,
    ) -> None:
        """`done` says what the item is afterwards."""
        found = at_gateway(
            through.url,
            through.api_key,
            lambda client: posted(client, ("_", self.path, item, act), dict(body or {})),
            as_json=through.as_json,
        )
        if through.as_json:
            print_json(found)
        else:
            say(f"{item} is {done(found[self.member])}")
