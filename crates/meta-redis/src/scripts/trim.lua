-- Cuts off what the log need not keep, up to a commit with ops: ops to keep without need, maximum bytes of ops, of runs, maximum commits to cut off.

local state = log_state()
local cut, ops, bytes, run_bytes, needed = state[2], state[3], state[4], state[5], state[7]
local tail, bytes_max, run_bytes_max, missing = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local from, runs, best = '-', {}, nil
while missing > 0 do
  local page = redis.call('XRANGE', LOG, from, '+', 'COUNT', math.min(missing, 256))
  if #page == 0 then
    break
  end
  for _, entry in ipairs(page) do
    local fields, seqno = fields_of(entry), seqno_of(entry[1])
    local is_unneeded = (needed < 0 or seqno <= needed) and ops > tail
    local may_end = tonumber(fields.o) > 0 and (is_unneeded or bytes > bytes_max or run_bytes > run_bytes_max)
    ops, bytes = ops - tonumber(fields.o), bytes - #(fields.p or '')
    if fields.v then
      run_bytes = run_bytes - tonumber(fields.b)
      runs[#runs + 1] = PREFIX .. 'run-pages:' .. fields.v
    end
    if may_end then
      best = { seqno = seqno, ops = ops, bytes = bytes, run_bytes = run_bytes, runs = #runs }
    end
    from, missing = '(' .. entry[1], missing - 1
  end
end
if best then
  for at = 1, best.runs do
    redis.call('UNLINK', runs[at])
  end
  redis.call('XTRIM', LOG, 'MINID', '=', text(best.seqno + 1))
  redis.call('HSET', HEAD, 'cut', text(best.seqno), 'log_ops', text(best.ops), 'log_bytes', text(best.bytes), 'run_bytes', text(best.run_bytes))
end
