-- Ends the snapshot ARGV[1].

drop_snapshot(ARGV[1])
