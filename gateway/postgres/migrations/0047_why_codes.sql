-- The reason in `why` as a code, where a statement goes by it: 'position_lost', the event at the position is missing,
-- and `sluice repair` may restore it. NULL in all others.
ALTER TABLE subscription ADD COLUMN why_code text;
UPDATE subscription SET why_code = 'position_lost'
WHERE state = 'disabled' AND starts_with(why, 'Its position is lost: ');

-- Gateways of earlier releases, which run during an upgrade, write the sentence only.
CREATE FUNCTION code_of_why() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.why_code := CASE WHEN NEW.state = 'disabled' AND starts_with(NEW.why, 'Its position is lost: ')
        THEN 'position_lost' END;
    RETURN NEW;
END $$;
CREATE TRIGGER code_of_why BEFORE UPDATE OF why ON subscription FOR EACH ROW
    WHEN (NEW.why IS DISTINCT FROM OLD.why AND NEW.why_code IS NOT DISTINCT FROM OLD.why_code)
    EXECUTE FUNCTION code_of_why();
