-- Timers and sagas that have ended are deleted after a while. Timers of events that a person cancelled stay: they would be set
-- again where events are looked at again.
CREATE INDEX schedule_ended ON schedule (ended_at)
    WHERE state = 'fired' OR state = 'cancelled' AND (reason IS NOT NULL OR trigger_id IS NULL);
CREATE INDEX saga_ended ON saga (changed_at) WHERE state IN ('completed', 'compensated', 'abandoned');
