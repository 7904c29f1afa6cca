-- Returns the state of the log: head, newest commit that was cut off, ops, bytes, bytes of runs, first commit with ops, lowest cursor to which the
-- log reaches back. Missing numbers are -1.

local function log_state()
  local state, first, needed = redis.call('HMGET', HEAD, 'head', 'cut', 'log_ops', 'log_bytes', 'run_bytes'), -1, -1
  local from = '-'
  repeat
    local page = redis.call('XRANGE', LOG, from, '+', 'COUNT', 16)
    for _, entry in ipairs(page) do
      if first < 0 and tonumber(fields_of(entry).o) > 0 then
        first = seqno_of(entry[1])
      end
      from = '(' .. entry[1]
    end
  until first >= 0 or #page == 0
  for _, cursor in ipairs(redis.call('HVALS', CONSUMERS)) do
    cursor = tonumber(cursor)
    if cursor >= tonumber(state[2]) and (needed < 0 or cursor < needed) then
      needed = cursor
    end
  end
  return { tonumber(state[1]), tonumber(state[2]), tonumber(state[3]), tonumber(state[4]), tonumber(state[5]), first, needed }
end
