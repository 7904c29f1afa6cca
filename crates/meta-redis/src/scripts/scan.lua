-- Returns the first records of a range as a flat list of keys and records: from, whether it has an end, to, maximum.

local rows, keys = {}, redis.call('ZRANGEBYLEX', ORDER, lower(ARGV[1]), upper(ARGV[2], ARGV[3]), 'LIMIT', 0, ARGV[4])
for first = 1, #keys, 1000 do
  local last = math.min(first + 999, #keys)
  local records = redis.call('HMGET', RECORDS, unpack(keys, first, last))
  for at = first, last do
    rows[2 * at - 1], rows[2 * at] = keys[at], records[at - first + 1]
  end
end
return rows
