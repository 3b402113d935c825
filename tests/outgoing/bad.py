"""Known-bad builds: gateways and relays with one safeguard taken out, to prove that a campaign finds what it
looks for.

    python -m tests.outgoing.bad NAME serve|relay

runs like `python -m gateway serve|relay`. Everything is done to the loaded modules of that process; the
product has no switch for any of it. Each edit asserts that what it takes out is there.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Build:
    what: str
    spoil: Callable[[], None]


def argv(name: str | None, command: str) -> tuple[str, ...]:
    """How to start one; without a name, the product."""
    if name is None:
        return (sys.executable, "-m", "gateway", command)
    return (sys.executable, "-m", "tests.outgoing.bad", name, command)


def _edit(owner: object, name: str, old: str, new: str) -> None:
    """In the source of a function of a class or module."""
    function = getattr(owner, name)
    text = textwrap.dedent(inspect.getsource(function))
    assert old in text, f"{old!r} is not there any more"
    made: dict[str, object] = {}
    exec("from __future__ import annotations\n" + text.replace(old, new), function.__globals__, made)
    setattr(owner, name, made[name])


def _hand_over_anything() -> None:
    from gateway.relay.live import _Tail

    _edit(_Tail, "_gather", "if placed.first_seq != end.seq + 1:", "if placed.last_seq <= end.seq:")


def _position_past_the_page() -> None:
    from gateway.http.api import feed

    _edit(
        feed, "_page_of", "moved(before.p, entries[-1].place), False", "moved(before.p, chunks[-1].end), True"
    )


def _cursor_ahead() -> None:
    from gateway.relay.cursor import Cursor

    _edit(Cursor, "_settle", "if not self._order:", "if self.read:")


def _refusals_settled() -> None:
    from gateway.relay.delivery_worker import DeliveryWorker

    _edit(DeliveryWorker, "_landed", "case Confirmed():", "case Confirmed() | Failed():")


def _an_id_each_time() -> None:
    from gateway.relay.delivery_worker import DeliveryWorker

    _edit(
        DeliveryWorker, "_parcel", "Message(uuid_text(event.id),", "Message(str(__import__('uuid').uuid4()),"
    )


BUILDS: dict[str, Build] = {
    "hand-over-anything": Build(
        "hands live followers what does not continue where they stand", _hand_over_anything
    ),
    "position-past-page": Build(
        "gives a page that its limit cut the position behind all of it", _position_past_the_page
    ),
    "cursor-ahead": Build("moves a subscription's cursor over what is under way", _cursor_ahead),
    "refusals-settled": Build("goes on behind a delivery that was refused", _refusals_settled),
    "id-each-time": Build("gives each attempt an id of its own", _an_id_each_time),
}


def main(name: str, command: str) -> None:
    """Never returns normally: serves until it is ended."""
    BUILDS[name].spoil()
    from gateway.__main__ import main as sluice

    sys.argv = ["sluice", command]
    sluice()


if __name__ == "__main__":
    main(*sys.argv[1:])
