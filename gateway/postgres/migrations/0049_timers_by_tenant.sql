-- Timers that are due are looked for by tenant where those of some tenants wait: they are not read one by one then.
CREATE INDEX schedule_pending_due ON schedule (tenant, due_at) WHERE state = 'pending';
DROP INDEX schedule_pending;
