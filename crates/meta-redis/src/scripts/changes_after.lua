-- Returns the commits of other sessions than ARGV[2] after a position: the commit ARGV[1], whose writer is ARGV[3] to ARGV[5] if it is known. Reads up to
-- ARGV[6] commits. Returns the head, the newest commit that was cut off, whether the commit at the position has another writer, the end of
-- the page with its writer (-1 if it is not known), and the commits with the keys that they changed; a run has none.

-- Returns the writer of the newest commit up to one.
local function writer_at(seqno)
  local entry = redis.call('XREVRANGE', LOG, seqno, '-', 'COUNT', 1)[1]
  if not entry then
    return nil
  end
  local fields = fields_of(entry)
  return { fields.s, fields.g, fields.n }
end

local newest, cut = head(), tonumber(redis.call('HGET', HEAD, 'cut') or '0')
local is_other = 0
if ARGV[3] ~= '' then
  local writer = writer_at(ARGV[1])
  if writer and (writer[1] ~= ARGV[3] or writer[2] ~= ARGV[4] or writer[3] ~= ARGV[5]) then
    is_other = 1
  end
end
local page = redis.call('XRANGE', LOG, '(' .. ARGV[1] .. '-0', '+', 'COUNT', ARGV[6])
local commits, to = {}, newest
for _, entry in ipairs(page) do
  local fields = fields_of(entry)
  if fields.s ~= ARGV[2] then
    commits[#commits + 1] = { seqno_of(entry[1]), fields.k }
  end
end
if #page == tonumber(ARGV[6]) then
  to = seqno_of(page[#page][1])
end
local writer = writer_at(text(to)) or {}
return { newest, cut, is_other, to, tonumber(writer[1] or '-1'), tonumber(writer[2] or '-1'), tonumber(writer[3] or '-1'), commits }
