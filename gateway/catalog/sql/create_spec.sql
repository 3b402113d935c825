-- The next revision of a tenant's spec. $1 tenant, $2 revision, $3 document, $4 digest, $5 the clock's revision.
INSERT INTO spec_revision (tenant, revision, document, digest, changed) VALUES ($1, $2, $3, $4, $5)
