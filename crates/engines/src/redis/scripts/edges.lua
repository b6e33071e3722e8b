-- A page of follows from one end, and whether the other user follows back.
-- KEYS: the list, follows. ARGV: from, to, how many, 'swap' when the list begins with the followee.
local page = {}
for _, member in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])) do
  local zero = string.find(member, '\0', 1, true)
  local back = string.sub(member, zero + 1) .. '\0' .. string.sub(member, 1, zero - 1)
  local field = member
  if ARGV[4] == 'swap' then field, back = back, member end
  page[#page + 1] = field
  page[#page + 1] = redis.call('HGET', KEYS[2], field) or ''
  page[#page + 1] = tostring(redis.call('HEXISTS', KEYS[2], back))
end
return page
