-- Begins a session: holder, whether it is exclusive, lease, silence after which a session has ended, version of the keys. Returns its id, or the holder of a session that
-- excludes it with its silence in seconds.

local holder, is_exclusive = ARGV[1], ARGV[2] == '1'
local lease, silence_max, time = tonumber(ARGV[3]), tonumber(ARGV[4]), redis.call('TIME')
local seconds, owner = tonumber(time[1]), redis.call('HGET', HEAD, 'owner')
local found, others, ended = redis.call('HGETALL', SESSIONS), 0, {}
for at = 1, #found, 2 do
  local id, session = found[at], cmsgpack.unpack(found[at + 1])
  local silence = seconds - session.used_at
  if session.holder ~= holder and silence < lease and (is_exclusive or id == owner) then
    return { 'in use', session.holder, silence }
  end
  if is_exclusive or session.holder == holder or silence > silence_max or id == owner then
    ended[#ended + 1] = id
  else
    others = others + 1
  end
end
for _, id in ipairs(ended) do
  redis.call('HDEL', SESSIONS, id)
  redis.call('HDEL', LEASES, id)
end

-- The time makes ids unique even if the server has lost those of sessions.
local last = tonumber(redis.call('HGET', HEAD, 'sessions'))
local id = text(math.max(last + 1, seconds * 1000000 + tonumber(time[2])))
write_session(id, { holder = holder, generation = 0, last = 0, base = 0, failed = {}, used_at = seconds })
redis.call('HSET', HEAD, 'sessions', id, 'version', ARGV[5])
if is_exclusive then
  redis.call('HSET', HEAD, 'owner', id)
else
  redis.call('HDEL', HEAD, 'owner')
end

-- Runs, snapshots and locks that ended sessions have left.
if others == 0 then
  redis.call('UNLINK', LEASES, LOCKS)
  for _, version in ipairs(redis.call('SMEMBERS', RUNS)) do
    redis.call('UNLINK', PREFIX .. 'run-records:' .. version, PREFIX .. 'run-pages:' .. version)
  end
  redis.call('UNLINK', RUNS)
  for _, snapshot in ipairs(redis.call('HKEYS', SNAPSHOTS)) do
    redis.call('UNLINK', PREFIX .. 'snapshot:' .. snapshot, PREFIX .. 'snapshot-order:' .. snapshot)
  end
  redis.call('UNLINK', SNAPSHOTS)
end
return { 'ok', tonumber(id) }
