"""Names that people say, by Postgres: which aggregate an alias stands for.

The truth is a stream of events a tenant has like any other (`gateway/names/changes.py`), appended under the
length that the writer saw; the tables (`gateway/postgres/migrations/0006_names.sql`) are projections of it.

    store.py      the tables: look-ups, applying events, a snapshot to decide on, making them again
    resolver.py   alias → aggregate, with what never changes kept in memory
    writer.py     decide on a snapshot, append under its version, apply; again where another one was faster
    kinds.py      which names a spec declares, and how those of each kind are made
    assigner.py   gives names to new aggregates, in batches, behind the commit of their first events

Another kind of alias plugs in at three places. `gateway.names.aliases.parse_alias` tells its grammar apart (a
`Kind` of its own, and a body that no other kind can have). Where aggregates get one by being created, its
`Namer` goes into `kinds.namers_of`: it is given aggregates that have none of its kind, and a snapshot to look
names up in (`Snapshot.holders`). Where something else gives one, that calls `Writer.write` with a plan: a
function of a snapshot that returns changes (`Give`, `Retire`), called again until no other writer was faster,
so it may rely on what it saw. Resolving, listing, retiring, export and rebuild know no kind, but for
abbreviations of hash ids.
"""
