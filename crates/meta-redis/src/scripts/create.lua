-- Makes the metadata of a new volume, of the version ARGV[1]. Returns 0 if there is metadata already.

if redis.call('EXISTS', HEAD) == 1 then
  return 0
end
redis.call('HSET', HEAD, 'version', ARGV[1], 'head', 0, 'cut', 0, 'log_ops', 0, 'log_bytes', 0, 'run_bytes', 0, 'sessions', 0)
return 1
