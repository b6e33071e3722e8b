-- Parties are documents; these show them as tables.
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
