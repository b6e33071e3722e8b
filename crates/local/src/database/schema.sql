-- One row: the counters that all writers share.
CREATE TABLE counters (
    one                   INTEGER PRIMARY KEY CHECK (one = 1),
    last_id               INTEGER NOT NULL,  -- the last message; ids are never reused
    last_process          INTEGER NOT NULL,  -- the last process that registered; numbers are never reused
    subscriptions_version INTEGER NOT NULL,  -- grows with every change of the subscriptions
    patterns_version      INTEGER NOT NULL,  -- grows with every change that is not a plain channel
    subscriptions         INTEGER NOT NULL,
    log_messages          INTEGER NOT NULL,
    log_bytes             INTEGER NOT NULL,
    swept_at              INTEGER NOT NULL   -- when dead processes were last looked for, ms since 1970
);
INSERT INTO counters VALUES (1, 0, 0, 0, 0, 0, 0, 0, 0);

-- A process with subscriptions. It is alive as long as it holds its byte of bus.db-lock.
CREATE TABLE process (
    id         INTEGER PRIMARY KEY,
    pid        INTEGER NOT NULL,
    program    TEXT NOT NULL,
    since      INTEGER NOT NULL,
    lost       INTEGER NOT NULL DEFAULT 0   -- messages removed from its queue because the log was full
);

-- kind: 0 a channel, 1 a pattern, 2 everything. namespace: 0 public, 1 private.
CREATE TABLE subscription (
    namespace  INTEGER NOT NULL,
    kind       INTEGER NOT NULL,
    name       BLOB NOT NULL,
    process    INTEGER NOT NULL,
    subscriber INTEGER NOT NULL,
    PRIMARY KEY (namespace, kind, name, process, subscriber)
) WITHOUT ROWID;
CREATE INDEX subscription_of ON subscription (process, subscriber);

-- Every message, stored once.
CREATE TABLE log (
    id         INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,  -- when it was published, ms since 1970
    process    INTEGER NOT NULL,  -- its publisher, or 0: a process without subscriptions
    subscriber INTEGER NOT NULL,
    namespace  INTEGER NOT NULL,
    size       INTEGER NOT NULL,
    channel    BLOB NOT NULL,
    header     BLOB NOT NULL,
    payload    BLOB NOT NULL
);

-- The messages that a process has not read, or not acknowledged yet.
CREATE TABLE queue (
    process INTEGER NOT NULL,
    id      INTEGER NOT NULL,
    PRIMARY KEY (process, id)
) WITHOUT ROWID;
