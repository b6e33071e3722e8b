-- A batch of commits on one bucket: the algorithm of commit.rs, each commit refused or done for itself.
-- KEYS: every key of the bucket, in the order of `Table`. ARGV: the wall clock in ms ('' for the server's), how many buckets
-- the store has, then commits: how many words each has, its writer, and its steps in the order of the algorithm.
-- Must hold: every check of a commit comes before its first change; a number is never a double beyond 2^53.
local A, K, call = ARGV, KEYS, redis.call
local find, sub, match, format, concat = string.find, string.sub, string.match, string.format, table.concat
local CLOCK, NODES, CHANNELS, USERS, CARRIED, ERRANDS, ERRANDS_DUE, USER_IDS, LEASES = 1, 2, 8, 18, 10, 24, 25, 28, 29
local LOG_ENDS, LOG, LOG_TOPICS, TOPICS, TOPIC_NAMES, EVENT_IDS, EVENT_IDS_AT = 30, 31, 32, 33, 34, 35, 36
local INBOXES, LETTERS, LETTER_IDS = 37, 38, 39
-- Entries that are removed together.
local MANY = 500
local MOST = 9007199254740000

local kept = call('HMGET', K[CLOCK], 'time', 'floor')
local time, floor = tonumber(kept[1] or 0), tonumber(kept[2] or 0)
local wall
if A[1] == '' then
  local now = call('TIME')
  wall = now[1] * 1000 + math.floor(now[2] / 1000)
else
  wall = tonumber(A[1])
end
if wall > time then time = wall end
local first = math.min(time * 1000, MOST)

local function text(number) return format('%.0f', number) end
local function long(number) return format('%020.0f', number) end
local function begin(last) return math.max(first, floor + 1, last + 1) end
local function bury(number) if number > floor then floor = number end end

-- The row that was read last: an expectation is followed by the change of the same row.
local last_key, last_field, last_value
local function get(key, field)
  if key ~= last_key or field ~= last_field then
    last_key, last_field, last_value = key, field, call('HGET', key, field)
  end
  return last_value
end
local function set(key, field, value)
  call('HSET', key, field, value)
  last_key, last_field, last_value = key, field, value
end
local function version(value) return value and match(value, '^{"%a+":(%d+)') or '0' end
local function next_version(value)
  local last = tonumber(version(value))
  if last > 0 then return last + 1 end
  return begin(0)
end

-- What stands behind the JSON of a row: where it is listed, as table:length:member.
local function terms(value)
  local zero = value and find(value, '\0', 1, true)
  return zero and sub(value, zero + 1) or ''
end
local carries
local function list(command, entries)
  local at = 1
  while at <= #entries do
    local _, front, which, length = find(entries, '^(%d+):(%d+):', at)
    local member = sub(entries, front + 1, front + length)
    if command == 'ZADD' then call('ZADD', K[tonumber(which)], 0, member)
    else call('ZREM', K[tonumber(which)], member) end
    if which == '10' then carries = nil end
    at = front + length + 1
  end
end
local function relist(old, new)
  local before = terms(old)
  if before ~= new then
    list('ZREM', before)
    list('ZADD', new)
  end
end

local channels = {}
local function channel(name)
  local found = channels[name]
  if not found then
    local value = call('HGET', K[CHANNELS], name)
    if value then
      local number, users = match(value, '^{"version":(%d+),"users":(%d+)')
      found = { tonumber(number), tonumber(users) }
    else
      found = { 0, 0 }
    end
    channels[name] = found
  end
  return found
end

local fences = {}
local function is_open(node)
  local open = fences[node]
  if open == nil then
    local value = call('HGET', K[NODES], node)
    open = value and find(value, '^{"closed_at":null') ~= nil
    fences[node] = open
  end
  return open
end
local function put_node(node, closed_at, clean, opened_at, lease_until)
  fences[node] = nil
  call('HSET', K[NODES], node, '{"closed_at":' .. (closed_at or 'null') .. ',"clean":' .. clean .. ',"opened_at":'
    .. opened_at .. ',"lease_until":' .. lease_until .. '}')
end
local function node(key)
  local value = call('HGET', K[NODES], key)
  if not value then return nil end
  return { closed_at = match(value, '^{"closed_at":(%d+)'), clean = match(value, '"clean":(%a+)'),
    opened_at = match(value, '"opened_at":(%d+)'), lease_until = match(value, '"lease_until":(%d+)') }
end

-- Of the commit under way: what it answers, and the versions of what it deleted and put.
local answer, versions
local function tell(number)
  versions[#versions + 1] = number
  answer[#answer + 1] = text(number)
end
local function statics(command, at)
  local count = tonumber(A[at])
  for n = 1, count do
    local key, member = K[tonumber(A[at + 2 * n - 1])], A[at + 2 * n]
    if command == 'ZADD' then call('ZADD', key, 0, member) else call('ZREM', key, member) end
  end
  return at + 2 * count + 1
end

local steps = {}

-- expect: table, field, version
function steps.E(at)
  local found = version(get(K[tonumber(A[at])], A[at + 1]))
  if found ~= A[at + 2] then return at, 'C' .. A[at + 3] .. '\0' .. found end
  return at + 4
end

-- open: name, lease
function steps.NO(at)
  local name, latest = A[at], 0
  for _, key in ipairs(call('HKEYS', K[NODES])) do
    if sub(key, 1, #name + 1) == name .. '\0' then
      latest = math.max(latest, tonumber(sub(key, #name + 2)))
      local earlier = node(key)
      if not earlier.closed_at then
        put_node(key, text(time), earlier.clean, earlier.opened_at, earlier.lease_until)
      end
    end
  end
  local epoch = begin(latest)
  local key = name .. '\0' .. long(epoch)
  put_node(key, nil, 'false', text(time), text(time + A[at + 1]))
  answer[#answer + 1] = text(epoch)
  return at + 2
end

-- renew: node, lease
function steps.NR(at)
  if not is_open(A[at]) then return at, 'F' end
  local found = node(A[at])
  local lease_until = math.max(tonumber(found.lease_until), time + A[at + 1])
  put_node(A[at], nil, found.clean, found.opened_at, text(lease_until))
  return at + 2
end

-- close: node, whether its lease must have ended
function steps.NC(at)
  local found = node(A[at])
  if not found then return at, 'U' end
  if not found.closed_at then
    if A[at + 1] == '1' and time < tonumber(found.lease_until) then return at, 'L' .. found.lease_until end
    found.closed_at = text(time)
    put_node(A[at], found.closed_at, found.clean, found.opened_at, found.lease_until)
  end
  answer[#answer + 1] = found.closed_at
  return at + 2
end

-- stop: node
function steps.NS(at)
  if not is_open(A[at]) then return at, 'F' end
  local found = node(A[at])
  put_node(A[at], text(time), 'true', found.opened_at, found.lease_until)
  answer[#answer + 1] = text(time)
  return at + 1
end

-- forget: node, its epoch
function steps.NF(at)
  local found = node(A[at])
  if found then
    if not found.closed_at then return at, 'L' .. found.lease_until end
    fences[A[at]] = nil
    call('HDEL', K[NODES], A[at])
    bury(tonumber(A[at + 1]))
  end
  return at + 2
end

-- delete: table, field, channel, whether it takes a version, lists
function steps.X(at)
  local key, field = K[tonumber(A[at])], A[at + 1]
  local old, number = get(key, field), 0
  if A[at + 3] == '1' then
    number = next_version(old)
    bury(number)
  end
  local after
  if old then
    call('HDEL', key, field)
    last_key = nil
    relist(old, '')
    after = statics('ZREM', at + 4)
    if A[at + 2] ~= '' then
      local counted = channel(A[at + 2])
      counted[2] = counted[2] - 1
    end
  else
    after = at + 5 + 2 * tonumber(A[at + 4])
  end
  tell(number)
  return after
end

-- put: table, field, channel, JSON after the version, terms, lists
function steps.P(at)
  local key, field, behind = K[tonumber(A[at])], A[at + 1], A[at + 4]
  local old = get(key, field)
  local number = next_version(old)
  local value = '{"version":' .. text(number) .. ',' .. A[at + 3]
  if behind ~= '' then value = value .. '\0' .. behind end
  set(key, field, value)
  local after
  if old then
    relist(old, behind)
    after = at + 6 + 2 * tonumber(A[at + 5])
  else
    list('ZADD', behind)
    after = statics('ZADD', at + 5)
    if A[at + 2] ~= '' then
      local counted = channel(A[at + 2])
      counted[2] = counted[2] + 1
    end
  end
  tell(number)
  return after
end

-- The later of two times as they are written.
local function later(one, other)
  if not one or not other then return one or other end
  if #one ~= #other then return #one > #other and one or other end
  return one > other and one or other
end
local function put_user(user, number, seen, rest, is_new)
  if is_new then call('ZADD', K[USER_IDS], 0, user) end
  local value = '{"version":' .. number .. ','
  if seen then value = value .. '"last_seen":' .. seen .. ',' end
  set(K[USERS], user, value .. rest)
end

-- put a user: user, last seen, the rest of the JSON
function steps.U(at)
  local old = get(K[USERS], A[at])
  local number = next_version(old)
  local seen = later(A[at + 1] ~= '' and A[at + 1] or nil, old and match(old, '"last_seen":(%d+)'))
  put_user(A[at], text(number), seen, A[at + 2], not old)
  tell(number)
  return at + 3
end

-- raise: channel, by
function steps.R(at)
  local found, by = channel(A[at]), tonumber(A[at + 1])
  local last, number = found[1], nil
  if by == 0 then number = last
  elseif last == 0 then number = begin(0) + by - 1
  else number = last + by end
  if found[2] > 0 then
    found[1] = number
    call('HSET', K[CHANNELS], A[at], '{"version":' .. text(number) .. ',"users":' .. text(found[2]) .. ',"updated":'
      .. text(time) .. '}')
  else
    found[1] = 0
    if last > 0 then call('HDEL', K[CHANNELS], A[at]) end
    bury(number)
  end
  answer[#answer + 1] = text(number)
  answer[#answer + 1] = last == 0 and '1' or '0'
  return at + 2
end

-- seen: user, when, the rest of the JSON of a user who is not known yet
function steps.S(at)
  local old = get(K[USERS], A[at])
  if old then
    local before = match(old, '"last_seen":(%d+)')
    local seen = later(A[at + 1], before)
    if seen ~= before then put_user(A[at], version(old), seen, match(old, '"visibility".*$')) end
  else
    put_user(A[at], text(begin(0)), A[at + 1], A[at + 2], true)
  end
  return at + 3
end

-- held: the front of the members of `carried` that name one carrier
function steps.H(at)
  if carries == nil then carries = call('EXISTS', K[CARRIED]) == 1 end
  local held = {}
  if carries then held = call('ZRANGEBYLEX', K[CARRIED], '[' .. A[at], '(' .. A[at] .. '\255') end
  answer[#answer + 1] = text(#held)
  for _, member in ipairs(held) do answer[#answer + 1] = sub(member, #A[at] + 1) end
  return at + 1
end

-- a deadline: table, field, JSON, terms
function steps.T(at)
  local key, field = K[tonumber(A[at])], A[at + 1]
  relist(get(key, field), A[at + 3])
  set(key, field, A[at + 2] .. '\0' .. A[at + 3])
  return at + 4
end

-- an errand: which of the versions is its cause, source, count, due, JSON
function steps.A(at)
  local field = A[at + 1] .. '\0' .. long(versions[tonumber(A[at])]) .. '\0' .. A[at + 2]
  local member = A[at + 3] .. '\0' .. field
  set(K[ERRANDS], field, A[at + 4] .. '\0' .. ERRANDS_DUE .. ':' .. #member .. ':' .. member)
  call('ZADD', K[ERRANDS_DUE], 0, member)
  return at + 5
end

-- Whether nobody else holds a lease: name, the JSON of who asks, which one it is
function steps.K(at)
  local value = get(K[LEASES], A[at])
  if not value then return at + 3 end
  local lease_until, holder = match(value, '"until":(%d+),(.*)$')
  if holder ~= A[at + 1] and time < tonumber(lease_until) then
    local held = cjson.decode(value)
    local epoch = match(holder, '"epoch":(%d+)')
    if is_open(held.node .. '\0' .. string.rep('0', 20 - #epoch) .. epoch) then
      return at, concat({ 'T' .. A[at + 2], lease_until, held.node, epoch }, '\0')
    end
  end
  return at + 3
end

-- take a lease: name, the JSON of who asks, for how long
function steps.L(at)
  local value, lease_until = get(K[LEASES], A[at]), time + A[at + 2]
  local before, holder = nil, nil
  if value then before, holder = match(value, '"until":(%d+),(.*)$') end
  local number
  if holder == A[at + 1] then
    number = version(value)
    lease_until = math.max(lease_until, tonumber(before))
  else
    number = text(next_version(value))
  end
  set(K[LEASES], A[at], '{"version":' .. number .. ',"until":' .. text(lease_until) .. ',' .. A[at + 1])
  answer[#answer + 1] = number
  return at + 3
end

-- The ends of the log, once they are needed.
local ends
local function log()
  if not ends then
    local found = call('HMGET', K[LOG_ENDS], 'first', 'head', 'bytes')
    ends = { first = tonumber(found[1] or 1), head = tonumber(found[2] or 0), bytes = tonumber(found[3] or 0) }
  end
  return ends
end
local function keep_log()
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
    call('XADD', K[LOG], position .. '-0', 'topic', topic, 'count', count, 'at', text(time), 'body', A[at + 3], 'id', A[at + 2])
    call('HSET', K[EVENT_IDS], name, position .. ' ' .. count)
    call('ZADD', K[EVENT_IDS_AT], 0, long(found.head) .. '\0' .. name)
  else
    call('XADD', K[LOG], position .. '-0', 'topic', topic, 'count', count, 'at', text(time), 'body', A[at + 3])
  end
  call('ZADD', K[LOG_TOPICS], 0, topic .. '\0' .. long(found.head))
  keep_log()
  answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = position, count, '0'
  return at + 4
end

-- trim: the first position that stays, the same with all its digits for ids
function steps.M(at)
  local found, before = log(), tonumber(A[at])
  while true do
    local old = call('XRANGE', K[LOG], '-', '(' .. A[at] .. '-0', 'COUNT', MANY)
    if #old == 0 then break end
    local gone = { K[LOG] }
    for _, entry in ipairs(old) do
      local position, fields = match(entry[1], '^(%d+)'), entry[2]
      found.bytes = found.bytes - #fields[8]
      call('ZREM', K[LOG_TOPICS], fields[2] .. '\0' .. long(tonumber(position)))
      gone[#gone + 1] = entry[1]
    end
    call('XDEL', unpack(gone))
  end
  found.first = math.max(found.first, math.min(before, found.head + 1))
  local to = '(' .. A[at + 1]
  while true do
    local old = call('ZRANGEBYLEX', K[EVENT_IDS_AT], '-', to, 'LIMIT', 0, MANY)
    if #old == 0 then break end
    for _, member in ipairs(old) do
      call('HDEL', K[EVENT_IDS], sub(member, 22))
      call('ZREM', K[EVENT_IDS_AT], member)
    end
  end
  keep_log()
  return at + 2
end

local function inbox(user)
  local value = call('HGET', K[INBOXES], user)
  if not value then return { last = 0, dropped = 0, letters = 0, bytes = 0 } end
  local last, dropped, letters, bytes =
    match(value, '^{"last":(%d+),"dropped":(%d+),"letters":(%d+),"bytes":(%d+)}$')
  return { last = tonumber(last), dropped = tonumber(dropped), letters = tonumber(letters), bytes = tonumber(bytes) }
end
local function keep_inbox(user, found)
  call('HSET', K[INBOXES], user, '{"last":' .. text(found.last) .. ',"dropped":' .. text(found.dropped) .. ',"letters":'
    .. text(found.letters) .. ',"bytes":' .. text(found.bytes) .. '}')
end
local function drop_letter(found, member)
  local value = call('HGET', K[LETTERS], member)
  found.letters, found.bytes = found.letters - 1, found.bytes - tonumber(match(value, '"bytes":(%d+)'))
  call('HDEL', K[LETTERS], member)
  call('ZREM', K[LETTER_IDS], member)
  return tonumber(sub(member, -20))
end

-- free letters: user, through which, whether nobody has read them
function steps.V(at)
  local user, found, through = A[at], inbox(A[at]), 0
  while true do
    local old = call('ZRANGEBYLEX', K[LETTER_IDS], '[' .. user .. '\0', '[' .. user .. '\0' .. A[at + 1], 'LIMIT', 0, MANY)
    if #old == 0 then break end
    for _, member in ipairs(old) do through = drop_letter(found, member) end
  end
  if A[at + 2] == '1' then found.dropped = math.max(found.dropped, through)
  elseif long(found.dropped) <= A[at + 1] then found.dropped = 0 end
  if found.letters == 0 and found.dropped == 0 then
    bury(found.last)
    call('HDEL', K[INBOXES], user)
  else
    keep_inbox(user, found)
  end
  return at + 3
end

-- post a letter: user, JSON, bytes, how many letters and how many bytes may stay
function steps.B(at)
  local user, found = A[at], inbox(A[at])
  local bytes, most_letters, most_bytes = tonumber(A[at + 2]), tonumber(A[at + 3]), tonumber(A[at + 4])
  found.last = found.last > 0 and found.last + 1 or begin(0)
  local member = user .. '\0' .. long(found.last)
  call('HSET', K[LETTERS], member, '{"at":' .. text(time) .. ',"bytes":' .. A[at + 2] .. ',' .. A[at + 1])
  call('ZADD', K[LETTER_IDS], 0, member)
  found.letters, found.bytes = found.letters + 1, found.bytes + bytes
  -- The newest stays, however large.
  while found.letters > 1 and (found.letters > most_letters or found.bytes > most_bytes) do
    local oldest = call('ZRANGEBYLEX', K[LETTER_IDS], '[' .. user .. '\0', '+', 'LIMIT', 0, 1)
    found.dropped = drop_letter(found, oldest[1])
  end
  keep_inbox(user, found)
  answer[#answer + 1] = text(found.last)
  return at + 5
end

local answers = {}
local at, words = 3, #A
while at <= words do
  local stop, writer, refused = at + tonumber(A[at]), A[at + 1], nil
  if writer ~= '' and not is_open(writer) then
    refused = 'W'
  else
    answer, versions = { 'D' .. text(time) }, {}
    at = at + 2
    while at < stop do
      at, refused = steps[A[at]](at + 1)
      if refused then break end
    end
  end
  answers[#answers + 1] = refused or concat(answer, '\0')
  at = stop
end
if not kept[1] then call('HSET', K[CLOCK], 'format', '1', 'buckets', A[2]) end
call('HSET', K[CLOCK], 'time', text(time), 'floor', text(floor))
return answers
