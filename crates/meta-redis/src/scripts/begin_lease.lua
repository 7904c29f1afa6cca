-- begin_lease
-- Stores the lease of the session ARGV[1]: epoch, fence, beat, position in the log, whether it is strict. Returns the head, or nothing if the session
-- has ended.

if redis.call('HEXISTS', SESSIONS, ARGV[1]) == 0 then
  return {}
end
write_lease(ARGV[1], {
  epoch = tonumber(ARGV[2]), fence = tonumber(ARGV[3]), beat = tonumber(ARGV[4]), read_to = tonumber(ARGV[5]), is_strict = ARGV[6] == '1',
})
return { head() }
