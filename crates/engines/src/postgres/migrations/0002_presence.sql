-- A channel in which somebody is present. Gone with the last of them; its version goes on where it ended.
CREATE TABLE channel_presences (
    channel_name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version      BIGINT NOT NULL, -- grows by one for each event that watchers are told
    users        BIGINT NOT NULL,
    last_updated BIGINT NOT NULL
) WITH (fillfactor = 50);

-- One user in one channel. Somebody without a name has the id of the client as user_id.
CREATE TABLE presences (
    channel_name TEXT COLLATE "C" NOT NULL,
    user_id      TEXT COLLATE "C" NOT NULL,
    version      BIGINT  NOT NULL,
    anonymous    BOOLEAN NOT NULL,
    name         TEXT,
    since        BIGINT  NOT NULL,
    left_reason  TEXT,             -- of the last client that left
    left_at      BIGINT,
    visibility   TEXT    NOT NULL, -- to whom the user shows himself in this channel
    PRIMARY KEY (channel_name, user_id)
);

-- The clients of a user in a channel. A client that was lost stays until its user is back or gone.
CREATE TABLE user_channel_presences (
    user_id       TEXT COLLATE "C" NOT NULL,
    channel_name  TEXT COLLATE "C" NOT NULL,
    connection_id TEXT COLLATE "C" NOT NULL,
    node          TEXT COLLATE "C" NOT NULL,
    epoch         BIGINT NOT NULL,
    state         TEXT,             -- JSON
    meaning       BIGINT,           -- equal for states that are equal as JSON
    since         BIGINT NOT NULL,
    lost_at       BIGINT,
    lost_until    BIGINT,
    PRIMARY KEY (user_id, channel_name, connection_id)
);
CREATE INDEX user_channel_presences_by_connection ON user_channel_presences (connection_id);
CREATE INDEX user_channel_presences_by_node ON user_channel_presences (node, epoch, channel_name, user_id) WHERE lost_at IS NULL;

-- What an app says about somebody: he is in this channel as long as he is in the carrier, or until a time.
CREATE TABLE holds (
    channel_name TEXT COLLATE "C" NOT NULL,
    user_id      TEXT COLLATE "C" NOT NULL,
    version      BIGINT NOT NULL,
    carrier      TEXT COLLATE "C", -- absent: he is there by himself
    until        BIGINT,           -- absent: until the app takes it back
    PRIMARY KEY (channel_name, user_id)
);
CREATE INDEX holds_by_carrier ON holds (user_id, carrier, channel_name);
