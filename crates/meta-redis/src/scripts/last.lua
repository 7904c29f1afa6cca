-- Returns the last record of a range and its key, if there is one: from, to.

local key = redis.call('ZREVRANGEBYLEX', ORDER, '(' .. ARGV[2], lower(ARGV[1]), 'LIMIT', 0, 1)[1]
if not key then
  return {}
end
return { key, redis.call('HGET', RECORDS, key) }
