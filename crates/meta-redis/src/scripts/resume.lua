-- Resumes the session ARGV[1], and raises its generation above ARGV[2]. Returns nothing if the session has ended.

local session = read_session(ARGV[1])
if not session then
  return {}
end
session.generation = math.max(session.generation, tonumber(ARGV[2])) + 1
session.used_at = now()
write_session(ARGV[1], session)
return { session.generation, session.last, session.base, session.failed, head() }
