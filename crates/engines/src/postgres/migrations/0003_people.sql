-- What is known of a user beyond any channel.
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
