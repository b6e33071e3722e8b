-- Parties are documents; these show them as tables.
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
