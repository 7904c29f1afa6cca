-- Returns 1 if no session but ARGV[1] has shown that it is alive within ARGV[2] seconds.

local found, since = redis.call('HGETALL', SESSIONS), now() - tonumber(ARGV[2])
for at = 1, #found, 2 do
  if found[at] ~= ARGV[1] and cmsgpack.unpack(found[at + 1]).used_at > since then
    return 0
  end
end
return 1
