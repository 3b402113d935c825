"""Known-bad builds: gateways and relays with one safeguard taken out, to prove that a campaign finds what it
looks for.

    python -m tests.outgoing.bad NAME serve|relay

runs like `python -m gateway serve|relay`. Everything is done to the loaded modules of that process; the
product has no switch for any of it. Each edit asserts that what it takes out is there.
"""

from __future__ import annotations

import sys
from functools import partial

from tests.support.bad_builds import Build, argv_of, edit, run

argv = partial(argv_of, "tests.outgoing.bad")


def _hand_over_anything() -> None:
    from gateway.relay.live import _Tail

    edit(_Tail, "_gather", "if placed.first_seq != end.seq + 1:", "if placed.last_seq <= end.seq:")


def _position_past_the_page() -> None:
    from gateway.http.api import feed

    edit(
        feed, "_page_of", "moved(before.p, entries[-1].place), False", "moved(before.p, chunks[-1].end), True"
    )


def _cursor_ahead() -> None:
    from gateway.relay.cursor import Cursor

    edit(Cursor, "_settle", "if not self._order:", "if self.read:")


def _refusals_settled() -> None:
    from gateway.relay.delivery_worker import DeliveryWorker

    edit(DeliveryWorker, "_landed", "case Confirmed():", "case Confirmed() | Failed():")


def _an_id_each_time() -> None:
    from gateway.relay.delivery_worker import DeliveryWorker

    edit(
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


if __name__ == "__main__":
    run(BUILDS, *sys.argv[1:])
