-- Leases.

-- check that no other node holds a lease: name, JSON of the writer, number of the lease in the commit
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

-- take a lease: name, JSON of the writer, for how long
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
