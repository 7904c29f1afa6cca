-- Registers the consumer ARGV[1] at the cursor ARGV[2]. Returns 0, and registers nothing, if the log does not reach back to the cursor.

local at = tonumber(ARGV[2])
if at < tonumber(redis.call('HGET', HEAD, 'cut')) then
  return 0
end
redis.call('HSET', CONSUMERS, ARGV[1], text(math.min(at, head())))
return 1
