-- Runs the commits in turn.

local answers = {}
local function run()
  local at, last = 3, #A
  while at <= last do
    local stop, writer, refused = at + tonumber(A[at]), A[at + 1], nil
    if writer ~= '' and not is_open(writer) then
      refused = 'W'
    else
      answer = { 'D' .. now }
      at = at + 2
      while at < stop do
        at, refused = steps[A[at]](at + 1)
        if refused then break end
      end
    end
    answers[#answers + 1] = refused or concat(answer, '\0')
    at = stop
  end
end
local ok, problem = pcall(run)
keep_histories()
for which in pairs(pending) do flush(which) end
keep_channels()
keep_log()
keep_totals()
call('HSET', K[CLOCK], 'time', now, 'floor', text(floor))
if not ok then error(problem) end
return answers
