-- Many rows at once; one that is in quarantine already is left out. Arrays in the order of the columns.
INSERT INTO webhook_delivery (id, tenant, source, delivery_id, digest, request, item, verdict, reason, error,
                              event_id, received_at, took_ms, secret, target, headers, body, body_bytes)
SELECT *
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::uuid[], $7::int[], $8::text[],
            $9::text[], $10::text[], $11::uuid[], $12::timestamptz[], $13::int[], $14::int[], $15::bytea[],
            $16::bytea[], $17::bytea[], $18::int[])
ON CONFLICT DO NOTHING
