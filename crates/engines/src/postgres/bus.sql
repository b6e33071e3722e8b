-- The bus. Most messages travel in notifications; a batch that is too long for one is a row here, and the notification names
-- it. Three tables take turns: the oldest is emptied as a whole, so nothing is deleted row by row, and an open transaction
-- of another program keeps no dead rows. Not logged: after a crash every connection is new, and the loss is reported.
CREATE UNLOGGED TABLE bus_batches_0 (
    stream BIGINT NOT NULL, -- one connection of a node
    batch  BIGINT NOT NULL, -- its number in the stream
    body   BYTEA  NOT NULL,
    PRIMARY KEY (stream, batch)
) WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false);
ALTER TABLE bus_batches_0 ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE UNLOGGED TABLE bus_batches_1 (LIKE bus_batches_0 INCLUDING ALL)
    WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false);
CREATE UNLOGGED TABLE bus_batches_2 (LIKE bus_batches_0 INCLUDING ALL)
    WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false);

-- Which table takes the batches: the one with the number turn % 3.
CREATE TABLE bus_turn (
    turn  BIGINT      NOT NULL,
    since TIMESTAMPTZ NOT NULL
);
INSERT INTO bus_turn (turn, since) VALUES (0, clock_timestamp());

-- Begins the next turn when the table of this one has max_bytes or is max_age_ms old, and empties the table that comes next.
-- Returns the turn, and whether all three are empty. Runs as the owner of the tables: the servers' own login may not empty them.
CREATE FUNCTION bus_rotate(max_bytes BIGINT, max_age_ms BIGINT, OUT turn BIGINT, OUT is_empty BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '100ms'
AS $$
DECLARE
    oldest REGCLASS;
    is_due BOOLEAN;
BEGIN
    IF NOT has_table_privilege(session_user, 'bus_turn', 'UPDATE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'bus_rotate is for the servers';
    END IF;
    is_empty := pg_relation_size('bus_batches_0') + pg_relation_size('bus_batches_1') + pg_relation_size('bus_batches_2') = 0;
    SELECT t.turn, pg_total_relation_size(('bus_batches_' || t.turn % 3)::regclass) >= max_bytes
            OR NOT is_empty AND since < clock_timestamp() - max_age_ms * interval '1 millisecond'
        INTO turn, is_due FROM bus_turn t;
    IF NOT is_due THEN
        RETURN;
    END IF;
    -- Another node may be doing it.
    PERFORM 1 FROM bus_turn t WHERE t.turn = bus_rotate.turn FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    oldest := ('bus_batches_' || (turn + 1) % 3)::regclass;
    IF pg_relation_size(oldest) > 0 THEN
        EXECUTE format('TRUNCATE %s', oldest);
    END IF;
    UPDATE bus_turn t SET turn = t.turn + 1, since = clock_timestamp();
    turn := turn + 1;
EXCEPTION WHEN lock_not_available THEN
    -- A backup reads the table: the turn lasts longer.
    RETURN;
END
$$;
