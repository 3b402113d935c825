"""Commits that were seen, compared with those that Postgres has: so a loss of commits is noticed.

Owns: when Postgres has lost something. Witnesses are a Redis' watermark, a gateway's memory, and the alarms
that gateways left in Postgres.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.log.epoch.chain import ChainWalk
from gateway.log.postgres import PartitionRow, Postgres

MARK_EVERY: Final = 50_000
"""Events of a partition between two marks of its chain: read in some tenths of a second."""

_ROLL_ROWS: Final = 5_000


@dataclass(frozen=True, slots=True)
class CommitEvidence:
    """`who` saw the partition committed up to (seq, chain) in this epoch; seq 0: it saw nothing."""

    who: str
    epoch: int
    seq: int
    chain: str

    def ahead_of(self, row: PartitionRow) -> bool:
        """Whether it saw more than the row tells; a row that was read before it looked may just be old."""
        return self.epoch >= row.rewound and (self.epoch > row.epoch or self.seq > row.seq)

    def saw_more_than(self, row: PartitionRow) -> bool:
        """Whether it saw events that the row lacks. A later epoch is in itself nothing missing: a seal
        that was lost can be made again, beyond what was seen."""
        return self.epoch >= row.rewound and self.seq > row.seq

    def against(self, p: int, row: PartitionRow) -> str:
        """The sentence for people: what is wrong, where."""
        if self.ahead_of(row):
            return (
                f"partition {p}: Postgres is at epoch {row.epoch}, seq {row.seq}, but {self.who} saw "
                f"epoch {self.epoch}, seq {self.seq} committed"
            )
        return (
            f"partition {p}: what Postgres holds up to seq {row.seq} does not continue what {self.who} saw "
            f"committed at seq {self.seq}"
        )


async def contains(postgres: Postgres, p: int, row: PartitionRow, witness: CommitEvidence) -> bool:
    """Whether Postgres, standing at `row`, has all that the witness saw, in that order; or a rewind has given
    it up. Reads the rows from the witness' seq to the next mark, or to the end where there is none: some
    MARK_EVERY of them, however much was appended since. Raises PostgresTrouble."""
    if witness.epoch < row.rewound:
        return True
    if witness.saw_more_than(row):
        return False
    if witness.seq == 0:
        return True
    marks = await postgres.fetch("marked", p, witness.seq, row.seq)
    seq, chain = marks[0] if marks else (row.seq, row.chain)
    return await rolled(postgres, p, witness.seq, witness.chain, seq) == chain


async def rolled(postgres: Postgres, p: int, seq: int, chain: str, to_seq: int) -> str:
    """The chain at `to_seq` if it was `chain` at `seq`. Raises PostgresTrouble."""
    walk = ChainWalk(chain)
    while seq < to_seq:
        rows = await postgres.fetch("roll", p, seq, to_seq, _ROLL_ROWS)
        if not rows:
            break
        for row in rows:
            walk.add(row["append_id"], row["version"], row["digest"])
        seq = rows[-1]["seq"]
    return walk.chain
