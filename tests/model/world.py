"""A scenario made ready to be explored, and the draft that a step changes on its way to the next state."""

from __future__ import annotations

from typing import Any

from tests.model.history import Histories
from tests.model.scenario import Scenario
from tests.model.state import QUEUED, Data, Gateway, Node, Pending, State, changed

Identity = tuple[str, int]


class World:
    """`step` says what leads to the state that is being made: words, and what they speak of."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.rules = scenario.rules
        self.appends = scenario.appends
        self.histories = Histories(scenario)
        self.step: tuple[Any, ...] = ()
        self.of_gateway = [
            [i for i, each in enumerate(self.appends) if each.gateway == g] for g in range(scenario.gateways)
        ]
        for of in self.of_gateway:
            sent_later = [self.appends[i].after is not None for i in of]
            assert sent_later == sorted(sent_later), "appends that wait from the start come first"
        self.event = [("event", i if each.event is None else ~each.event) for i, each in self._numbered()]
        self.chosen = [self._chosen(i) for i in range(len(self.appends))]
        self.identities = [
            (self.event[i], *[each for each in self.chosen[i] if each != self.event[i]])
            for i in range(len(self.appends))
        ]
        self.judged_on = [self._judged_on(i) for i in range(len(self.appends))]
        self.linked = {each for of in self.judged_on for each in of}
        self.linked |= {i for i, of in enumerate(self.judged_on) if of}
        self.replies: dict[Any, Any] = {}
        """What `sequence` has answered, by what it was asked: a script is a function of that."""
        self._remembered: dict[tuple[int, int, int], dict[Identity, tuple[int, int]]] = {}

    def _numbered(self) -> list[tuple[int, Any]]:
        return list(enumerate(self.appends))

    def _chosen(self, i: int) -> tuple[Identity, ...]:
        append = self.appends[i]
        key = () if append.key is None else (("key", append.key),)
        return (*(() if append.event is None else (self.event[i],)), *key)

    def _judged_on(self, i: int) -> tuple[int, ...]:
        """The appends that make the state that it was judged on, where they were not committed then."""
        on = self.appends[i].on
        return () if on is None else (*self._judged_on(on), on)

    def place(self, i: int) -> int:
        """The version at which those that were judged on it expect it."""
        first, *row = (*self.judged_on[i], i)
        length = max(self.appends[first].expected, 0)
        return 1 + length + sum([self.appends[each].events for each in (first, *row)[:-1]])

    def first(self) -> State:
        """Everybody agrees on an empty partition in epoch 1."""
        data = Data(1, 0, 0, 0, 0, 0, 0, 0, 0)
        nodes = tuple([Node(n == 0, n, 0, data) for n in range(self.scenario.nodes)])
        gateway = Gateway(True, 1, True, False, 0, (), (), False)
        pendings = [Pending(int(each.after is None), False, False, (), 0) for each in self.appends]
        gateways = (gateway,) * self.scenario.gateways
        return State(1, False, 0, nodes, gateways, tuple(pendings), (), self.scenario.budget, (), 0)

    def may(self, s: State, fault: str) -> bool:
        return s.left > 0 and fault in self.scenario.faults

    def identity(self, node: Node) -> int:
        """What a server is recognized by."""
        return node.replid if self.rules.fence == "replid" else node.run_id

    def claims(self, history: int, after: int = 0, from_seq: int = 0) -> dict[Identity, tuple[int, int]]:
        """Who holds which identity, (append, its last seq): of the appends after a history, but for those
        that end before `from_seq`."""
        key = (history, after, from_seq)
        found = self._remembered.get(key)
        if found is None:
            found = self._remembered[key] = {}
            seq = self.histories.seq[after]
            for append, _ in self.histories.run(after, history):
                seq += self.appends[append].size
                if seq >= from_seq:
                    found.update(dict.fromkeys(self.identities[append], (append, seq)))
        return found


class Draft:
    """A state while a step changes it."""

    __slots__ = ("direct", "epoch", "gateways", "history", "late", "left", "nodes", "pendings", "read", "top")

    def __init__(self, s: State, *, faults: int = 0) -> None:
        self.epoch = s.epoch
        self.direct = s.direct
        self.history = s.history
        self.nodes = list(s.nodes)
        self.gateways = list(s.gateways)
        self.pendings = list(s.pendings)
        self.late = s.late
        self.left = s.left - faults
        self.read = s.read
        self.top = s.top

    def state(self) -> State:
        return State(
            self.epoch, self.direct, self.history, tuple(self.nodes), tuple(self.gateways),
            tuple(self.pendings), self.late, self.left, self.read, self.top,
        )  # fmt: skip

    def gateway(self, g: int, **changes: Any) -> None:
        self.gateways[g] = changed(self.gateways[g], changes)

    def data(self, n: int, data: Data | None) -> None:
        self.nodes[n] = self.nodes[n]._replace(data=data)

    def pending(self, i: int, **changes: Any) -> None:
        self.pendings[i] = changed(self.pendings[i], changes)

    def requeue(self, i: int, **changes: Any) -> None:
        """With `again`, nothing holds that was looked up before."""
        if changes.get("again"):
            changes["looked_up"] = -1
            changes["look"] = ()
            changes["place"] = 0
        self.pending(i, stage=QUEUED, **changes)

    def send(self, *message: Any) -> None:
        """A message that arrives late or never."""
        self.late = tuple(sorted((*self.late, message)))

    def received(self, message: tuple[Any, ...]) -> None:
        at = self.late.index(message)
        self.late = (*self.late[:at], *self.late[at + 1 :])
