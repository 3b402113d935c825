-- Which gateways can't reach the Redis of which partitions, each told by itself twice a second while it is so.
-- They keep these partitions in direct mode; a row that is old is a gateway that is gone.
CREATE TABLE redis_unreachable (
    gateway    text PRIMARY KEY,
    partitions int[] NOT NULL,
    seen       timestamptz NOT NULL
);
