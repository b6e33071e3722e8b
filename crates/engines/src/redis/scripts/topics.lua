-- How many events topics have had, with the ends of the log, of one moment.
-- KEYS: log-ends, topics, topic-names. ARGV: from, how many, then the names of those wanted, in order; all when there are none.
-- Answers first, head, bytes, then name and count in turn.
local ends = redis.call('HMGET', KEYS[1], 'first', 'head', 'bytes')
local answer = { ends[1] or '1', ends[2] or '0', ends[3] or '0' }
local function add(name)
  local count = redis.call('HGET', KEYS[2], name)
  if count then
    answer[#answer + 1] = name
    answer[#answer + 1] = count
  end
end
if #ARGV == 2 then
  for _, name in ipairs(redis.call('ZRANGEBYLEX', KEYS[3], ARGV[1], '+', 'LIMIT', 0, ARGV[2])) do add(name) end
else
  for n = 3, #ARGV do add(ARGV[n]) end
end
return answer
