-- Where a user is, is told by the key of user_channel_presences: whoever is present has a client there.
DROP INDEX presences_by_user;
