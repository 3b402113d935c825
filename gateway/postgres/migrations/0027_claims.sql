-- Which aggregate holds which unique value. `value` is a salted hash over aggregate type, name, scope and value, `scope`
-- one over the scope's ('' where there is none). `seq` is that of the event that claimed it. Changed by the commit.
CREATE TABLE unique_claim (
    value          bytea PRIMARY KEY,
    tenant         uuid NOT NULL,
    aggregate_type text NOT NULL,
    aggregate_id   text NOT NULL,
    name           text NOT NULL,
    scope          bytea NOT NULL,
    seq            bigint NOT NULL,
    UNIQUE (tenant, aggregate_type, aggregate_id, name, scope)
);
