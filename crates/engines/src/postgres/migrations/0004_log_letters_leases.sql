-- The log of topics: appended at its head, removed from its old end. Whoever appends holds the row of event_log until COMMIT, so
-- positions become visible in their order.
CREATE TABLE events (
    position BIGINT NOT NULL PRIMARY KEY, -- from 1, without holes
    topic    TEXT COLLATE "C" NOT NULL,
    count    BIGINT NOT NULL,             -- its number in its topic
    at       BIGINT NOT NULL,
    id       TEXT,                        -- given by the publisher
    body     BYTEA  NOT NULL
);
CREATE INDEX events_by_topic ON events (topic, position);

CREATE TABLE event_log (
    head  BIGINT NOT NULL,                -- the last position ever given
    bytes BIGINT NOT NULL                 -- of the bodies that are kept
);
INSERT INTO event_log (head, bytes) VALUES (0, 0);

CREATE TABLE topics (
    name  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    count BIGINT NOT NULL
);

-- Ids of publishers, so that each is taken once. They may outlive their events.
CREATE TABLE event_ids (
    topic    TEXT COLLATE "C" NOT NULL,
    id       TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL,
    count    BIGINT NOT NULL,
    PRIMARY KEY (topic, id)
);
CREATE INDEX event_ids_by_position ON event_ids (position);

-- What a user must hear, kept until he has read it.
CREATE TABLE letters (
    user_id TEXT COLLATE "C" NOT NULL,
    n       BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    body    BYTEA  NOT NULL,
    PRIMARY KEY (user_id, n)
);

CREATE TABLE inboxes (
    user_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    last    BIGINT NOT NULL,              -- the highest number given
    dropped BIGINT NOT NULL               -- the highest number dropped unread, or 0
);

-- Who alone works on something, for a while. The version is the fencing number.
CREATE TABLE leases (
    name    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    node    TEXT COLLATE "C" NOT NULL,
    epoch   BIGINT NOT NULL,
    until   BIGINT NOT NULL
);
