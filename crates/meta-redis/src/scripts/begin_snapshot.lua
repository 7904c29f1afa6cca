-- Begins a snapshot of the session ARGV[1]. Returns its id and the newest commit.

local time = redis.call('TIME')
local id = tonumber(time[1]) * 1000000 + tonumber(time[2])
while redis.call('HEXISTS', SNAPSHOTS, text(id)) == 1 do
  id = id + 1
end
redis.call('HSET', SNAPSHOTS, text(id), ARGV[1])
return { id, head() }
