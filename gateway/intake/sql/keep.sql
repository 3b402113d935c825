-- Many rows at once; one that is in quarantine already is left out. Arrays in the order of the columns.
INSERT INTO webhook_delivery (id, tenant, request, item, received_at, took_ms, secret, source, delivery_id,
                              digest, verdict, event_id, target, headers, body, body_bytes, reason, error)
SELECT *
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[], $5::timestamptz[], $6::int[], $7::int[], $8::text[],
            $9::text[], $10::bytea[], $11::text[], $12::uuid[], $13::bytea[], $14::bytea[], $15::bytea[],
            $16::int[], $17::text[], $18::text[])
ON CONFLICT DO NOTHING
