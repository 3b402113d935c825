-- Deleted rows of projections are forgotten after a while: up to `pruned_seq`, which ones there were is not known.
ALTER TABLE follower ADD COLUMN pruned_seq bigint NOT NULL DEFAULT 0;
CREATE INDEX follower_row_deleted ON follower_row (follower, updated_at_ms) WHERE data IS NULL;
