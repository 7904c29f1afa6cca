-- locks_of
-- Returns the locks of the inode ARGV[1].

return stored_locks(0, ARGV[1])
