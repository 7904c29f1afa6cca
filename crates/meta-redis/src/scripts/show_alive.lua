-- Notes that the session ARGV[1] is alive.

local session = read_session(ARGV[1])
if session then
  session.used_at = now()
  write_session(ARGV[1], session)
end
