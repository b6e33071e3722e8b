-- The log of topics: appended at its head, removed from its old end.
CREATE TABLE events (
    position INTEGER NOT NULL PRIMARY KEY, -- from 1, without holes
    topic    TEXT    NOT NULL,
    count    INTEGER NOT NULL,             -- its number in its topic
    at       INTEGER NOT NULL,
    id       TEXT,                         -- given by the publisher
    body     BLOB    NOT NULL
) STRICT;
CREATE INDEX events_by_topic ON events (topic, position);

CREATE TABLE event_log (
    one   INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    head  INTEGER NOT NULL,                -- the last position ever given
    bytes INTEGER NOT NULL                 -- of the bodies that are kept
) STRICT;
INSERT INTO event_log (one, head, bytes) VALUES (1, 0, 0);

CREATE TABLE topics (
    name  TEXT    NOT NULL PRIMARY KEY,
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Ids of publishers, so that each is taken once. They may outlive their events.
CREATE TABLE event_ids (
    topic    TEXT    NOT NULL,
    id       TEXT    NOT NULL,
    position INTEGER NOT NULL,
    count    INTEGER NOT NULL,
    PRIMARY KEY (topic, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX event_ids_by_position ON event_ids (position);

-- What a user must hear, kept until he has read it.
CREATE TABLE letters (
    user_id TEXT    NOT NULL,
    n       INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    body    BLOB    NOT NULL,
    PRIMARY KEY (user_id, n)
) STRICT;

CREATE TABLE inboxes (
    user_id TEXT    NOT NULL PRIMARY KEY,
    last    INTEGER NOT NULL,              -- the highest number given
    dropped INTEGER NOT NULL               -- the highest number dropped unread, or 0
) STRICT, WITHOUT ROWID;

-- Who alone works on something, for a while. The version is the fencing number.
CREATE TABLE leases (
    name    TEXT    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    node    TEXT    NOT NULL,
    epoch   INTEGER NOT NULL,
    until   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
