-- One row: what all writers count.
CREATE TABLE head (
    one           INTEGER PRIMARY KEY CHECK (one = 1),
    last_id       INTEGER NOT NULL,  -- the last message; numbers are never given twice
    last_process  INTEGER NOT NULL,  -- the last process that listened; never given twice
    roster        INTEGER NOT NULL,  -- grows with every change of who listens to what
    patterns      INTEGER NOT NULL,  -- grows with every change that is not a plain channel
    subscriptions INTEGER NOT NULL,
    log_messages  INTEGER NOT NULL,
    log_bytes     INTEGER NOT NULL,
    swept_at      INTEGER NOT NULL   -- when the dead were last looked for, ms
);
INSERT INTO head VALUES (1, 0, 0, 0, 0, 0, 0, 0, 0);

-- A process that listens. It lives as long as it holds its byte of bus.db-lock.
CREATE TABLE process (
    id         INTEGER PRIMARY KEY,
    pid        INTEGER NOT NULL,
    program    TEXT NOT NULL,
    since      INTEGER NOT NULL,
    lost       INTEGER NOT NULL DEFAULT 0   -- messages taken from its queue because the log was full
);

-- kind: 0 a channel, 1 a pattern, 2 everything. space: 0 public, 1 private.
CREATE TABLE subscription (
    space      INTEGER NOT NULL,
    kind       INTEGER NOT NULL,
    name       BLOB NOT NULL,
    process    INTEGER NOT NULL,
    subscriber INTEGER NOT NULL,
    PRIMARY KEY (space, kind, name, process, subscriber)
) WITHOUT ROWID;
CREATE INDEX subscription_of ON subscription (process, subscriber);

-- Every message once.
CREATE TABLE log (
    id         INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    process    INTEGER NOT NULL,  -- who said it, or 0: a process that does not listen
    subscriber INTEGER NOT NULL,
    space      INTEGER NOT NULL,
    size       INTEGER NOT NULL,
    channel    BLOB NOT NULL,
    note       BLOB NOT NULL,
    payload    BLOB NOT NULL
);

-- What a process has not read yet.
CREATE TABLE queue (
    process INTEGER NOT NULL,
    id      INTEGER NOT NULL,
    PRIMARY KEY (process, id)
) WITHOUT ROWID;
