-- A page of the channels with history, and the bytes of all, of one moment.
-- KEYS: histories-due, histories, history-bytes. ARGV: from which member, how many.
-- Answers the bytes, then member and row in turn.
local page = { redis.call('GET', KEYS[3]) or '0' }
for _, member in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])) do
  page[#page + 1] = member
  page[#page + 1] = redis.call('HGET', KEYS[2], string.sub(member, 22)) or ''
end
return page
