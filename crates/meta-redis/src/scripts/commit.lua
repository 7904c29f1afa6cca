-- Commits a group: session, generation, number of the group, silence after which a session has ended, number of commits, and the commits.
-- A commit: puts (key, record without version), deletes (key), merges (key, change), conditions (kind, key, version or end of the range), each
-- list after its length; the number of ops (empty for a commit that only checks), their encoding, and the changed keys.

local id, generation, number = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local session = admitted(id, generation, number)
if not session then
  return { 'ended' }
end
local commits, merged, failed, at = {}, {}, {}, 6
for nr = 1, tonumber(ARGV[5]) do
  local commit
  commit, at = parse(nr, at)
  commit.ops, commit.page, commit.keys = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  at = at + 3
  if not collect_merges(commit, merged) then
    return { 'merge' }
  end
  if commit.holds then
    commits[#commits + 1] = commit
  else
    failed[#failed + 1] = nr
  end
end

local base, last, ops, bytes = head(), 0, 0, 0
local snapshots = live_snapshots(tonumber(ARGV[4]))
for _, commit in ipairs(commits) do
  local seqno = base + commit.nr
  local version = struct.pack('>I8', seqno)
  for put_at = commit.puts_at, commit.puts_at + 2 * commit.puts - 2, 2 do
    put(snapshots, ARGV[put_at], version .. ARGV[put_at + 1])
  end
  for delete_at = commit.deletes_at, commit.deletes_at + commit.deletes - 1 do
    delete(snapshots, ARGV[delete_at])
  end
  if commit.ops ~= '' then
    redis.call('XADD', LOG, text(seqno) .. '-0', 's', id, 'g', ARGV[2], 'n', ARGV[3], 'o', commit.ops, 'k', commit.keys, 'p', commit.page)
    last, ops, bytes = commit.nr, ops + tonumber(commit.ops), bytes + #commit.page
  end
end
local rows = put_merged(snapshots, merged, base)
if last > 0 then
  redis.call('HSET', HEAD, 'head', text(base + last))
  redis.call('HINCRBY', HEAD, 'log_ops', ops)
  redis.call('HINCRBY', HEAD, 'log_bytes', bytes)
end
return finish(id, session, number, base, failed, rows)
