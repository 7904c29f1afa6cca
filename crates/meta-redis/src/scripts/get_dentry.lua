-- Returns the record of the dentry ARGV[1] and that of its inode, as far as they exist.

local dentry = redis.call('HGET', RECORDS, ARGV[1])
if not dentry then
  return {}
end
local is_resolved = string.byte(dentry, 9) == 5
return { dentry, is_resolved and redis.call('HGET', RECORDS, 'I' .. string.sub(dentry, 10, 17)) }
