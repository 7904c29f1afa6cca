-- Returns the state of the log, and the cursor of the consumer ARGV[1], or -1.

return { log_state(), tonumber(redis.call('HGET', CONSUMERS, ARGV[1]) or '-1') }
