-- Makes sure that there is a row to lock. $1 tenant
INSERT INTO alias_position (tenant, version) VALUES ($1, 0) ON CONFLICT (tenant) DO NOTHING
