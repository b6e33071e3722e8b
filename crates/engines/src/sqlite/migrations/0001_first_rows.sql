-- Times are milliseconds since 1970, the store's. Every row that can be expected has a version.

-- The store's time, and the highest version that a deleted row has had.
CREATE TABLE store_clock (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    time_ms INTEGER NOT NULL,
    floor   INTEGER NOT NULL
) STRICT;
INSERT INTO store_clock (one, time_ms, floor) VALUES (1, 0, 0);

-- One row per lifetime of a node. closed_at is the moment of loss for its clients.
CREATE TABLE nodes (
    name        TEXT    NOT NULL,
    epoch       INTEGER NOT NULL,
    opened_at   INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    closed_at   INTEGER,
    clean       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (name, epoch)
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
    id         TEXT    NOT NULL PRIMARY KEY,
    version    INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    hash       BLOB    NOT NULL,
    scopes     TEXT    NOT NULL, -- names joined by commas
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
) STRICT;
CREATE INDEX api_keys_by_hash ON api_keys (hash, id);

-- Sessions whose node stopped while no other was there to take them.
CREATE TABLE sessions (
    client      TEXT    NOT NULL PRIMARY KEY,
    version     INTEGER NOT NULL,
    secret      BLOB    NOT NULL,
    user_id     TEXT,             -- absent: anonymous
    name        TEXT,
    node        TEXT    NOT NULL,
    epoch       INTEGER NOT NULL,
    body        BLOB    NOT NULL, -- subscriptions, rights and mailbox
    detached_at INTEGER,
    expires_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_by_node ON sessions (node, client);

CREATE TABLE documents (
    kind    TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    version INTEGER NOT NULL,
    body    BLOB    NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT;

CREATE TABLE deadlines (
    kind TEXT    NOT NULL,
    name TEXT    NOT NULL,
    due  INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX deadlines_by_due ON deadlines (due, kind, name);
