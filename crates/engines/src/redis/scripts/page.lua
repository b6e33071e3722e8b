-- A page of a list with its rows, of one moment.
-- KEYS: the list, the rows. ARGV: from, to, how many, how many bytes, how the field of a row follows from a member: '' for no
-- rows, a number of bytes to skip, or 'swap' for the two names the other way round.
-- Answers whether bytes ran out, then member and row in turn.
local members = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
local room, how = tonumber(ARGV[4]), ARGV[5]
local skip = tonumber(how)
local page = { '0' }
for _, member in ipairs(members) do
  if room < 0 then
    page[1] = '1'
    break
  end
  local row = ''
  if how ~= '' then
    local field
    if skip then field = string.sub(member, skip + 1)
    else
      local zero = string.find(member, '\0', 1, true)
      field = string.sub(member, zero + 1) .. '\0' .. string.sub(member, 1, zero - 1)
    end
    row = redis.call('HGET', KEYS[2], field) or ''
  end
  room = room - #row - #member
  page[#page + 1] = member
  page[#page + 1] = row
end
return page
