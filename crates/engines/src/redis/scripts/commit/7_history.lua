-- Channel history. A message is in `history-messages` under its channel and offset, with its id behind a zero byte.

-- By channel, loaded when needed; written at the end.
local histories, history_bytes = {}, 0
local function history(name)
  local found = histories[name]
  if not found then
    found = { epoch = 0, offset = 0, total = 0, first = 1, first_at = 0, dropped = 0, expires_at = 0, before = 0 }
    local value = call('HGET', K[HISTORIES], name)
    if value then
      local epoch, offset, total, first, first_at, dropped, expires_at = match(value, '^{"epoch":(%d+),"offset":(%d+),'
        .. '"total":(%d+),"first":(%d+),"first_at":(%d+),"dropped":(%d+),"expires_at":(%d+)}$')
      found.epoch, found.offset, found.total = tonumber(epoch), tonumber(offset), tonumber(total)
      found.first, found.first_at, found.dropped = tonumber(first), tonumber(first_at), tonumber(dropped)
      found.expires_at, found.before = tonumber(expires_at), tonumber(expires_at)
    end
    histories[name] = found
  end
  return found
end
local function keep_histories()
  for name, found in pairs(histories) do
    if found.changed then
      if found.before ~= found.expires_at or found.epoch == 0 then
        if found.before > 0 then list(HISTORIES_DUE, long(found.before) .. '\0' .. name, false) end
        if found.epoch > 0 then list(HISTORIES_DUE, long(found.expires_at) .. '\0' .. name, true) end
      end
      if found.epoch > 0 then
        call('HSET', K[HISTORIES], name, format('{"epoch":%d,"offset":%d,"total":%d,"first":%d,"first_at":%d,"dropped":%d,"expires_at":%d}',
          found.epoch, found.offset, found.total, found.first, found.first_at, found.dropped, found.expires_at))
      else
        call('HDEL', K[HISTORIES], name)
      end
    end
  end
  if history_bytes ~= 0 then call('INCRBY', K[HISTORY_BYTES], text(history_bytes)) end
end
local function drop_oldest(name, found)
  local field = name .. '\0' .. long(found.first)
  local value = call('HGET', K[HISTORY_MESSAGES], field)
  if value then
    local bytes = tonumber(match(value, '"bytes":(%d+)'))
    local zero = find(value, '\0', 1, true)
    if zero then call('HDEL', K[HISTORY_IDS], name .. '\0' .. sub(value, zero + 1)) end
    found.dropped, history_bytes = found.dropped + bytes, history_bytes - bytes
    call('HDEL', K[HISTORY_MESSAGES], field)
  end
  found.first = found.first + 1
end

-- clear: channel, epoch and offset that it must be at ('' for any)
function steps.HC(at)
  local name, found = A[at], history(A[at])
  local is_wanted = A[at + 1] == '' or (tonumber(A[at + 1]) == found.epoch and tonumber(A[at + 2]) == found.offset)
  if found.epoch > 0 and is_wanted then
    while found.first <= found.offset do drop_oldest(name, found) end
    retire(found.epoch)
    found.epoch, found.offset, found.total, found.first, found.dropped, found.changed = 0, 0, 0, 1, 0, true
  end
  return at + 3
end

-- append: channel, whether it has an id, id, JSON, bytes, how many messages and bytes may stay, and for how long
function steps.HA(at)
  local name, found, bytes = A[at], history(A[at]), tonumber(A[at + 4])
  local has_id, id = A[at + 1] == '1', A[at] .. '\0' .. A[at + 2]
  local known = has_id and call('HGET', K[HISTORY_IDS], id)
  if known then
    answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = text(found.epoch), known, '1'
    return at + 8
  end
  if found.epoch == 0 then found.epoch = begin(0) end
  found.offset, found.total, found.changed = found.offset + 1, found.total + bytes, true
  if found.first == found.offset then found.first_at = time end
  found.expires_at = math.min(time + tonumber(A[at + 7]), MOST)
  history_bytes = history_bytes + bytes
  local value = '{"at":' .. now .. ',"bytes":' .. A[at + 4] .. ',' .. A[at + 3]
  if has_id then
    value = value .. '\0' .. A[at + 2]
    call('HSET', K[HISTORY_IDS], id, text(found.offset))
  end
  call('HSET', K[HISTORY_MESSAGES], name .. '\0' .. long(found.offset), value)
  local most, most_bytes, ttl = tonumber(A[at + 5]), tonumber(A[at + 6]), tonumber(A[at + 7])
  -- The newest stays, however large.
  while found.first < found.offset and (found.offset - found.first >= most or found.total - found.dropped > most_bytes
      or found.first_at + ttl <= time) do
    drop_oldest(name, found)
    local value = call('HGET', K[HISTORY_MESSAGES], name .. '\0' .. long(found.first))
    found.first_at = value and tonumber(match(value, '^{"at":(%d+)')) or 0
  end
  answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = text(found.epoch), text(found.offset), '0'
  return at + 8
end
