-- Reads in the snapshot ARGV[1].

local SNAPSHOT, SNAPSHOT_ORDER = PREFIX .. 'snapshot:' .. ARGV[1], PREFIX .. 'snapshot-order:' .. ARGV[1]
if redis.call('HEXISTS', SNAPSHOTS, ARGV[1]) == 0 then
  return redis.error_reply('SNAPSHOT the snapshot has ended')
end

-- Returns the record of a key in the snapshot, or false.
local function record_of(key)
  local kept = redis.call('HGET', SNAPSHOT, key)
  if kept then
    return kept ~= '' and kept
  end
  return redis.call('HGET', RECORDS, key)
end
