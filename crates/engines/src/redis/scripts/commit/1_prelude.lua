-- A batch of commits: the algorithm of `tavern_store::commit::apply`. Each commit is applied or refused by itself.
-- KEYS: every key of the store, in the order of `RedisTable`; their numbers are defined above as CLOCK, NODES and so on.
-- ARGV: the wall clock in ms ('' for the server's), the latest time that is believed ('' for any), then the commits: the
-- number of arguments of each, its writer, and its steps in the order of the algorithm.
-- Must hold: every check of a commit comes before its first change; a number is never a double beyond 2^53; the lists agree
-- with the rows at the end, also when a step fails.
local A, K, call = ARGV, KEYS, redis.call
local find, sub, match, format, concat = string.find, string.sub, string.match, string.format, table.concat
-- Members in one call.
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
if A[2] ~= '' then wall = math.min(wall, tonumber(A[2])) end
if wall > time then time = wall end
local first = math.min(time * 1000, MOST)

local function text(number) return format('%d', number) end
local function long(number) return format('%020d', number) end
local now = text(time)
local function begin(last) return math.max(first, floor + 1, last + 1) end
local function retire(number) if number > floor then floor = number end end

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

-- The lists that a row is in, stored behind its JSON as table:length:member.
local function entries_of(value)
  local zero = value and find(value, '\0', 1, true)
  return zero and sub(value, zero + 1) or ''
end
-- Changes of lists, applied at the end: by table, whether a member is in it.
local pending = {}
local function list(which, member, is_in)
  local members = pending[which]
  if not members then
    members = {}
    pending[which] = members
  end
  members[member] = is_in
end
local function flush(which)
  local members = pending[which]
  if not members then return end
  pending[which] = nil
  local key = K[which]
  local new, old = { 'ZADD', key }, { 'ZREM', key }
  for member, is_in in pairs(members) do
    if is_in then
      new[#new + 1], new[#new + 2] = 0, member
      if #new > 2 * MANY then
        call(unpack(new))
        new = { 'ZADD', key }
      end
    else
      old[#old + 1] = member
      if #old > MANY then
        call(unpack(old))
        old = { 'ZREM', key }
      end
    end
  end
  if #old > 2 then call(unpack(old)) end
  if #new > 2 then call(unpack(new)) end
end
local function list_all(entries, is_in)
  local at = 1
  while at <= #entries do
    local _, front, which, length = find(entries, '^(%d+):(%d+):', at)
    list(tonumber(which), sub(entries, front + 1, front + length), is_in)
    at = front + length + 1
  end
end
local function relist(old, new)
  local before = entries_of(old)
  if before ~= new then
    list_all(before, false)
    list_all(new, true)
  end
end

-- By name: version, users, whether it was raised. Written at the end.
local channels = {}
local function keep_channels()
  local new, old = { 'HSET', K[CHANNELS] }, { 'HDEL', K[CHANNELS] }
  for name, found in pairs(channels) do
    if found[3] and found[2] > 0 then
      new[#new + 1] = name
      new[#new + 1] = format('{"version":%d,"users":%d,"updated":%d}', found[1], found[2], time)
      if #new > 2 * MANY then
        call(unpack(new))
        new = { 'HSET', K[CHANNELS] }
      end
    elseif found[3] then
      old[#old + 1] = name
      if #old > MANY then
        call(unpack(old))
        old = { 'HDEL', K[CHANNELS] }
      end
    end
  end
  if #old > 2 then call(unpack(old)) end
  if #new > 2 then call(unpack(new)) end
end
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

-- How many rows of some kinds were added; stored at the end. A presence is named by its channel.
local added = { users = 0, presences = 0, parties = 0 }
local function count(key, field, in_channel, by)
  if in_channel ~= '' then
    local kind = sub(in_channel, 1, 5) == 'user#' and 'users' or 'presences'
    added[kind] = added[kind] + by
  elseif key == K[DOCUMENTS] and sub(field, 1, 6) == 'party\0' then
    added.parties = added.parties + by
  end
end
local function keep_totals()
  for kind, by in pairs(added) do
    if by ~= 0 then call('HINCRBY', K[CLOCK], kind, text(by)) end
  end
end

-- The answer to the current commit.
local answer
local function add_answer(number)
  answer[#answer + 1] = text(number)
end
local function statics(at, is_in)
  local count = tonumber(A[at])
  for n = 1, count do list(tonumber(A[at + 2 * n - 1]), A[at + 2 * n], is_in) end
  return at + 2 * count + 1
end

local steps = {}
