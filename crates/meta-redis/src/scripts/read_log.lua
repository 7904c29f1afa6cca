-- Returns the state of the log, and up to ARGV[2] of its commits with ops after ARGV[1]: a commit's number, its ops, or an empty text and the version,
-- pages, ops and bytes of a run.

local commits, from, missing = {}, '(' .. ARGV[1] .. '-0', tonumber(ARGV[2])
repeat
  local page = redis.call('XRANGE', LOG, from, '+', 'COUNT', missing)
  for _, entry in ipairs(page) do
    local fields = fields_of(entry)
    if fields.v then
      commits[#commits + 1] = { seqno_of(entry[1]), '', tonumber(fields.v), tonumber(fields.c), tonumber(fields.o), tonumber(fields.b) }
    elseif fields.o ~= '0' then
      commits[#commits + 1] = { seqno_of(entry[1]), fields.p }
    end
    from = '(' .. entry[1]
  end
  missing = tonumber(ARGV[2]) - #commits
until missing <= 0 or #page == 0
return { log_state(), commits }
