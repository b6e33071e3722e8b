-- Times are milliseconds since 1970, the store's. Every row that can be expected has a version. Texts are ordered by their
-- bytes, whatever the database's language. A version of 0 is a row that a transaction under way has reserved: no reader sees it.

-- The store's time, and the highest version that a deleted row has had: the highest of all lanes. A writer writes its own
-- lane only, so that writers do not wait for each other.
CREATE TABLE store_clock (
    lane    INT    NOT NULL PRIMARY KEY,
    time_ms BIGINT NOT NULL,
    floor   BIGINT NOT NULL
) WITH (fillfactor = 20);
INSERT INTO store_clock (lane, time_ms, floor) SELECT lane, 0, 0 FROM generate_series(0, 63) AS lane;
CREATE SEQUENCE store_lanes;

-- One row per lifetime of a node. closed_at is the moment of loss for its clients.
CREATE TABLE nodes (
    name        TEXT COLLATE "C" NOT NULL,
    epoch       BIGINT  NOT NULL,
    opened_at   BIGINT  NOT NULL,
    lease_until BIGINT  NOT NULL,
    closed_at   BIGINT,
    clean       BOOLEAN NOT NULL DEFAULT false,
    PRIMARY KEY (name, epoch)
);

CREATE TABLE api_keys (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version    BIGINT NOT NULL,
    name       TEXT   NOT NULL,
    hash       BYTEA  NOT NULL,
    scopes     TEXT   NOT NULL, -- names joined by commas
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);
CREATE INDEX api_keys_by_hash ON api_keys (hash, id);

-- Sessions whose node stopped while no other was there to take them.
CREATE TABLE sessions (
    client      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version     BIGINT NOT NULL,
    secret      BYTEA  NOT NULL,
    user_id     TEXT COLLATE "C",          -- absent: anonymous
    name        TEXT,
    node        TEXT COLLATE "C" NOT NULL,
    epoch       BIGINT NOT NULL,
    body        BYTEA  NOT NULL,           -- subscriptions, rights and mailbox
    detached_at BIGINT,
    expires_at  BIGINT NOT NULL
);
CREATE INDEX sessions_by_node ON sessions (node, client);

CREATE TABLE documents (
    kind    TEXT COLLATE "C" NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    body    BYTEA  NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE TABLE deadlines (
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    due  BIGINT NOT NULL,
    PRIMARY KEY (kind, name)
);
CREATE INDEX deadlines_by_due ON deadlines (due, kind, name);
