-- Times are milliseconds since 1970 by the store's clock. Every row that can be expected has a version. Texts are ordered by their
-- bytes, whatever the collation of the database. A version of 0 is a row reserved by an open transaction: readers never see it.

-- The store's time, and the highest version of any deleted row: the maximum over all lanes. How many rows of some kinds
-- there are: the sum over all lanes, of which one may be negative. Each writer updates only its
-- own lane, so writers do not wait for each other.
CREATE TABLE store_clock (
    lane    INT    NOT NULL PRIMARY KEY,
    time_ms BIGINT NOT NULL,
    floor   BIGINT NOT NULL,
    users     BIGINT NOT NULL DEFAULT 0, -- online
    presences BIGINT NOT NULL DEFAULT 0,
    parties   BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 20);
INSERT INTO store_clock (lane, time_ms, floor) SELECT lane, 0, 0 FROM generate_series(0, 63) AS lane;
CREATE SEQUENCE store_lanes;

-- One row per epoch of a node. Its clients count as lost from closed_at on.
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
    expires_at BIGINT,
    last_used_at BIGINT,
    revoked_at BIGINT
);
CREATE INDEX api_keys_by_hash ON api_keys (hash, id);

-- Sessions that wait for their clients: their node stopped and no other node took them.
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

-- A channel with at least one user. Deleted with the last one; a later version is always higher.
CREATE TABLE channel_presences (
    channel_name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version      BIGINT NOT NULL, -- grows by one for each change that watchers see
    users        BIGINT NOT NULL,
    last_updated BIGINT NOT NULL
) WITH (fillfactor = 50);

-- One user in one channel. An anonymous user has the client id as user_id.
CREATE TABLE presences (
    channel_name TEXT COLLATE "C" NOT NULL,
    user_id      TEXT COLLATE "C" NOT NULL,
    version      BIGINT  NOT NULL,
    anonymous    BOOLEAN NOT NULL,
    name         TEXT,
    since        BIGINT  NOT NULL,
    left_reason  TEXT,             -- of the last client that left
    left_at      BIGINT,
    visibility   TEXT    NOT NULL, -- who sees the user in this channel
    PRIMARY KEY (channel_name, user_id)
);

-- The clients of a user in a channel. A lost client stays until its user is back or gone.
CREATE TABLE user_channel_presences (
    user_id       TEXT COLLATE "C" NOT NULL,
    channel_name  TEXT COLLATE "C" NOT NULL,
    connection_id TEXT COLLATE "C" NOT NULL,
    node          TEXT COLLATE "C" NOT NULL,
    epoch         BIGINT NOT NULL,
    state         TEXT,             -- JSON
    state_digest  BIGINT,           -- equal for states that are equal as JSON
    since         BIGINT NOT NULL,
    lost_at       BIGINT,
    lost_until    BIGINT,
    PRIMARY KEY (user_id, channel_name, connection_id)
);
CREATE INDEX user_channel_presences_by_connection ON user_channel_presences (connection_id);
CREATE INDEX user_channel_presences_by_node ON user_channel_presences (node, epoch, channel_name, user_id) WHERE lost_at IS NULL;

-- Presence set by an app: the user counts as present as long as they are in the channel held_with, or until a time.
CREATE TABLE holds (
    channel_name TEXT COLLATE "C" NOT NULL,
    user_id      TEXT COLLATE "C" NOT NULL,
    version      BIGINT NOT NULL,
    held_with    TEXT COLLATE "C", -- absent: present without any client
    until        BIGINT,           -- absent: until the app removes it
    PRIMARY KEY (channel_name, user_id)
);
CREATE INDEX holds_by_held_with ON holds (user_id, held_with, channel_name);

-- What is known of a user outside of channels.
CREATE TABLE user_presences (
    user_id    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version    BIGINT NOT NULL,
    last_seen  BIGINT,           -- never goes back
    visibility TEXT   NOT NULL
);

CREATE TABLE follows (
    follower TEXT COLLATE "C" NOT NULL,
    followee TEXT COLLATE "C" NOT NULL,
    version  BIGINT NOT NULL,
    since    BIGINT NOT NULL,
    PRIMARY KEY (follower, followee)
);
CREATE INDEX follows_by_followee ON follows (followee, follower);

-- The log of topics: appended at the head, trimmed from the oldest. A transaction that appends holds the row of
-- event_log until COMMIT, so positions become visible in order.
CREATE TABLE events (
    position BIGINT NOT NULL PRIMARY KEY, -- from 1, without gaps
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

-- Event ids given by publishers, for deduplication. They may outlive their events.
CREATE TABLE event_ids (
    topic    TEXT COLLATE "C" NOT NULL,
    id       TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL,
    count    BIGINT NOT NULL,
    PRIMARY KEY (topic, id)
);
CREATE INDEX event_ids_by_position ON event_ids (position);

-- Messages for a user, kept until the user has read them.
CREATE TABLE inbox_messages (
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

-- The last messages of a channel.
CREATE TABLE history_messages (
    channel_name   TEXT COLLATE "C" NOT NULL,
    message_offset BIGINT  NOT NULL,      -- from 1, without gaps within an epoch
    total          BIGINT  NOT NULL,      -- bytes of all messages of the epoch before this one
    at             BIGINT  NOT NULL,
    id             TEXT COLLATE "C",      -- given by the publisher
    user_id        TEXT COLLATE "C",      -- of the publisher
    client         TEXT COLLATE "C",      -- absent: not published by a client
    json           BOOLEAN NOT NULL,      -- the body is known to be JSON
    body           BYTEA   NOT NULL,
    PRIMARY KEY (channel_name, message_offset)
);
CREATE INDEX history_messages_by_id ON history_messages (channel_name, id) WHERE id IS NOT NULL;

-- A channel with history.
CREATE TABLE histories (
    channel_name   TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    epoch          BIGINT NOT NULL,       -- another one when the history begins again
    message_offset BIGINT NOT NULL,       -- the last one given
    total          BIGINT NOT NULL,       -- bytes of all messages of the epoch
    dropped        BIGINT NOT NULL,       -- bytes of those that are not stored any more
    expires_at     BIGINT NOT NULL        -- when the last message is too old
);
CREATE INDEX histories_by_expiry ON histories (expires_at, channel_name);

-- One holder at a time, until a time. The version is the fencing token.
CREATE TABLE leases (
    name    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    node    TEXT COLLATE "C" NOT NULL,
    epoch   BIGINT NOT NULL,
    until   BIGINT NOT NULL
);

-- Parties are documents; these views show them as tables.
CREATE VIEW parties AS
SELECT name::bigint                                             AS party_id,
       (body_json->>'version')::bigint                          AS version,
       body_json->'members'->0->>'user'                         AS leader,
       jsonb_array_length(body_json->'members')                 AS members,
       coalesce(jsonb_array_length(body_json->'pending'), 0)    AS invites,
       (body_json->'go'->>'go_id')::bigint                      AS go_id,
       body_json->'data'                                        AS data
FROM (SELECT name, convert_from(body, 'UTF8')::jsonb AS body_json FROM documents WHERE kind = 'party') AS party;

CREATE VIEW party_members AS
SELECT party.name::bigint              AS party_id,
       member.place - 1                AS place, -- 0 leads
       member.value->>'user'           AS user_id,
       member.value->>'name'           AS name,
       (member.value->>'since')::bigint      AS since,
       (member.value->'away'->>0)::bigint    AS away_since,
       (member.value->'away'->>1)::bigint    AS away_until
FROM (SELECT name, convert_from(body, 'UTF8')::jsonb AS body_json FROM documents WHERE kind = 'party') AS party,
     LATERAL jsonb_array_elements(party.body_json->'members') WITH ORDINALITY AS member (value, place);

CREATE VIEW party_invites AS
SELECT party.name::bigint                       AS party_id,
       pending.value->>'user'                   AS user_id,
       pending.value->>'by'                     AS invited_by,
       (pending.value->>'expires_at')::bigint   AS expires_at
FROM (SELECT name, convert_from(body, 'UTF8')::jsonb AS body_json FROM documents WHERE kind = 'party') AS party,
     LATERAL jsonb_array_elements(party.body_json->'pending') AS pending (value);
