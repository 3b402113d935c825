-- A new subscription. $1 tenant, $2 name, $3 kind, $4 declared, $5 document, $6 types, $7 event types, $8 p, $9 seq,
-- $10 mark, $11 most of a tenant. Returns its id; no row where the tenant has that many, or has it
-- already
INSERT INTO subscription (tenant, name, kind, declared, document, types, event_types, p, seq, mark)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10 WHERE (SELECT count(*) FROM subscription WHERE tenant = $1) < $11
ON CONFLICT (tenant, name) DO NOTHING
RETURNING id
