-- Everything about one user at one moment: the row, whether the user and the viewer follow each other, the presences.
-- KEYS: users, follows, user-channels, presences. ARGV: user, viewer (or ''), how many presences.
local user, viewer = ARGV[1], ARGV[2]
local mutual = viewer ~= '' and redis.call('HEXISTS', KEYS[2], user .. '\0' .. viewer) == 1
  and redis.call('HEXISTS', KEYS[2], viewer .. '\0' .. user) == 1
local person = { redis.call('HGET', KEYS[1], user) or '', mutual and '1' or '0' }
local front = user .. '\0'
for _, member in ipairs(redis.call('ZRANGEBYLEX', KEYS[3], '[' .. front, '(' .. front .. '\255', 'LIMIT', 0, ARGV[3])) do
  local field = string.sub(member, #front + 1) .. '\0' .. user
  person[#person + 1] = field
  person[#person + 1] = redis.call('HGET', KEYS[4], field) or ''
end
return person
