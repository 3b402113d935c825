-- A gateway reads which identities were committed since it last did.
CREATE INDEX append_identity_place ON append_identity (p, seq);
