-- Every aggregate up to a seq has its names, by what a revision of the spec declares. An older revision has no say.
-- $1 tenant, $2 seq, $3 what is declared, $4 revision of the spec
INSERT INTO alias_scan AS s (tenant, seq, declared, spec_rev) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant) DO UPDATE SET
    seq = CASE WHEN s.declared = excluded.declared THEN greatest(s.seq, excluded.seq) ELSE excluded.seq END,
    declared = excluded.declared, spec_rev = excluded.spec_rev
WHERE s.spec_rev <= excluded.spec_rev
