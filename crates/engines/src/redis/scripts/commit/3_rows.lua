-- Rows of every kind: expected, deleted, put; channels raised; deadlines.

-- expect: table, field, version
function steps.E(at)
  local found = version(get(K[tonumber(A[at])], A[at + 1]))
  if found ~= A[at + 2] then return at, 'C' .. A[at + 3] .. '\0' .. found end
  return at + 4
end

-- delete: table, field, channel, whether it takes a version, lists
function steps.X(at)
  local key, field = K[tonumber(A[at])], A[at + 1]
  local old, number = get(key, field), 0
  if A[at + 3] == '1' then
    number = next_version(old)
    retire(number)
  end
  local after
  if old then
    call('HDEL', key, field)
    count(key, field, A[at + 2], -1)
    last_key = nil
    relist(old, '')
    after = statics(at + 4, false)
    if A[at + 2] ~= '' then
      local counted = channel(A[at + 2])
      counted[2] = counted[2] - 1
    end
  else
    after = at + 5 + 2 * tonumber(A[at + 4])
  end
  add_answer(number)
  return after
end

-- put: table, field, channel, JSON after the version, entries, lists
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
    list_all(behind, true)
    count(key, field, A[at + 2], 1)
    after = statics(at + 5, true)
    if A[at + 2] ~= '' then
      local counted = channel(A[at + 2])
      counted[2] = counted[2] + 1
    end
  end
  add_answer(number)
  return after
end

-- The later of two times as they are written.
local function later(one, other)
  if not one or not other then return one or other end
  if #one ~= #other then return #one > #other and one or other end
  return one > other and one or other
end
local function put_user(user, number, seen, rest, is_new)
  if is_new then list(USER_IDS, user, true) end
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
  add_answer(number)
  return at + 3
end

local function raise(name, by)
  local found = channel(name)
  local last, number = found[1], nil
  if by == 0 then number = last
  elseif last == 0 then number = begin(0) + by - 1
  else number = last + by end
  found[3] = true
  if found[2] > 0 then
    found[1] = number
  else
    found[1] = 0
    retire(number)
  end
  answer[#answer + 1] = text(number)
  answer[#answer + 1] = last == 0 and '1' or '0'
end

-- raise: channel, by
function steps.R(at)
  raise(A[at], tonumber(A[at + 1]))
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

-- The holds that follow a presence; looked up only when there are any holds.
local has_holds
local function hold(front)
  if has_holds == nil or pending[HELD_WITH] then
    flush(HELD_WITH)
    has_holds = call('EXISTS', K[HELD_WITH]) == 1
  end
  if not has_holds then
    answer[#answer + 1] = '0'
    return
  end
  front = front .. '\0'
  local held = call('ZRANGEBYLEX', K[HELD_WITH], '[' .. front, '(' .. front .. '\255')
  answer[#answer + 1] = text(#held)
  for _, member in ipairs(held) do answer[#answer + 1] = sub(member, #front + 1) end
end

-- held: channel and user of a presence, with which the members of `held-with` begin
function steps.H(at)
  hold(A[at])
  return at + 1
end

-- Most commits, in fewer arguments: a presence that is expected and put, and its channel raised: channel, user, version,
-- JSON, entries, by
function steps.J(at)
  local name, user, behind = A[at], A[at + 1], A[at + 4]
  local field = name .. '\0' .. user
  local old = call('HGET', K[PRESENCES], field)
  local found = version(old)
  if found ~= A[at + 2] then return at, 'C0\0' .. found end
  local number = next_version(old)
  last_key = nil
  call('HSET', K[PRESENCES], field, '{"version":' .. text(number) .. ',' .. A[at + 3] .. '\0' .. behind)
  if old then
    relist(old, behind)
  else
    list_all(behind, true)
    list(ROSTER, field, true)
    list(USER_CHANNELS, user .. '\0' .. name, true)
    count(nil, nil, name, 1)
    local counted = channel(name)
    counted[2] = counted[2] + 1
  end
  add_answer(number)
  raise(name, tonumber(A[at + 5]))
  hold(field)
  return at + 6
end

-- a deadline: table, field, JSON, entries
function steps.T(at)
  local key, field = K[tonumber(A[at])], A[at + 1]
  relist(get(key, field), A[at + 3])
  set(key, field, A[at + 2] .. '\0' .. A[at + 3])
  return at + 4
end
