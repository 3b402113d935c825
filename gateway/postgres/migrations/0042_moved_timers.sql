-- A person gave the timer another time: its request, sent again, has the old one.
ALTER TABLE schedule ADD COLUMN moved boolean NOT NULL DEFAULT false;
