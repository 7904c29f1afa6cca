-- leases
-- Leases of sessions that share the volume, in a hash by session.

local function read_lease(session)
  local packed = redis.call('HGET', LEASES, session)
  return packed and cmsgpack.unpack(packed)
end

local function write_lease(session, lease)
  redis.call('HSET', LEASES, session, cmsgpack.pack(lease))
end

-- Returns the leases for which `is_meant` holds: session, epoch, fence, beat, position in the log, and 1 for a strict session.
local function leases_where(is_meant)
  local found, leases = redis.call('HGETALL', LEASES), {}
  for at = 1, #found, 2 do
    local lease = cmsgpack.unpack(found[at + 1])
    if is_meant(lease) then
      leases[#leases + 1] = { tonumber(found[at]), lease.epoch, lease.fence, lease.beat, lease.read_to, lease.is_strict and 1 or 0 }
    end
  end
  return leases
end
