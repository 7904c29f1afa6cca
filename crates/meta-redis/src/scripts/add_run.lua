-- Adds a staged run in one commit: session, generation, number of the group, silence after which a session has ended, version of the run, number of the
-- commit, ops, bytes of their pages, pages, and a commit without puts and deletes, without its ops.

local id, generation, number = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local version, nr, ops, bytes, pages = ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9]
local session = admitted(id, generation, number)
if not session then
  return { 'ended' }
end
local merged, base = {}, head()
local commit = parse(nr, 10)
if not collect_merges(commit, merged) then
  return { 'merge' }
end
if not commit.holds then
  return finish(id, session, number, base, { nr }, {})
end

local snapshots = live_snapshots(tonumber(ARGV[4]))
local staged, of_run = PREFIX .. 'run-records:' .. version, struct.pack('>I8', tonumber(version))
local cursor = '0'
repeat
  local page = redis.call('HSCAN', staged, cursor, 'COUNT', 1000)
  cursor = page[1]
  for at = 1, #page[2], 2 do
    local key, record = page[2][at], page[2][at + 1]
    if record == '' then
      delete(snapshots, key)
    else
      put(snapshots, key, of_run .. record)
    end
  end
until cursor == '0'
redis.call('UNLINK', staged)
redis.call('SREM', RUNS, version)
local rows = put_merged(snapshots, merged, base)
redis.call('XADD', LOG, text(base + nr) .. '-0', 's', id, 'g', ARGV[2], 'n', ARGV[3], 'o', ops, 'v', version, 'c', pages, 'b', bytes)
redis.call('HSET', HEAD, 'head', text(base + nr))
redis.call('HINCRBY', HEAD, 'log_ops', ops)
redis.call('HINCRBY', HEAD, 'run_bytes', bytes)
return finish(id, session, number, base, {}, rows)
