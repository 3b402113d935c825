-- What is in quarantine is looked up by its request (where a batch ends), and listed, without a walk over all others.
CREATE INDEX webhook_delivery_held ON webhook_delivery (request) WHERE verdict = 'quarantined';
CREATE INDEX webhook_delivery_listed ON webhook_delivery (tenant, id) WHERE verdict = 'quarantined';
