-- Which tenants have new aggregates. $1 tenants, $2 after which seq, one each
SELECT w.tenant FROM unnest($1::uuid[], $2::bigint[]) AS w(tenant, seq)
WHERE EXISTS (SELECT FROM outbox o WHERE o.tenant = w.tenant AND o.version = 1 AND o.seq > w.seq)
