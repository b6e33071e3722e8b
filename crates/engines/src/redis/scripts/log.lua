-- A page of the log with its ends, of one moment.
-- KEYS: log-ends, log, log-topics. ARGV: after which position, the same with all its digits, how many, how many bytes, topics.
-- Answers first, head, bytes, whether bytes ran out, then the entries.
local limit, room = tonumber(ARGV[3]), tonumber(ARGV[4])
local ends = redis.call('HMGET', KEYS[1], 'first', 'head', 'bytes')
local answer = { ends[1] or '1', ends[2] or '0', ends[3] or '0', '0' }
local function add(entry)
  if room < 0 then
    answer[4] = '1'
    return false
  end
  answer[#answer + 1] = entry
  room = room - #entry[2][8]
  return true
end
if #ARGV == 4 then
  -- In small pieces: bodies can be large.
  local after, left = ARGV[1] .. '-0', limit
  while left > 0 do
    local entries = redis.call('XRANGE', KEYS[2], '(' .. after, '+', 'COUNT', math.min(left, 16))
    for _, entry in ipairs(entries) do
      after = entry[1]
      if not add(entry) then return answer end
    end
    if #entries == 0 then break end
    left = left - #entries
  end
  return answer
end
local positions, known = {}, {}
for n = 5, #ARGV do
  local front = ARGV[n] .. '\0'
  for _, member in ipairs(redis.call('ZRANGEBYLEX', KEYS[3], '(' .. front .. ARGV[2], '(' .. front .. '\255', 'LIMIT', 0, limit)) do
    local position = string.sub(member, -20)
    if not known[position] then
      known[position] = true
      positions[#positions + 1] = position
    end
  end
end
table.sort(positions)
for n = 1, math.min(limit, #positions) do
  local id = string.format('%.0f-0', tonumber(positions[n]))
  if not add(redis.call('XRANGE', KEYS[2], id, id)[1]) then break end
end
return answer
