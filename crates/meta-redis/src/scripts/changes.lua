-- Changes of records by the commits of a transaction.
--
-- A record is its version (8 bytes), its shape (1 byte), the numbers of the shape, and its value:
--   0: none                               1: link count (4)
--   2: link count, two maxima (4, 8, 8)   3: two sums (8, 8)
--   4: two sums (8, 8), merged            5: inode number of a dentry (8)
-- A number of 8 bytes is a pair here, its upper and its lower half, because Lua's numbers are exact up to 2^53 only.

local HALF = 4294967296

-- Returns the session that may apply the group `number`, or nil.
local function admitted(id, generation, number)
  local session = read_session(id)
  local owner = redis.call('HGET', HEAD, 'owner')
  local is_admitted = session and session.generation == generation and session.last == number - 1
    and (not owner or owner == id)
  return is_admitted and session or nil
end

-- Returns the sum of two pairs.
local function add(a, b)
  local low = a[2] + b[2]
  if low >= HALF then
    return { a[1] + b[1] + 1, low - HALF }
  end
  return { a[1] + b[1], low }
end

-- Returns the greater one of two pairs. The first one may be nil.
local function max(a, b)
  if not a or b[1] > a[1] or (b[1] == a[1] and b[2] > a[2]) then
    return b
  end
  return a
end

-- Returns the numbers of a record, or nil if it has none that a merge changes.
local function numbers_of(record)
  local shape = string.byte(record, 9)
  if shape == 1 then
    local count = struct.unpack('>I4', record, 10)
    return { kind = 'i', sum1 = { 0, count }, value = string.sub(record, 14) }
  elseif shape == 2 then
    local count, h1, l1, h2, l2 = struct.unpack('>I4i4I4i4I4', record, 10)
    return { kind = 'i', sum1 = { 0, count }, max1 = { h1, l1 }, max2 = { h2, l2 }, value = string.sub(record, 30) }
  elseif shape == 3 or shape == 4 then
    local h1, l1, h2, l2 = struct.unpack('>i4I4i4I4', record, 10)
    return { kind = 'q', sum1 = { h1, l1 }, sum2 = { h2, l2 }, value = string.sub(record, 26) }
  end
end

-- Returns the shape and the numbers of a merged record, as they are stored.
local function stored_numbers(numbers)
  if numbers.kind == 'i' then
    return struct.pack('>BI4i4I4i4I4', 2, numbers.sum1[2], numbers.max1[1], numbers.max1[2], numbers.max2[1], numbers.max2[2])
  end
  return struct.pack('>Bi4I4i4I4', 4, numbers.sum1[1], numbers.sum1[2], numbers.sum2[1], numbers.sum2[2])
end

-- Merges a change into numbers. Returns false if the result is out of range.
local function merge(numbers, change)
  local h1, l1, h2, l2, h3, l3, h4, l4 = struct.unpack('>i4I4i4I4i4I4i4I4', change, 2)
  numbers.sum1 = add(numbers.sum1, { h1, l1 })
  if numbers.kind == 'i' then
    numbers.max1, numbers.max2 = max(numbers.max1, { h3, l3 }), max(numbers.max2, { h4, l4 })
    return numbers.sum1[1] == 0
  end
  numbers.sum2 = add(numbers.sum2, { h2, l2 })
  return numbers.sum1[1] >= 0 and numbers.sum2[1] >= 0 and numbers.sum1[1] < HALF / 2 and numbers.sum2[1] < HALF / 2
end

-- Returns whether a condition holds. `own` has the keys that the commit itself puts or deletes, and `own.count` of them.
local function holds(kind, key, extra, own)
  if kind == 'v' then
    local record = redis.call('HGET', RECORDS, key)
    return record and string.sub(record, 1, 8) == extra
  elseif kind == 'p' then
    return redis.call('HEXISTS', RECORDS, key) == 1
  elseif kind == 'a' then
    return redis.call('HEXISTS', RECORDS, key) == 0
  end
  local found = redis.call('ZRANGEBYLEX', ORDER, lower(key), '(' .. extra, 'LIMIT', 0, own.count + 1)
  for _, inside in ipairs(found) do
    if not own[inside] then
      return false
    end
  end
  return true
end

-- Parses the commit that begins at an argument, and checks its conditions. Returns the commit and the argument after it.
local function parse(nr, at)
  local commit = { nr = nr, holds = true }
  commit.puts, commit.puts_at = tonumber(ARGV[at]), at + 1
  at = at + 1 + 2 * commit.puts
  commit.deletes, commit.deletes_at = tonumber(ARGV[at]), at + 1
  at = at + 1 + commit.deletes
  commit.merges, commit.merges_at = tonumber(ARGV[at]), at + 1
  at = at + 1 + 2 * commit.merges
  local own = { count = commit.puts + commit.deletes }
  local conditions = tonumber(ARGV[at])
  for condition = at + 1, at + 3 * conditions, 3 do
    local kind = ARGV[condition]
    if kind == 'r' and not own.is_known then
      own.is_known = true
      for put = 1, commit.puts do
        own[ARGV[commit.puts_at + 2 * put - 2]] = true
      end
      for delete = 1, commit.deletes do
        own[ARGV[commit.deletes_at + delete - 1]] = true
      end
    end
    commit.holds = commit.holds and holds(kind, ARGV[condition + 1], ARGV[condition + 2], own)
  end
  at = at + 1 + 3 * conditions
  return commit, at
end

-- Adds the merges of a commit to those of the transaction. Returns false if one is impossible, upon which nothing may be applied. The commit
-- does not hold if a record is missing.
local function collect_merges(commit, merged)
  for merging = 1, commit.merges do
    local key = ARGV[commit.merges_at + 2 * merging - 2]
    commit.holds = commit.holds and (merged[key] ~= nil or redis.call('HEXISTS', RECORDS, key) == 1)
  end
  if not commit.holds then
    return true
  end
  for merging = 1, commit.merges do
    local key, change = ARGV[commit.merges_at + 2 * merging - 2], ARGV[commit.merges_at + 2 * merging - 1]
    local numbers = merged[key]
    if not numbers then
      local record = redis.call('HGET', RECORDS, key)
      numbers = numbers_of(record)
      if not numbers then
        return false
      end
      numbers.before = string.sub(record, 1, 8)
      merged[key] = numbers
    end
    if numbers.kind ~= string.sub(change, 1, 1) or not merge(numbers, change) then
      return false
    end
    numbers.nr = commit.nr
  end
  return true
end

-- Removes a snapshot with the records that are kept for it.
local function drop_snapshot(id)
  redis.call('HDEL', SNAPSHOTS, id)
  redis.call('UNLINK', PREFIX .. 'snapshot:' .. id, PREFIX .. 'snapshot-order:' .. id)
end

-- Returns the snapshots of sessions that are alive, and removes the others.
local function live_snapshots(silence_max)
  local found, live = redis.call('HGETALL', SNAPSHOTS), {}
  for at = 1, #found, 2 do
    local session = read_session(found[at + 1])
    if session and session.used_at > now() - silence_max then
      live[#live + 1] = found[at]
    else
      drop_snapshot(found[at])
    end
  end
  return live
end

-- Keeps the present record of a key for the snapshots that do not have it yet.
local function keep(snapshots, key)
  for _, id in ipairs(snapshots) do
    local record = redis.call('HGET', RECORDS, key) or ''
    if redis.call('HSETNX', PREFIX .. 'snapshot:' .. id, key, record) == 1 then
      redis.call('ZADD', PREFIX .. 'snapshot-order:' .. id, 0, key)
    end
  end
end

local function put(snapshots, key, record)
  keep(snapshots, key)
  if redis.call('HSET', RECORDS, key, record) == 1 then
    redis.call('ZADD', ORDER, 0, key)
  end
end

local function delete(snapshots, key)
  keep(snapshots, key)
  if redis.call('HDEL', RECORDS, key) == 1 then
    redis.call('ZREM', ORDER, key)
  end
end

-- Writes the merged records. Returns them as a flat list: key, version before, and version, shape and numbers as they are stored.
local function put_merged(snapshots, merged, base)
  local rows = {}
  for key, numbers in pairs(merged) do
    local start = struct.pack('>I8', base + numbers.nr) .. stored_numbers(numbers)
    put(snapshots, key, start .. numbers.value)
    rows[#rows + 1] = key
    rows[#rows + 1] = numbers.before
    rows[#rows + 1] = start
  end
  return rows
end

-- Notes a transaction in its session, and wakes other sessions. Returns the answer.
local function finish(id, session, number, base, failed, rows)
  session.last, session.base, session.failed, session.used_at = number, base, failed, now()
  write_session(id, session)
  if redis.call('HLEN', SESSIONS) > 1 then
    redis.call('PUBLISH', PREFIX .. 'commits', id)
  end
  local state = redis.call('HMGET', HEAD, 'head', 'log_ops', 'log_bytes', 'run_bytes')
  local strict = leases_where(function(lease) return lease.is_strict end)
  return { 'ok', base, failed, tonumber(state[1]), tonumber(state[2]), tonumber(state[3]), tonumber(state[4]), rows, strict }
end
