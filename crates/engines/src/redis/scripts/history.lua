-- A page of a channel's history with its head, of one moment.
-- KEYS: histories, history-messages. ARGV: channel, after which offset, before which offset, whether the newest come first,
-- how many, how many bytes.
-- Answers epoch, offset, whether bytes ran out, then offset and row in turn.
local value = redis.call('HGET', KEYS[1], ARGV[1])
if not value then return { '0', '0', '0' } end
local epoch, head, first = string.match(value, '^{"epoch":(%d+),"offset":(%d+),"total":%d+,"first":(%d+)')
local page, room = { epoch, head, '0' }, tonumber(ARGV[6])
local from = math.max(tonumber(first), tonumber(ARGV[2]) + 1)
local to = math.min(tonumber(head), tonumber(ARGV[3]) - 1)
local step = 1
if ARGV[4] == '1' then from, to, step = to, from, -1 end
local left = tonumber(ARGV[5])
for offset = from, to, step do
  if left == 0 then break end
  if room < 0 then
    page[3] = '1'
    break
  end
  local row = redis.call('HGET', KEYS[2], ARGV[1] .. '\0' .. string.format('%020d', offset))
  if row then
    page[#page + 1], page[#page + 2] = string.format('%d', offset), row
    left, room = left - 1, room - #row
  end
end
return page
