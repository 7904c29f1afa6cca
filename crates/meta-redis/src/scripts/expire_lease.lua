-- expire_lease
-- Removes the lease of the session ARGV[1] if it still has the epoch ARGV[2] and the beat ARGV[3].

local lease = read_lease(ARGV[1])
if lease and lease.epoch == tonumber(ARGV[2]) and lease.beat == tonumber(ARGV[3]) then
  redis.call('HDEL', LEASES, ARGV[1])
end
