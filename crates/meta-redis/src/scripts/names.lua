-- The keys of a volume, and small functions. KEYS[1] is the prefix of all keys.

local PREFIX = KEYS[1]
local HEAD, RECORDS, ORDER, LOG = PREFIX .. 'head', PREFIX .. 'records', PREFIX .. 'order', PREFIX .. 'log'
local SESSIONS, CONSUMERS = PREFIX .. 'sessions', PREFIX .. 'consumers'
local LEASES, LOCKS = PREFIX .. 'leases', PREFIX .. 'locks'
local SNAPSHOTS, RUNS = PREFIX .. 'snapshots', PREFIX .. 'runs'

-- Returns an integer as text. Lua itself would round it to 14 digits.
local function text(number)
  return string.format('%.0f', number)
end

-- Returns the server's time in seconds.
local function now()
  return tonumber(redis.call('TIME')[1])
end

local function read_session(id)
  local packed = redis.call('HGET', SESSIONS, id)
  return packed and cmsgpack.unpack(packed)
end

local function write_session(id, session)
  redis.call('HSET', SESSIONS, id, cmsgpack.pack(session))
end

local function head()
  return tonumber(redis.call('HGET', HEAD, 'head') or '0')
end

-- Returns the sequence number of a log entry's id.
local function seqno_of(id)
  return tonumber(string.match(id, '^%d+'))
end

-- Returns the fields of a log entry.
local function fields_of(entry)
  local fields = {}
  for at = 1, #entry[2], 2 do
    fields[entry[2][at]] = entry[2][at + 1]
  end
  return fields
end

-- Return the bounds of a range for ZRANGEBYLEX: `from` is inclusive, `to` exclusive; the upper bound of a range without an end is `+`.
local function lower(from)
  return '[' .. from
end

local function upper(has_end, to)
  return has_end == '1' and '(' .. to or '+'
end
