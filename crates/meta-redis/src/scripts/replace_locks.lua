-- replace_locks
-- Replaces the locks of the inode ARGV[4] for the session ARGV[1] with the epoch ARGV[2] and the fence ARGV[3], if they are ARGV[5]; ARGV[6] are the new
-- ones. An empty text stands for no locks. Publishes the notification ARGV[7] unless it is empty, and raises the beat of the lease to ARGV[8].
-- Returns nothing if the session has no such lease.

local lease = read_lease(ARGV[1])
if not lease or lease.epoch ~= tonumber(ARGV[2]) or lease.fence ~= tonumber(ARGV[3]) then
  return {}
end
lease.beat = math.max(lease.beat, tonumber(ARGV[8]))
write_lease(ARGV[1], lease)
if (redis.call('HGET', LOCKS, ARGV[4]) or '') ~= ARGV[5] then
  return stored_locks(0, ARGV[4])
end
if ARGV[6] == '' then
  redis.call('HDEL', LOCKS, ARGV[4])
else
  redis.call('HSET', LOCKS, ARGV[4], ARGV[6])
end
if ARGV[7] ~= '' then
  redis.call('PUBLISH', PREFIX .. 'commits', ARGV[7])
end
return stored_locks(1, ARGV[4])
