-- Ends the session ARGV[1].

redis.call('HDEL', SESSIONS, ARGV[1])
redis.call('HDEL', LEASES, ARGV[1])
if redis.call('HGET', HEAD, 'owner') == ARGV[1] then
  redis.call('HDEL', HEAD, 'owner')
end
