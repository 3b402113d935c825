-- Which of these events are there. $1 tenants, $2 event ids; returns their places in the arrays, from 1
SELECT w.n FROM unnest($1::uuid[], $2::uuid[]) WITH ORDINALITY AS w(tenant, id, n)
    JOIN outbox o ON o.id = w.id AND o.tenant = w.tenant
