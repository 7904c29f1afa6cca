-- Returns the records of the keys after ARGV[1].

local records = {}
for at = 2, #ARGV do
  records[at - 1] = record_of(ARGV[at])
end
return records
