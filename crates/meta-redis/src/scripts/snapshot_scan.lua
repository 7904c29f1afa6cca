-- Returns the first records of a range as a flat list of keys and records: from, whether it has an end, to, maximum. The keys are those of now
-- and those that are kept for the snapshot, page by page.

local from, rows, missing = lower(ARGV[2]), {}, tonumber(ARGV[5])
local to = upper(ARGV[3], ARGV[4])
while missing > 0 do
  local count = math.min(missing, 1000)
  local keys = redis.call('ZRANGEBYLEX', ORDER, from, to, 'LIMIT', 0, count)
  local is_last = #keys < count
  local bound = is_last and to or '[' .. keys[#keys]
  local known = {}
  for _, key in ipairs(keys) do
    known[key] = true
  end
  local kept, merged, next_kept = redis.call('ZRANGEBYLEX', SNAPSHOT_ORDER, from, bound), {}, 1
  -- Both lists are sorted, and the server compares keys: those that only the snapshot has are put where the server would put them.
  for _, key in ipairs(keys) do
    while kept[next_kept] and not known[kept[next_kept]]
      and redis.call('ZLEXCOUNT', SNAPSHOT_ORDER, '[' .. kept[next_kept], '(' .. key) > 0 do
      merged[#merged + 1] = kept[next_kept]
      next_kept = next_kept + 1
    end
    if kept[next_kept] == key then
      next_kept = next_kept + 1
    end
    merged[#merged + 1] = key
  end
  for at = next_kept, #kept do
    merged[#merged + 1] = kept[at]
  end
  for _, key in ipairs(merged) do
    local record = missing > 0 and record_of(key)
    if record then
      rows[#rows + 1] = key
      rows[#rows + 1] = record
      missing = missing - 1
    end
  end
  if is_last then
    break
  end
  from = '(' .. keys[#keys]
end
return rows
