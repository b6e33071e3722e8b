-- How many letters an inbox has, and their bytes, so that nobody counts them for every new one.
ALTER TABLE inboxes ADD COLUMN letters INTEGER NOT NULL DEFAULT 0;
ALTER TABLE inboxes ADD COLUMN bytes   INTEGER NOT NULL DEFAULT 0;
UPDATE inboxes SET
    letters = (SELECT count(*) FROM letters AS l WHERE l.user_id = inboxes.user_id),
    bytes   = (SELECT coalesce(sum(length(l.body)), 0) FROM letters AS l WHERE l.user_id = inboxes.user_id);
