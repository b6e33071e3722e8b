-- Nodes: opened, renewed, closed, stopped, forgotten.

-- open: name, lease
function steps.NO(at)
  local name, latest = A[at], 0
  for _, key in ipairs(call('HKEYS', K[NODES])) do
    if sub(key, 1, #name + 1) == name .. '\0' then
      latest = math.max(latest, tonumber(sub(key, #name + 2)))
      local earlier = node(key)
      if not earlier.closed_at then
        put_node(key, now, earlier.clean, earlier.opened_at, earlier.lease_until)
      end
    end
  end
  local epoch = begin(latest)
  local key = name .. '\0' .. long(epoch)
  put_node(key, nil, 'false', now, text(time + A[at + 1]))
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
    found.closed_at = now
    put_node(A[at], found.closed_at, found.clean, found.opened_at, found.lease_until)
  end
  answer[#answer + 1] = found.closed_at
  return at + 2
end

-- stop: node
function steps.NS(at)
  if not is_open(A[at]) then return at, 'F' end
  local found = node(A[at])
  put_node(A[at], now, 'true', found.opened_at, found.lease_until)
  answer[#answer + 1] = now
  return at + 1
end

-- forget: node, its epoch
function steps.NF(at)
  local found = node(A[at])
  if found then
    if not found.closed_at then return at, 'L' .. found.lease_until end
    fences[A[at]] = nil
    call('HDEL', K[NODES], A[at])
    retire(tonumber(A[at + 1]))
  end
  return at + 2
end
