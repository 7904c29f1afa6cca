-- Returns the first records of a range as a flat list of keys and records: from, whether it has an end, to, maximum. The keys are those of now
-- and those that are kept for the snapshot, page by page.

local from, rows, missing = lower(ARGV[2]), {}, tonumber(ARGV[5])
local to = upper(ARGV[3], ARGV[4])
local has_kept = redis.call('EXISTS', SNAPSHOT, SNAPSHOT_ORDER) > 0

-- Returns the sorted keys of a page, `keys`, with those up to `bound` that only the snapshot has.
local function merge(keys, from, bound)
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
  return merged
end

-- Adds the records of sorted keys, with one call for many of them: a call for each takes most of the time of a scan.
local function add(keys)
  for first = 1, #keys, 1000 do
    local last = math.min(first + 999, #keys)
    local records = redis.call('HMGET', RECORDS, unpack(keys, first, last))
    local kept = has_kept and redis.call('HMGET', SNAPSHOT, unpack(keys, first, last))
    for at = first, last do
      local record = kept and kept[at - first + 1] or records[at - first + 1]
      if missing > 0 and record and record ~= '' then
        rows[#rows + 1] = keys[at]
        rows[#rows + 1] = record
        missing = missing - 1
      end
    end
  end
end

while missing > 0 do
  local count = math.min(missing, 1000)
  local keys = redis.call('ZRANGEBYLEX', ORDER, from, to, 'LIMIT', 0, count)
  local is_last = #keys < count
  local bound = is_last and to or '[' .. keys[#keys]
  add(has_kept and merge(keys, from, bound) or keys)
  if is_last then
    break
  end
  from = '(' .. keys[#keys]
end
return rows
