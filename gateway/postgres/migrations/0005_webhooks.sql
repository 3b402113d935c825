-- Deliveries of webhooks: what came, what became of it, and the request itself for as long as it is kept.

-- A row a delivery; those of a batch find their request in a row of its own, of the verdict `batch`. `digest` is what a repetition must have in common. `headers` is a JSON list of pairs in their order. Times that a
-- delivery took run from its first byte to its outcome.
CREATE TABLE webhook_delivery (
    id          uuid PRIMARY KEY,
    tenant      uuid NOT NULL,
    source      text NOT NULL,
    delivery_id text NOT NULL,
    digest      bytea NOT NULL,
    request     uuid NOT NULL,
    item        int NOT NULL,
    verdict     text NOT NULL CHECK (verdict IN ('accepted', 'duplicate', 'quarantined', 'replayed', 'batch')),
    reason      text,
    error       text,
    event_id    uuid,
    received_at timestamptz(3) NOT NULL,
    took_ms     int NOT NULL,
    secret      int NOT NULL,
    target      bytea,
    headers     bytea,
    body        bytea
);
-- Bodies are read whole and seldom: compressing them is not worth the time of those who wait.
ALTER TABLE webhook_delivery ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX webhook_delivery_tenant ON webhook_delivery (tenant, id);
-- One quarantined delivery is one row, however often its sender tries.
CREATE UNIQUE INDEX webhook_delivery_quarantined ON webhook_delivery (tenant, source, delivery_id, digest)
    WHERE verdict = 'quarantined';
