-- renew_lease
-- Renews the lease of the session ARGV[1] with the epoch ARGV[2]: fence, beat, position in the log. Publishes the notification ARGV[6] unless it is
-- empty. Returns whether there is such a lease, with at least the beat ARGV[7], and all leases.

local lease = read_lease(ARGV[1])
if not lease or lease.epoch ~= tonumber(ARGV[2]) or lease.fence > tonumber(ARGV[3]) or lease.beat < tonumber(ARGV[7]) then
  return { 0, {} }
end
lease.fence, lease.beat, lease.read_to = tonumber(ARGV[3]), math.max(lease.beat, tonumber(ARGV[4])), tonumber(ARGV[5])
write_lease(ARGV[1], lease)
if ARGV[6] ~= '' then
  redis.call('PUBLISH', PREFIX .. 'commits', ARGV[6])
end
return { 1, leases_where(function() return true end) }
