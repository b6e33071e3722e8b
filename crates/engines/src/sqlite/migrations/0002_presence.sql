-- A channel in which somebody is present. Gone with the last of them; its version goes on where it ended.
CREATE TABLE channel_presences (
    channel_name TEXT    NOT NULL PRIMARY KEY,
    version      INTEGER NOT NULL, -- grows by one for each event that watchers are told
    users        INTEGER NOT NULL,
    last_updated INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One user in one channel. Somebody without a name has the id of the client as user_id.
CREATE TABLE presences (
    channel_name TEXT    NOT NULL,
    user_id      TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    anonymous    INTEGER NOT NULL,
    name         TEXT,
    since        INTEGER NOT NULL,
    left_reason  TEXT,             -- of the last client that left
    left_at      INTEGER,
    PRIMARY KEY (channel_name, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX presences_by_user ON presences (user_id, channel_name);

-- The clients of a user in a channel. A client that was lost stays until its user is back or gone.
CREATE TABLE user_channel_presences (
    user_id       TEXT    NOT NULL,
    channel_name  TEXT    NOT NULL,
    connection_id TEXT    NOT NULL,
    node          TEXT    NOT NULL,
    epoch         INTEGER NOT NULL,
    state         TEXT,             -- JSON
    meaning       INTEGER,          -- equal for states that are equal as JSON
    since         INTEGER NOT NULL,
    lost_at       INTEGER,
    lost_until    INTEGER,
    PRIMARY KEY (user_id, channel_name, connection_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX user_channel_presences_by_connection ON user_channel_presences (connection_id);
CREATE INDEX user_channel_presences_by_node ON user_channel_presences (node, epoch, channel_name, user_id) WHERE lost_at IS NULL;
