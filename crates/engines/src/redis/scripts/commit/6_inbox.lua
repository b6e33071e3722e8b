-- Inboxes and their messages.

local function inbox(user)
  local value = call('HGET', K[INBOXES], user)
  if not value then return { last = 0, dropped = 0, messages = 0, bytes = 0 } end
  local last, dropped, messages, bytes =
    match(value, '^{"last":(%d+),"dropped":(%d+),"messages":(%d+),"bytes":(%d+)}$')
  return { last = tonumber(last), dropped = tonumber(dropped), messages = tonumber(messages), bytes = tonumber(bytes) }
end
local function keep_inbox(user, found)
  call('HSET', K[INBOXES], user, '{"last":' .. text(found.last) .. ',"dropped":' .. text(found.dropped) .. ',"messages":'
    .. text(found.messages) .. ',"bytes":' .. text(found.bytes) .. '}')
end
local function drop_message(found, member)
  local value = call('HGET', K[INBOX_MESSAGES], member)
  found.messages, found.bytes = found.messages - 1, found.bytes - tonumber(match(value, '"bytes":(%d+)'))
  call('HDEL', K[INBOX_MESSAGES], member)
  call('ZREM', K[INBOX_MESSAGE_IDS], member)
  return tonumber(sub(member, -20))
end

-- free messages: user, through which number, whether they are unread
function steps.V(at)
  local user, found, through = A[at], inbox(A[at]), 0
  while true do
    local old = call('ZRANGEBYLEX', K[INBOX_MESSAGE_IDS], '[' .. user .. '\0', '[' .. user .. '\0' .. A[at + 1], 'LIMIT', 0, MANY)
    if #old == 0 then break end
    for _, member in ipairs(old) do through = drop_message(found, member) end
  end
  if A[at + 2] == '1' then found.dropped = math.max(found.dropped, through)
  elseif long(found.dropped) <= A[at + 1] then found.dropped = 0 end
  if found.messages == 0 and found.dropped == 0 then
    retire(found.last)
    call('HDEL', K[INBOXES], user)
  else
    keep_inbox(user, found)
  end
  return at + 3
end

-- add a message: user, JSON, bytes, how many messages and how many bytes may stay
function steps.B(at)
  local user, found = A[at], inbox(A[at])
  local bytes, most_messages, most_bytes = tonumber(A[at + 2]), tonumber(A[at + 3]), tonumber(A[at + 4])
  found.last = found.last > 0 and found.last + 1 or begin(0)
  local member = user .. '\0' .. long(found.last)
  call('HSET', K[INBOX_MESSAGES], member, '{"at":' .. now .. ',"bytes":' .. A[at + 2] .. ',' .. A[at + 1])
  call('ZADD', K[INBOX_MESSAGE_IDS], 0, member)
  found.messages, found.bytes = found.messages + 1, found.bytes + bytes
  -- The newest stays, however large.
  while found.messages > 1 and (found.messages > most_messages or found.bytes > most_bytes) do
    local oldest = call('ZRANGEBYLEX', K[INBOX_MESSAGE_IDS], '[' .. user .. '\0', '+', 'LIMIT', 0, 1)
    found.dropped = drop_message(found, oldest[1])
  end
  keep_inbox(user, found)
  answer[#answer + 1] = text(found.last)
  return at + 5
end
