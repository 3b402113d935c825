-- What each tenant's events take, counted behind the commits (gateway/log/storage.py): exact up to `seq` of their
-- partition. Both tables change in one transaction, so a row of the outbox counts once.
CREATE TABLE tenant_storage (
    tenant uuid PRIMARY KEY,
    p      int NOT NULL,
    events bigint NOT NULL,
    bytes  bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE storage_mark (
    p   int PRIMARY KEY,
    seq bigint NOT NULL
) WITH (fillfactor = 50);
