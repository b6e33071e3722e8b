-- A row, the floor of the store and a page of the list under the name of the row, of one moment.
-- KEYS: clock, rows, list, the rows it lists. ARGV: name, from, to, how many, how many bytes.
local page = { redis.call('HGET', KEYS[2], ARGV[1]) or '', redis.call('HGET', KEYS[1], 'floor') or '0', '0' }
local room = tonumber(ARGV[5])
for _, member in ipairs(redis.call('ZRANGEBYLEX', KEYS[3], ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])) do
  if room < 0 then
    page[3] = '1'
    break
  end
  local row = redis.call('HGET', KEYS[4], member) or ''
  room = room - #row
  page[#page + 1] = member
  page[#page + 1] = row
end
return page
