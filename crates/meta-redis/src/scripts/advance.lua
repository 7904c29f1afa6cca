-- Moves the cursor of the consumer ARGV[1] forward to ARGV[2]. Returns 0 if there is no such consumer.

local cursor = redis.call('HGET', CONSUMERS, ARGV[1])
if not cursor then
  return 0
end
redis.call('HSET', CONSUMERS, ARGV[1], text(math.max(tonumber(cursor), math.min(tonumber(ARGV[2]), head()))))
return 1
