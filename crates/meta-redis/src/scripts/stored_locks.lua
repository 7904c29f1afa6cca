-- stored_locks
-- Locks of files, in a hash by inode.

-- Returns whether a replacement was made, the sessions with leases and their epochs, the head, and the locks of an inode if there are any.
local function stored_locks(is_replaced, ino)
  local sessions, epochs = {}, {}
  for at, lease in ipairs(leases_where(function() return true end)) do
    sessions[at], epochs[at] = lease[1], lease[2]
  end
  return { is_replaced, sessions, epochs, head(), redis.call('HGET', LOCKS, ino) }
end
