-- The log of topics.

-- The ends of the log, loaded when needed; written at the end.
local ends
local function log()
  if not ends then
    local found = call('HMGET', K[LOG_ENDS], 'first', 'head', 'bytes')
    ends = { first = tonumber(found[1] or 1), head = tonumber(found[2] or 0), bytes = tonumber(found[3] or 0) }
  end
  return ends
end
local function keep_log()
  if not ends then return end
  call('HSET', K[LOG_ENDS], 'first', text(ends.first), 'head', text(ends.head), 'bytes', text(ends.bytes))
end

-- append: topic, whether it has an id, id, body
function steps.G(at)
  local topic, name = A[at], A[at] .. '\0' .. A[at + 2]
  local has_id = A[at + 1] == '1'
  local known = has_id and call('HGET', K[EVENT_IDS], name)
  if known then
    local position, count = match(known, '^(%d+) (%d+)$')
    answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = position, count, '1'
    return at + 4
  end
  local found = log()
  found.head, found.bytes = found.head + 1, found.bytes + #A[at + 3]
  local position, count = text(found.head), text(call('HINCRBY', K[TOPICS], topic, 1))
  if count == '1' then call('ZADD', K[TOPIC_NAMES], 0, topic) end
  if has_id then
    call('XADD', K[LOG], position .. '-0', 'topic', topic, 'count', count, 'at', now, 'body', A[at + 3], 'id', A[at + 2])
    call('HSET', K[EVENT_IDS], name, position .. ' ' .. count)
    call('ZADD', K[EVENT_IDS_AT], 0, long(found.head) .. '\0' .. name)
  else
    call('XADD', K[LOG], position .. '-0', 'topic', topic, 'count', count, 'at', now, 'body', A[at + 3])
  end
  list(LOG_TOPICS, topic .. '\0' .. long(found.head), true)
  answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = position, count, '0'
  return at + 4
end

-- restore: position, topic, count, time, whether it has an id, id, body
function steps.GR(at)
  local found, position, topic, count = log(), tonumber(A[at]), A[at + 1], A[at + 2]
  if position <= found.head then return at + 7 end
  if found.first > found.head then found.first = position end
  found.head, found.bytes = position, found.bytes + #A[at + 6]
  call('HSET', K[TOPICS], topic, count)
  call('ZADD', K[TOPIC_NAMES], 0, topic)
  local id = text(position) .. '-0'
  if A[at + 4] == '1' then
    local name = topic .. '\0' .. A[at + 5]
    call('XADD', K[LOG], id, 'topic', topic, 'count', count, 'at', A[at + 3], 'body', A[at + 6], 'id', A[at + 5])
    local known = call('HGET', K[EVENT_IDS], name)
    if known then call('ZREM', K[EVENT_IDS_AT], long(tonumber(match(known, '^%d+'))) .. '\0' .. name) end
    call('HSET', K[EVENT_IDS], name, text(position) .. ' ' .. count)
    call('ZADD', K[EVENT_IDS_AT], 0, long(position) .. '\0' .. name)
  else
    call('XADD', K[LOG], id, 'topic', topic, 'count', count, 'at', A[at + 3], 'body', A[at + 6])
  end
  list(LOG_TOPICS, topic .. '\0' .. long(position), true)
  return at + 7
end

-- trim: the first position that stays, the same with all its digits for ids
function steps.M(at)
  local found, before = log(), tonumber(A[at])
  while before > 0 do
    local old = call('XRANGE', K[LOG], '-', '(' .. A[at] .. '-0', 'COUNT', MANY)
    if #old == 0 then break end
    local gone = { K[LOG] }
    for _, entry in ipairs(old) do
      local position, fields = match(entry[1], '^(%d+)'), entry[2]
      found.bytes = found.bytes - #fields[8]
      list(LOG_TOPICS, fields[2] .. '\0' .. long(tonumber(position)), false)
      gone[#gone + 1] = entry[1]
    end
    call('XDEL', unpack(gone))
  end
  local oldest = call('XRANGE', K[LOG], '-', '+', 'COUNT', 1)[1]
  found.first = oldest and tonumber(match(oldest[1], '^%d+')) or found.head + 1
  local to = '(' .. A[at + 1]
  while true do
    local old = call('ZRANGEBYLEX', K[EVENT_IDS_AT], '-', to, 'LIMIT', 0, MANY)
    if #old == 0 then break end
    for _, member in ipairs(old) do
      call('HDEL', K[EVENT_IDS], sub(member, 22))
      call('ZREM', K[EVENT_IDS_AT], member)
    end
  end
  return at + 2
end
