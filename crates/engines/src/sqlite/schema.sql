-- Times are milliseconds since 1970 by the store's clock. Every row that can be expected has a version.

-- The store's time, the highest version of any deleted row, and how many rows of some kinds there are.
CREATE TABLE store_clock (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    time_ms INTEGER NOT NULL,
    floor   INTEGER NOT NULL,
    users     INTEGER NOT NULL, -- online
    presences INTEGER NOT NULL,
    parties   INTEGER NOT NULL
) STRICT;
INSERT INTO store_clock (one, time_ms, floor, users, presences, parties) VALUES (1, 0, 0, 0, 0, 0);

-- One row per epoch of a node. Its clients count as lost from closed_at on.
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
    expires_at INTEGER,
    last_used_at INTEGER,
    revoked_at INTEGER
) STRICT;
CREATE INDEX api_keys_by_hash ON api_keys (hash, id);

-- Sessions that wait for their clients: their node stopped and no other node took them.
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

-- A channel with at least one user. Deleted with the last one; a later version is always higher.
CREATE TABLE channel_presences (
    channel_name TEXT    NOT NULL PRIMARY KEY,
    version      INTEGER NOT NULL, -- grows by one for each change that watchers see
    users        INTEGER NOT NULL,
    last_updated INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One user in one channel. An anonymous user has the client id as user_id.
CREATE TABLE presences (
    channel_name TEXT    NOT NULL,
    user_id      TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    anonymous    INTEGER NOT NULL,
    name         TEXT,
    since        INTEGER NOT NULL,
    left_reason  TEXT,             -- of the last client that left
    left_at      INTEGER,
    visibility   TEXT    NOT NULL, -- who sees the user in this channel
    PRIMARY KEY (channel_name, user_id)
) STRICT, WITHOUT ROWID;

-- The clients of a user in a channel: every present user has at least one, so the key also lists the
-- channels of a user. A lost client stays until its user is back or gone.
CREATE TABLE user_channel_presences (
    user_id       TEXT    NOT NULL,
    channel_name  TEXT    NOT NULL,
    connection_id TEXT    NOT NULL,
    node          TEXT    NOT NULL,
    epoch         INTEGER NOT NULL,
    state         TEXT,             -- JSON
    state_digest  INTEGER,          -- equal for states that are equal as JSON
    since         INTEGER NOT NULL,
    lost_at       INTEGER,
    lost_until    INTEGER,
    PRIMARY KEY (user_id, channel_name, connection_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX user_channel_presences_by_connection ON user_channel_presences (connection_id);
CREATE INDEX user_channel_presences_by_node ON user_channel_presences (node, epoch, channel_name, user_id) WHERE lost_at IS NULL;

-- Presence set by an app: the user counts as present as long as they are in the channel held_with, or until a time.
CREATE TABLE holds (
    channel_name TEXT    NOT NULL,
    user_id      TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    held_with    TEXT,             -- absent: present without any client
    until        INTEGER,          -- absent: until the app removes it
    PRIMARY KEY (channel_name, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX holds_by_held_with ON holds (user_id, held_with, channel_name);

-- What is known of a user outside of channels.
CREATE TABLE user_presences (
    user_id    TEXT    NOT NULL PRIMARY KEY,
    version    INTEGER NOT NULL,
    last_seen  INTEGER,          -- never goes back
    visibility TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE follows (
    follower TEXT    NOT NULL,
    followee TEXT    NOT NULL,
    version  INTEGER NOT NULL,
    since    INTEGER NOT NULL,
    PRIMARY KEY (follower, followee)
) STRICT, WITHOUT ROWID;
CREATE INDEX follows_by_followee ON follows (followee, follower);

-- The log of topics: appended at the head, trimmed from the oldest.
CREATE TABLE events (
    position INTEGER NOT NULL PRIMARY KEY, -- from 1, without gaps
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

-- Event ids given by publishers, for deduplication. They may outlive their events.
CREATE TABLE event_ids (
    topic    TEXT    NOT NULL,
    id       TEXT    NOT NULL,
    position INTEGER NOT NULL,
    count    INTEGER NOT NULL,
    PRIMARY KEY (topic, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX event_ids_by_position ON event_ids (position);

-- Messages for a user, kept until the user has read them.
CREATE TABLE inbox_messages (
    user_id TEXT    NOT NULL,
    n       INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    body    BLOB    NOT NULL,
    PRIMARY KEY (user_id, n)
) STRICT;

CREATE TABLE inboxes (
    user_id TEXT    NOT NULL PRIMARY KEY,
    last    INTEGER NOT NULL,              -- the highest number given
    dropped INTEGER NOT NULL,              -- the highest number dropped unread, or 0
    messages INTEGER NOT NULL,             -- how many there are
    bytes    INTEGER NOT NULL              -- of their bodies
) STRICT, WITHOUT ROWID;

-- The last messages of a channel.
CREATE TABLE history_messages (
    channel_name   TEXT    NOT NULL,
    message_offset INTEGER NOT NULL,       -- from 1, without gaps within an epoch
    total          INTEGER NOT NULL,       -- bytes of all messages of the epoch before this one
    at             INTEGER NOT NULL,
    id             TEXT,                   -- given by the publisher
    user_id        TEXT,                   -- of the publisher
    client         TEXT,                   -- absent: not published by a client
    json           INTEGER NOT NULL,       -- the body is known to be JSON
    body           BLOB    NOT NULL,
    PRIMARY KEY (channel_name, message_offset)
) STRICT, WITHOUT ROWID;
CREATE INDEX history_messages_by_id ON history_messages (channel_name, id) WHERE id IS NOT NULL;

-- A channel with history.
CREATE TABLE histories (
    channel_name   TEXT    NOT NULL PRIMARY KEY,
    epoch          INTEGER NOT NULL,       -- another one when the history begins again
    message_offset INTEGER NOT NULL,       -- the last one given
    total          INTEGER NOT NULL,       -- bytes of all messages of the epoch
    dropped        INTEGER NOT NULL,       -- bytes of those that are not stored any more
    expires_at     INTEGER NOT NULL        -- when the last message is too old
) STRICT, WITHOUT ROWID;
CREATE INDEX histories_by_expiry ON histories (expires_at, channel_name);

-- One holder at a time, until a time. The version is the fencing token.
CREATE TABLE leases (
    name    TEXT    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    node    TEXT    NOT NULL,
    epoch   INTEGER NOT NULL,
    until   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Parties are documents; these views show them as tables.
CREATE VIEW parties AS
SELECT CAST(name AS INTEGER)                                        AS party_id,
       json_extract(CAST(body AS TEXT), '$.version')                AS version,
       json_extract(CAST(body AS TEXT), '$.members[0].user')        AS leader,
       json_array_length(CAST(body AS TEXT), '$.members')           AS members,
       coalesce(json_array_length(CAST(body AS TEXT), '$.pending'), 0) AS invites,
       json_extract(CAST(body AS TEXT), '$.go.go_id')               AS go_id,
       json_extract(CAST(body AS TEXT), '$.data')                   AS data
FROM documents WHERE kind = 'party';

CREATE VIEW party_members AS
SELECT CAST(documents.name AS INTEGER)             AS party_id,
       member.key                                  AS place, -- 0 leads
       json_extract(member.value, '$.user')        AS user_id,
       json_extract(member.value, '$.name')        AS name,
       json_extract(member.value, '$.since')       AS since,
       json_extract(member.value, '$.away[0]')     AS away_since,
       json_extract(member.value, '$.away[1]')     AS away_until
FROM documents, json_each(CAST(documents.body AS TEXT), '$.members') AS member
WHERE documents.kind = 'party';

CREATE VIEW party_invites AS
SELECT CAST(documents.name AS INTEGER)             AS party_id,
       json_extract(pending.value, '$.user')       AS user_id,
       json_extract(pending.value, '$.by')         AS invited_by,
       json_extract(pending.value, '$.expires_at') AS expires_at
FROM documents, json_each(CAST(documents.body AS TEXT), '$.pending') AS pending
WHERE documents.kind = 'party';
