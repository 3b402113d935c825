-- Pending timers of a tenant are counted: it may have so many.
CREATE INDEX schedule_pending ON schedule (tenant) WHERE state = 'pending';
