-- Publishing from SQL: publish() and emit() insert a row into a queue, inside the caller's transaction; a server moves the rows
-- whose transaction has committed, in the order of their ids, and deletes them.

CREATE SEQUENCE sql_calls_id;

-- The key begins with the transaction: a server asks only for transactions that its last look could not see, so it never reads
-- the remains of deleted rows, however long an old transaction keeps them.
CREATE TABLE sql_calls (
    xid   BIGINT NOT NULL, -- of the transaction that called
    id    BIGINT NOT NULL, -- in the order of the calls
    at    BIGINT NOT NULL, -- milliseconds since 1970
    name  TEXT   NOT NULL, -- a channel, or a topic
    event_type TEXT,       -- absent: a message
    event_id   TEXT,       -- given by the caller
    data  TEXT   NOT NULL, -- JSON
    PRIMARY KEY (xid, id)
);

-- Calls that a server refused for good, such as an event for a topic of another publisher. Deleted by an operator.
CREATE TABLE sql_refused (
    id    BIGINT NOT NULL PRIMARY KEY,
    at    BIGINT NOT NULL,
    name  TEXT   NOT NULL,
    event_type TEXT,
    event_id   TEXT,
    data  TEXT   NOT NULL,
    reason TEXT  NOT NULL
);

-- The limits of the servers, written by the one that moves the calls.
CREATE TABLE sql_limits (
    message_bytes INT NOT NULL,
    event_bytes   INT NOT NULL
);
INSERT INTO sql_limits (message_bytes, event_bytes) VALUES (65536, 65536);

-- Tells the server that moves the calls. A notification makes commits wait for each other, so only a transaction that
-- finds this server asleep sends one: the server then holds the lock alone. Otherwise the transaction shares the lock until
-- it ends, and until then the server does not go to sleep.
-- Like sql_check_portable, it runs as publish() and emit() do, with their search_path.
CREATE FUNCTION sql_wake() RETURNS VOID
LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(1413564464, 'sql_calls'::regclass::oid::int) THEN
        PERFORM pg_notify('tavern_sql_' || 'sql_calls'::regclass::oid, '');
    END IF;
END
$$;

-- Refuses JSON that some client could not read, as the HTTP API does. Only what is cheap to find: the server that moves the calls
-- checks everything, and keeps what it refuses in sql_refused.
CREATE FUNCTION sql_check_portable(json TEXT) RETURNS VOID
LANGUAGE plpgsql
AS $$
DECLARE
    rest TEXT;
BEGIN
    -- Without escaped backslashes, then without whole pairs.
    rest := regexp_replace(json, '\\\\', ' ', 'g');
    rest := regexp_replace(rest, '\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]', ' ', 'g');
    IF rest ~ '\\u[dD][89a-fA-F]' THEN
        RAISE untranslatable_character USING MESSAGE = 'a string contains an unpaired surrogate';
    END IF;
    -- Without strings.
    rest := regexp_replace(json, '"(?:[^"\\]|\\.)*"', '', 'g');
    IF rest ~ '(?<![0-9.])(?=[0-9.]*[1-9])[0-9]+(\.[0-9]{1,60})?[eE]\+?0*([4-9][0-9]{2}|[1-9][0-9]{3})' THEN
        RAISE numeric_value_out_of_range USING MESSAGE = 'a number is too large; the maximum is 1.8e308';
    END IF;
END
$$;

CREATE FUNCTION publish(channel TEXT, data JSON) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
    most INT := (SELECT message_bytes FROM sql_limits);
BEGIN
    IF channel IS NULL OR octet_length(channel) > 255 OR channel !~ '^[a-z][a-z0-9_-]{0,31}(#[^[:cntrl:]]*)?$' THEN
        RAISE invalid_parameter_value USING MESSAGE = format('bad channel name: %L', left(channel, 300)),
            HINT = 'A channel name is kind#rest of at most 255 bytes: the kind is [a-z][a-z0-9_-]{0,31}, the rest has no control characters.';
    END IF;
    IF split_part(channel, '#', 1) IN ('user', 'party', 'tavern', 'followersof') THEN
        RAISE insufficient_privilege USING MESSAGE = format('reserved kind: channels of kind %L belong to the server', split_part(channel, '#', 1));
    END IF;
    IF data IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'data is NULL', HINT = 'For the JSON null, write ''null''.';
    END IF;
    IF octet_length(data::text) > most THEN
        RAISE program_limit_exceeded USING MESSAGE = format('too large: data has %s bytes, at most %s are allowed', octet_length(data::text), most);
    END IF;
    IF data::text ~ '\\u[dD][89a-fA-F]|[0-9][eE]\+?[0-9]{3}' THEN
        PERFORM sql_check_portable(data::text);
    END IF;
    INSERT INTO sql_calls (xid, id, at, name, data)
    VALUES (txid_current(), nextval('sql_calls_id'), extract(epoch FROM clock_timestamp()) * 1000, channel, data::text);
    PERFORM sql_wake();
END
$$;

CREATE FUNCTION emit(topic TEXT, type TEXT, data JSON, id TEXT DEFAULT NULL) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
    most INT := (SELECT event_bytes FROM sql_limits);
BEGIN
    IF topic IS NULL OR topic !~ '^[a-z0-9_.-]{1,64}$' OR topic IN ('.', '..') THEN
        RAISE invalid_parameter_value USING MESSAGE = format('bad topic name: %L', left(topic, 300)),
            HINT = 'A topic name has 1 to 64 of a-z, 0-9, _, . and -.';
    END IF;
    IF topic = 'tavern' OR topic LIKE 'tavern.%' THEN
        RAISE insufficient_privilege USING MESSAGE = format('reserved topic: only the server publishes to %L', topic);
    END IF;
    IF type IS NULL OR type = '' OR octet_length(type) > 64 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('bad type: %L', left(type, 300)), HINT = 'A type has 1 to 64 bytes.';
    END IF;
    IF id = '' OR octet_length(id) > 200 OR id ~ '[[:cntrl:]]' OR id LIKE 'idempotency-key:%' THEN
        RAISE invalid_parameter_value USING MESSAGE = format('bad id: %L', left(id, 300)),
            HINT = 'An id has 1 to 200 bytes without control characters, and does not start with idempotency-key:';
    END IF;
    IF data IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'data is NULL', HINT = 'For the JSON null, write ''null''.';
    END IF;
    IF octet_length(data::text) > most THEN
        RAISE program_limit_exceeded USING MESSAGE = format('too large: data has %s bytes, at most %s are allowed', octet_length(data::text), most);
    END IF;
    IF data::text ~ '\\u[dD][89a-fA-F]|[0-9][eE]\+?[0-9]{3}' THEN
        PERFORM sql_check_portable(data::text);
    END IF;
    INSERT INTO sql_calls (xid, id, at, name, event_type, event_id, data)
    VALUES (txid_current(), nextval('sql_calls_id'), extract(epoch FROM clock_timestamp()) * 1000, topic, type, id, data::text);
    PERFORM sql_wake();
END
$$;

-- Only those who are granted them.
REVOKE EXECUTE ON FUNCTION publish(TEXT, JSON), emit(TEXT, TEXT, JSON, TEXT), sql_wake(), sql_check_portable(TEXT) FROM PUBLIC;
