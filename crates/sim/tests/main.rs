//! Hundreds of worlds of each kind. `TENON_SEEDS` sets their number; `cargo run --release -p sim` runs thousands in seconds.

use sim::{Failure, Report, WORLDS};

/// Also proves that the faults happen: a simulator that never crashes proves nothing.
#[test]
fn namespace_worlds_match_their_models() {
    let events =
        ["ops", "rejected ops", "crashes", "lost replies", "lost commits", "refused commits", "checkpoints"];
    check_worlds(sim::namespace::world, 400, &events);
}

#[test]
fn backup_worlds_match_their_history() {
    let events = [
        "ops",
        "passes",
        "failed passes",
        "crashes",
        "restorations",
        "replaced machines",
        "damaged objects",
        "fallbacks",
    ];
    check_worlds(sim::metadata_backup::world, 200, &events);
}

/// The cursor of a restored engine, whose epoch had no snapshot yet, equalled the end of the epoch of the machine before. The exporter continued that
/// epoch, with commits of another history.
#[test]
fn backup_worlds_that_once_failed() {
    if let Err(failure) = sim::metadata_backup::world(132) {
        panic!("{failure}");
    }
}

#[test]
fn files_worlds_match_their_models() {
    let events = [
        "ops",
        "expected errors",
        "failures",
        "uncertain outcomes",
        "kills",
        "power cuts",
        "clean shutdowns",
        "corrupted logs",
        "unreadable ranges of logs",
        "worlds with log reads that failed once",
        "worlds with reads of unreadable ranges of logs",
        "corrupted journals of moves",
        "sessions with an upload of an hour",
        "sessions with refused changes",
        "imports beside garbage collections",
    ];
    check_worlds(sim::files::world, 200, &events);
}

#[test]
fn dual_worlds_match_their_history() {
    let events = [
        "files read",
        "files stored",
        "conflicts lost to the bucket",
        "renames",
        "objects read",
        "object changes",
        "failed preconditions",
        "listings",
        "cache drops",
        "hints",
        "mounts that publish open files",
        "kills",
        "power cuts",
        "clean shutdowns",
        "corrupted logs",
        "corrupted journals of moves",
        "foreign objects of equal length and metadata",
    ];
    check_worlds(sim::dual::world, 400, &events);
}

#[test]
fn sessions_worlds_match_their_models() {
    let events = [
        "steps",
        "files read",
        "files written",
        "names created",
        "names removed",
        "names renamed",
        "open files removed",
        "locks taken",
        "counted under a lock",
        "strict mounts",
        "strict lookups",
        "calls that failed",
        "partitions",
        "refused connections",
        "lost connections",
        "lost answers",
        "lost notifications",
        "killed databases",
        "lost commits",
        "expired leases",
        "dead machines",
        "unmounts",
        "clock steps",
    ];
    check_worlds(sim::sessions::world, 120, &events);
}

#[test]
fn drive_worlds_match_their_models() {
    let events = [
        "ops",
        "bucket comparisons",
        "expected errors",
        "reads",
        "dropped futures",
        "kills",
        "power cuts",
        "clean shutdowns",
        "corruptions",
        "worlds with reads of unreadable sectors",
        "worlds with transient read errors",
        "worlds with reads of flipped bits",
        "worlds with sectors unreadable after a power cut",
        "index tables with unreadable blocks",
        "failed checkpoints",
        "worlds with long zones",
    ];
    check_worlds(sim::drive::world, 30, &events);
}

/// A drive of 16 zones was full, and the log took the zones that the index needed for a checkpoint. Without a checkpoint no zone
/// became free, and a deletion was refused. In other seeds many checkpoints with almost no changes wrote one table of a single row
/// each, which used up the space reserved for deletions; or zone blocks that hold no object bytes were counted as dead, so that
/// cleaning never ended. In 8644 the log took zones that the checkpoint needed when the drive was opened, before it was known how many
/// blocks that is.
#[test]
fn drive_worlds_that_once_failed() {
    for seed in [35, 80, 8644, 706_743, 1_029_280, 2_005_644] {
        if let Err(failure) = sim::drive::world(seed) {
            panic!("{failure}");
        }
    }
}

#[test]
fn array_worlds_match_their_models() {
    let events = [
        "ops",
        "bucket comparisons",
        "power cuts",
        "openings with missing devices",
        "failing devices",
        "corruptions",
        "scrubs that repaired corruption",
        "rebuilds",
        "interrupted rebuilds",
        "scrubs under load",
        "rebuilds under load",
        "scrubs that repaired unreadable sectors",
        "worlds with reads of unreadable sectors",
        "worlds with transient read errors",
        "worlds with reads of flipped bits",
        "worlds with sectors unreadable after a power cut",
    ];
    check_worlds(sim::drive::world_of_arrays, 90, &events);
}

/// A rebuild wrote into the place of another member, which lost its data. In another seed a power cut during the opening of a mirror was
/// followed by the use of one half alone; both halves together were refused afterwards. In three seeds a scrub verified the data
/// without a device that had failed reads, and then computed the parity from the bytes of this device, which were wrong: they replaced the
/// right parity. In 65,000,094, the last frame was read a second time, and its row was half-written: another choice of devices gave other bytes.
/// In 76,001,206 and 76,008,297, a member whose label could not be read for a moment was rebuilt as another member. In
/// 78,006,118, an array without one device read a frame whole that had counted as torn at the opening before.
#[test]
fn array_worlds_that_once_failed() {
    for seed in [
        66, 154, 166, 280, 340, 300_079, 5906, 14_624, 19_590, 65_000_094, 76_001_206, 76_008_297, 78_006_118,
    ] {
        if let Err(failure) = sim::drive::world_of_arrays(seed) {
            panic!("{failure}");
        }
    }
}

#[test]
fn pool_worlds_match_their_models() {
    let events = [
        "ops",
        "bucket comparisons",
        "expected errors",
        "reads",
        "kills",
        "power cuts",
        "clean shutdowns",
        "device failures",
        "joined drives",
        "degraded pool openings",
        "corruptions",
        "worlds with reads of unreadable sectors",
        "worlds with transient read errors",
        "worlds with reads of flipped bits",
        "worlds with sectors unreadable after a power cut",
    ];
    check_worlds(sim::drive::world_of_pools, 30, &events);
}

/// The bugs that the first worlds found:
/// - Empty files by inode are only names, which are synced a moment later.
/// - The object that a failed close had stored was taken for another writer's.
/// - A rename met an object that the endpoint had stored under a file being written, or the rename itself had stored the file and then the
///   endpoint replaced it.
/// - A file that was deleted through the endpoint stored its bytes.
/// - A file that lost a conflict while it was being written was renamed.
/// - A file that had replaced another one could not be deleted right after its move, and was reported missing.
/// - Content kept after a conflict appeared twice, and an object with pending attributes was reported missing (later seeds).
/// - The history of the simulator was wrong in three seeds: it forgot a deletion in flight, or took equal bytes of other writers for different
///   bytes.
///
/// From 100,196 on:
/// - Objects of other clients with equal length and headers were taken for own ones.
/// - A replaced object was back after its move.
/// - The kernel was not notified of what a failed truncation had stored.
/// - The history was wrong in two seeds.
/// - A copy of an empty object onto itself replaced another client's object (the last seed).
///
/// From 1,014,847 on (`mended_last`):
/// - The kernel was not notified of what a truncation had stored, when another operation found that out (1,014,847), or of what a failed
///   truncation left behind and the last close dropped (1,042,821).
/// - A deletion through the endpoint removed the name of a file that got another name at that moment, and left its object (1,011,202).
/// - The write-back log replaced an object of another client whose length and headers equalled those of an earlier upload, because the bytes of
///   that upload were gone and proved nothing (1,016,434).
///
/// In all other seeds of `mended_last`, the simulator was wrong:
/// - Its kernel did not look up a name that it changes after the entry was dropped (1,011,640 and later, 7 seeds).
/// - A rename survived a power cut at once, and not after 50 ms (1,004,918, 1,032,762).
/// - Requests whose client disconnected were shown without a delay, and the target of a cancelled rename never showed nothing (1,013,315,
///   1,013,363, 1,014,657).
/// - Hints reported objects that a move was about to take from their key (1,012,343, 1,028,980).
/// - A name of a file that is not an object yet may hide an object, which the removal of the name leaves (1,018,572).
/// - The history missed that a sync or a read stores an open file, so that others may replace its content (1,021,129, 1,025,348, 1,027,180,
///   1,045,793).
/// - It missed that a write may apply to an object that was not noticed before (1,031,725, 1,034,268, 1,042,646).
/// - It missed that a file is removed between two objects of others (1,040,881).
/// - It missed that a sync of a large file meets no conflict (1,005,372).
/// - It missed that a file is open for a moment during its rename through the endpoint (1,028,286).
/// - It missed that a crash leaves a cancelled rename (1,028,080).
/// - It missed that the tag of a file written through the mount changes when it gives its name to a directory (1,030,634).
///
/// Later seeds (`mended_since`):
/// - A copy of unknown outcome was only compared with the object at the new name, although its own object had been set aside in `lost+found`
///   (1,013,719, 1,045,619).
/// - The history took two objects of equal bytes, of which one is a copy, for one object, so that two changes seemed to have succeeded with the
///   same condition (3,004,767, 3,005,988).
/// - A new file that lost a conflict kept its name while the disk was full, and its removal left the object that it hid (20,000,632).
/// - A directory was renamed and renamed back, and its new name was taken, while an object was being copied to it (1,043,478).
/// - With write-back, a refused rename deleted the copy that had replaced its target (40,012,007, 40,015,241).
/// - A hint failed because a program removed the directory above at that moment (40,011,202).
/// - The history missed that an object of another client at the first name of a file that was renamed twice cancels both renames (40,006,944).
/// - A file whose close failed was listed as it was before (60,008,407).
/// - A deletion left an object that a request of unknown outcome had stored at the old key of a move (60,001,962).
/// - The simulator looked for a name in a file (60,007,492).
/// - The history missed a deletion that was not noticed when the file was read (60,013,989).
/// - The endpoint served a synced file whose object another client had deleted (62,010,792).
/// - A listing showed an object that was renamed again meanwhile (63,001,512).
/// - With write-back, an object counted as the log's own although all bytes to compare were gone (63,014,410).
/// - The history missed what a conflict makes of an open file (62,006,969, 63,005,012, 63,014,026, 63,018,643).
/// - It missed that a new file hides what others store under its name (63,026,120, 63,032,796).
/// - A rename that a kill interrupted was not completed if the file had the name of a directory (65,004,740).
/// - The history missed a deletion during a close (65,010,236).
/// - An object of another client, which a move had brought to its key, kept the etag of the old key when the next move left it there
///   (65,000,827).
/// - If the store failed while the other client's object was being restored, the file kept the name although the bucket wins (66,003,353).
/// - With write-back, an object counted as a copy that was never sent (40,009,292).
/// - Writes that lost a conflict during another program's read were not reported to the writer (67,005,849).
/// - Nothing was uploaded any more after another client had replaced two objects that were being exchanged (67,052,611).
/// - The history missed that with write-back an object in the log is served until its upload yields (67,003,970), that a sync in deltas leaves
///   listings as they were (67,027,065, 67,034,507), that all empty objects have one etag by inode (67,011,883), that zeros stand for bytes that
///   are gone (670,520,169), and where a file goes that is open while the endpoint renames it (67,047,658, 67,079,313).
/// - Writes were lost while they were being stored for an S3 client that disconnected (68,003,724).
/// - A read under a new name got an object that was stored at the old name after the move (68,007,744).
/// - The history missed that another client may replace a streamed upload before it is in `lost+found` (72,025,258), took two bytes for unique
///   (72,030,460), and missed that an object is dropped whose source another client has replaced (79,113,279).
/// - Nothing was uploaded any more after another client had replaced the source of a copy over an earlier change (71,004,367).
/// - Zeros that stood for bytes which another client had deleted were stored under the file's name (75,001,147).
/// - Writes to an open file were lost because a directory had its name for a while (79,003,257).
/// - An object that had been put, and could not be looked at, outlived the removal of the file of its name (80,500,752).
/// - An object put into a directory that was being removed got into another directory, renamed to that name (79,112,362).
/// - An object put into a directory just before that was renamed was not shown, and the next rename of its file was refused (82,022,658, 82,057,756).
/// - A range was refused that an object had too few bytes for which was still to be deleted (82,027,646).
/// - The simulator missed that a read through another open handle can store a file (80,519,381), and kept attributes of inodes that a kernel
///   has dropped (80,548,630), and looked for a reader's file under the name before an S3 client's rename (84,002,565).
/// - The simulator did not know that a reader's file had another name since an S3 client had renamed it (80,016,966).
/// - The simulator reported as removed what a move was bringing (67,011,237), and renamed a directory in place of a file (67,043,123).
#[test]
fn dual_worlds_that_once_failed() {
    let mended_later = [
        2_000_062, 2_001_201, 2_004_172, 2_006_722, 2_006_793, 100_196, 101_232, 102_044, 103_038, 103_440,
        103_335, 103_921, 102_622,
    ];
    let mended_last = [
        1_014_847, 1_042_821, 1_011_202, 1_016_434, 1_011_640, 1_019_443, 1_022_416, 1_040_098, 1_054_088,
        1_056_651, 1_056_768, 1_059_433, 1_004_918, 1_032_762, 1_013_315, 1_013_363, 1_014_657, 1_012_343,
        1_028_980, 1_018_572, 1_005_372, 1_021_129, 1_025_348, 1_027_180, 1_028_286, 1_031_725, 1_034_268,
        1_040_881, 1_042_646, 1_045_793, 1_028_080, 1_030_634,
    ];
    let mended_since = [
        1_013_719, 1_045_619, 3_004_767, 3_005_988, 20_000_632, 1_043_478, 40_012_007, 40_015_241,
        40_011_202, 40_006_944, 60_008_407, 60_001_962, 60_007_492, 60_013_989, 61_013_037, 62_002_639,
        62_007_751, 62_006_969, 62_010_792, 63_001_512, 63_005_012, 63_014_026, 63_014_410, 63_018_643,
        63_025_970, 63_026_120, 63_031_854, 63_032_796, 65_004_740, 65_010_236, 65_000_827, 66_003_353,
        40_009_292, 67_005_849, 67_052_611, 67_003_970, 67_027_065, 67_034_507, 67_011_883, 67_047_658,
        67_079_313, 67_011_237, 67_043_123, 68_003_724, 68_007_744, 71_004_367, 72_025_258, 75_001_147,
        79_003_257, 79_112_362, 79_113_279, 80_016_966, 80_500_752, 80_519_381, 80_548_630, 82_022_658,
        82_027_646, 82_057_756, 84_002_565,
    ];
    let first = [4964, 6318, 7970, 8725, 9096, 9868, 9966, 10161, 11520];
    let from_a_longer_seed = [670_520_169];
    let later = mended_since.into_iter().chain(from_a_longer_seed);
    for seed in first.into_iter().chain(mended_later).chain(mended_last).chain(later) {
        if let Err(failure) = sim::dual::world(seed) {
            panic!("{failure}");
        }
    }
}

/// The bugs that the first worlds found:
/// - The journal of moves recorded an arrival before the names with the object's new tag were durable.
/// - The mover took its own copy for another client's, or showed an outdated copy of an arrived object.
/// - A completed export marked a later change as exported.
/// - A file that was never stored was visible after a crash and gone at the next look.
/// - Two seeds were bugs of the simulator: a file with the name of a directory, and the state after a failed rename that a sync covers.
///
/// Later seeds:
/// - Renames met objects that earlier renames had left in the bucket, or a crash lost either the names or the journal of a rename (from
///   3,111,879 on).
/// - A hole at the end of a file was lost with its name (3,200,371).
/// - Damage of an uploaded change revived an older one (343).
/// - Attributes did not survive a kill with write-back (2224, 10,083).
/// - A power cut during a rename removed another name of the file (5,007,092, 5,007,126).
/// - A directory that was still to move lost its mode: the log continued with an etag that the names no longer had (796).
/// - Attributes were lost with a renamed directory, an upload under way, or an object that had moved or was moving, and copies of unknown
///   outcome came back as files (from 10,000,691 on).
/// - The marker of a replaced directory won over that of the directory which replaced it (10,000,458).
/// - An older deletion removed a file that had arrived, or hid it from its own removal (10,015,080, 10,066,729).
/// - A power cut undid the rename of a file whose object was not at its path (10,028,059).
/// - An upload that was made twice was unknown after the close (10,062,876).
/// - An object was not recognized after a crash (from 20,032,793 on): the etag of its copy was not synced, was translated once more, or was not
///   that of the object at the old key (20,032,793, 20,045,787, 20,047,251, 20,087,470); its headers were older than the attributes
///   (20,037,992); the bytes or the record of the write-back log that identified it were gone (20,024,150, 20,056,352, 20,064,454, 20,094,166,
///   20,096,783).
/// - A listing showed an etag from before an upload ended (20,029,897).
/// - A kill left a file under both names of a rename (30,031,062), and the old name was shown until its object was deleted (50,012,943).
/// - A rename failed after it was committed (30,078,132).
/// - An export copied the object of a file that was being exchanged onto itself (30,043,702).
/// - A directory that was removed before a power cut was made again (50,045,358).
/// - The simulator made bytes unreadable that a wrong byte had made necessary (20,033,518), collected garbage of a file that was being exported
///   (20,020,886), expected the mode of a file that was never stored (30,012,738), and waited for a machine that had crashed during a shutdown
///   (50,044,360).
/// - A power cut during the first upload of a file removed its other links (52,062,529, 52,076,886).
/// - A symbolic link kept the attributes of an earlier upload (55,018,165).
/// - A deletion that a crash interrupted left the object that a rename was to replace (55,080,388).
/// - A half-moved object was shown by the etag that its upload had given it (55,080,468, 55,115,470).
/// - A part of a file took all memory for uploads (55,152,767).
/// - The simulator did not wait until a failed rename showed after a power cut what it had left in the bucket (58,024,635).
/// - The export of an earlier mode of a directory ended after that of a later one (59,000,878).
/// - A power cut kept the new name of a directory, but not the journal of renames, and took the other names of the files below (59,020,826).
/// - A marker was copied to its new key once more, and its attributes were taken for another client's (59,119,830).
/// - The model expected that a close syncs names although a failed fsync had synced them (59,039,153).
/// - A file was not found, and not deleted, at a key where another object was still to be deleted (60,032,177).
/// - The mode of a file was that of its last upload after a kill, although a later one waited to be exported (64,002,055; 64,073,750; 65,006,365; 66,012,911).
/// - A rename was lost with its copy, and the object at the old name was deleted (65,014,060); an object that two lost renames had replaced was
///   not deleted (67,006,549).
/// - The new etag of a moved object was reported for a new file at its former name (65,075,451).
/// - Synced writes were lost when an earlier upload was found at the path of their file (65,094,575).
/// - An object was given an etag that an earlier object had had at the same key (65,138,549), or shown by the etag from before it was copied
///   although the names had the later one (69,017,546).
/// - A file with deltas got the etag of an upload whose answer was lost, and kept its own length (70,050,546).
/// - A damaged length in the write-back log hid the records behind it (73,172,698).
/// - A directory whose rename was lost stayed visible, empty, until the next listing (73,105,599).
/// - A copy that had been made before two renames and a kill was shown by its own etag, which the names did not have (73,203,690).
/// - A file came back that had been deleted while the answer to a copy of it onto itself was lost (73,210,902).
/// - A file whose removal had failed was taken for another client's (73,229,713).
/// - A deletion that was carried out twice put a file's bytes into `lost+found` (74,540,543).
/// - A directory kept its mode when its marker was another one after a crash (74,695,716).
/// - A file that replaced one which might be at several keys lost its name, or the replaced object stayed (74,730,314, 74,651,170).
/// - A file stayed visible at the key that its rename had left, by the version before a loss of power (74,768,256).
/// - A rename back to a key was lost between the journal and the names, and the file came back as a new one (74,528,236, 76,215,528).
/// - The marker of a directory that was replaced while it moved was taken for that of its replacement (74,522,575).
/// - The model expected that a close syncs names after an op that had changed nothing (76,177,594).
/// - A file vanished because only one of two keys was tried at which its object might be (63,004,751).
#[test]
fn files_worlds_that_once_failed() {
    let seeds = [
        2_002_074, 2_002_332, 2_002_407, 2_010_510, 2_010_891, 2_012_241, 2_018_075, 3_111_879, 3_200_371,
        3_202_281, 3_205_841, 3_207_099, 3_210_235, 3_214_579, 3_218_317, 3_304_455, 3_314_686, 3_421_932,
        3_424_079, 3_428_280, 343, 796, 2224, 10_083, 5_007_092, 5_007_126, 10_000_691, 10_001_019,
        10_002_193, 10_046_567, 10_063_043, 10_072_445, 10_088_612, 10_088_879, 10_019_070, 10_000_458,
        10_015_080, 10_028_059, 10_062_876, 10_066_729, 20_032_793, 20_045_787, 20_047_251, 20_087_470,
        20_037_992, 20_024_150, 20_056_352, 20_064_454, 20_094_166, 20_096_783, 20_029_897, 30_031_062,
        30_078_132, 30_043_702, 20_033_518, 20_020_886, 30_012_738, 50_012_943, 50_045_358, 50_044_360,
        50_027_043, 30_039_084, 30_094_937, 51_013_104, 51_028_334, 51_028_513, 51_036_898, 51_038_835,
        51_047_062, 52_000_341, 52_001_004, 52_085_877, 54_010_385, 52_062_529, 52_076_886, 55_018_165,
        56_000_016, 56_000_440, 56_009_309, 55_080_388, 55_080_468, 55_115_470, 55_135_774, 55_152_767,
        58_024_635, 59_000_878, 59_020_826, 59_119_830, 59_039_153, 60_032_177, 63_004_751, 64_002_055,
        64_073_750, 65_006_365, 65_014_060, 65_075_451, 65_094_575, 65_138_549, 65_155_545, 66_012_911,
        67_006_549, 69_017_546, 70_050_546, 73_105_599, 73_172_698, 73_203_690, 73_210_902, 73_229_713,
        74_522_575, 74_528_236, 74_540_543, 74_651_170, 74_695_716, 74_730_314, 74_768_256, 76_177_594,
        76_215_528,
    ];
    for seed in seeds {
        if let Err(failure) = sim::files::world(seed) {
            panic!("{failure}");
        }
    }
}

/// In the first two worlds, a commit was applied, its machine lost the database, and the commit waited for a strict mount without end (S658). In
/// 65,010,194, a link failed that had been made, because another machine had removed the file by then. In 65,010,067, the simulator compared
/// bytes after a loss of commits, which one mount still had in its cache.
/// In 66,012,399, a mount did not acknowledge all commits that it was told of, and took no lock any more.
/// In 75,003,549, the database went away while an open file read the newest content, and the next lock showed the earlier one.
/// In 76,012,151, the database lost a release, and nobody could take the lock any more.
#[test]
fn sessions_worlds_that_once_failed() {
    for seed in [0, 14, 65_010_194, 65_010_067, 66_012_399, 75_003_549, 76_012_151] {
        if let Err(failure) = sim::sessions::world(seed) {
            panic!("{failure}");
        }
    }
}

/// Runs worlds from seed 0. Each required event must happen at least once per thirty worlds.
fn check_worlds(world: fn(u64) -> Result<Report, Failure>, seeds_default: u64, required: &[&str]) {
    let (mut all, seeds) = (Report::default(), seeds(seeds_default));
    for seed in 0..seeds {
        match world(seed) {
            Ok(report) => all.add(&report),
            Err(failure) => panic!("{failure}"),
        }
    }
    for what in required {
        assert!(all.of(what) >= seeds / 30, "{what}: {all}");
    }
}

/// Returns the number of worlds: `TENON_SEEDS`, or the default.
#[expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "the reader is a person at a shell")]
fn seeds(default: u64) -> u64 {
    std::env::var("TENON_SEEDS").map_or(default, |count| count.parse().unwrap())
}

#[test]
fn one_seed_is_one_world() {
    for (name, world) in WORLDS {
        assert_eq!(world(42), world(42), "{name}");
    }
}

#[test]
fn one_seed_has_one_trace() {
    for seed in 0..40 {
        assert_eq!(sim::files::trace(seed), sim::files::trace(seed), "seed {seed}");
        assert_eq!(sim::dual::trace(seed), sim::dual::trace(seed), "seed {seed}");
        assert_eq!(sim::sessions::trace(seed), sim::sessions::trace(seed), "seed {seed}");
    }
}

#[test]
fn batch_worlds_match_their_models() {
    let events = [
        "batches",
        "writes",
        "kills",
        "bulk merges",
        "replayed merges",
        "refused ops",
        "rescues",
        "failed merges",
        "lost replies and crashes",
        "merges found done",
        "batches beyond a quota",
        "discarded batches",
        "unused objects",
    ];
    check_worlds(sim::batches::world, 300, &events);
}
