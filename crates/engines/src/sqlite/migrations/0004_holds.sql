-- To whom the user shows himself in this channel.
ALTER TABLE presences ADD COLUMN visibility TEXT NOT NULL DEFAULT 'everyone';

-- What an app says about somebody: he is in this channel as long as he is in the carrier, or until a time.
CREATE TABLE holds (
    channel_name TEXT    NOT NULL,
    user_id      TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    carrier      TEXT,             -- absent: he is there by himself
    until        INTEGER,          -- absent: until the app takes it back
    PRIMARY KEY (channel_name, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX holds_by_carrier ON holds (user_id, carrier, channel_name);
