-- What is known of a user beyond any channel.
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
