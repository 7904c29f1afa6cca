//! Worlds by the hundred; `cargo run --release -p sim` lives through thousands in seconds. `TENON_SEEDS` says how many.

use sim::{Failure, Report, WORLDS};

/// Also the proof that the faults happen: a simulator that never crashes proves nothing.
#[test]
fn namespace_worlds_match_their_models() {
    let events =
        ["ops", "ops in vain", "crashes", "lost replies", "lost commits", "refused commits", "checkpoints"];
    check_worlds(sim::namespace::world, 400, &events);
}

#[test]
fn files_worlds_match_their_models() {
    let events =
        ["ops", "refusals", "failures", "doubts", "kills", "power cuts", "orderly ends", "rotten logs"];
    check_worlds(sim::files::world, 200, &events);
}

#[test]
fn dual_worlds_match_their_history() {
    let events = [
        "files read",
        "files stored",
        "files that lost to the bucket",
        "renames",
        "objects read",
        "changes of objects",
        "conditions that did not hold",
        "listings",
        "hints",
        "mounts that store what is being written",
        "kills",
        "power cuts",
        "orderly ends",
        "rotten logs",
    ];
    check_worlds(sim::dual::world, 400, &events);
}

#[test]
fn drive_worlds_match_their_models() {
    let events = [
        "ops",
        "looks",
        "refusals",
        "reads",
        "futures dropped",
        "kills",
        "power cuts",
        "orderly ends",
        "rots",
        "worlds with reads of unreadable sectors",
        "worlds with reads that failed once",
        "worlds with reads of flipped bits",
        "worlds with sectors that a power cut made unreadable",
        "tables of the index with unreadable blocks",
    ];
    check_worlds(sim::drive::world, 30, &events);
}

/// A drive of 16 zones was full; the log took the zones that the index needed for a checkpoint, so that no checkpoint could be made, no zone
/// came free, and a deletion was refused. Many checkpoints of next to nothing made as many tables of
/// a row each, and used up what was left for deletions. What zones have beside the bytes of objects was taken for dead, and cleaned
/// without end.
#[test]
fn drive_worlds_that_once_failed() {
    for seed in [35, 80, 706_743, 1_029_280, 2_005_644] {
        if let Err(failure) = sim::drive::world(seed) {
            panic!("{failure}");
        }
    }
}

#[test]
fn array_worlds_match_their_models() {
    let events = [
        "ops",
        "looks",
        "power cuts",
        "openings without some",
        "devices that fail",
        "rots",
        "rots that were mended",
        "rebuilds",
        "rebuilds cut short",
        "scrubs while clients work",
        "rebuilds while clients work",
        "unreadable sectors that were mended",
        "worlds with reads of unreadable sectors",
        "worlds with reads that failed once",
        "worlds with reads of flipped bits",
        "worlds with sectors that a power cut made unreadable",
    ];
    check_worlds(sim::drive::world_of_arrays, 90, &events);
}

/// A member was rebuilt into the place of another, and lost what it had; the power went while a mirror was opened, and one half was used
/// alone then: both were refused together.
#[test]
fn array_worlds_that_once_failed() {
    for seed in [66, 154, 166, 280, 340, 300_079] {
        if let Err(failure) = sim::drive::world_of_arrays(seed) {
            panic!("{failure}");
        }
    }
}

#[test]
fn pool_worlds_match_their_models() {
    let events = [
        "ops",
        "looks",
        "refusals",
        "reads",
        "kills",
        "power cuts",
        "orderly ends",
        "failures of a device",
        "drives that joined",
        "openings without a drive",
        "rots",
        "worlds with reads of unreadable sectors",
        "worlds with reads that failed once",
        "worlds with reads of flipped bits",
        "worlds with sectors that a power cut made unreadable",
    ];
    check_worlds(sim::drive::world_of_pools, 30, &events);
}

/// An empty file made by inode is a name that is synced a moment later; what a failed close had stored was taken for somebody
/// else's; a rename met what the endpoint had stored under a file being written, or had stored the file on its way, and then the
/// endpoint stored another in its place; a file that was deleted through the endpoint stores nothing; one that lost while it was
/// written was renamed; one that had replaced another could not be deleted where it had just arrived, and was said to be gone.
/// Later: what was kept of a conflict arrived twice, and an object under new attributes that waited was said to be gone. In
/// three the history was wrong: it forgot a deletion under way, or took others' equal bytes for other bytes.
#[test]
fn dual_worlds_that_once_failed() {
    let mended_later = [2_000_062, 2_001_201, 2_004_172, 2_006_722, 2_006_793];
    for seed in [4964, 6318, 7970, 8725, 9096, 9868, 9966, 10161, 11520].into_iter().chain(mended_later) {
        if let Err(failure) = sim::dual::world(seed) {
            panic!("{failure}");
        }
    }
}

/// These worlds failed because the journal of moves said that an object had arrived before the names that knew its new tag
/// were durable; the mover took a copy of its own for another client's, or showed an older copy of what had arrived; an
/// export that had ended said that a later change was exported; a file that was never stored was seen after a crash, and
/// gone at the next look. Two were mistakes of the world: a file beside a directory, and what is synced after a rename failed.
/// In those from 3,111,879 on, renames met what earlier renames had left in the bucket, or a crash took either the names or
/// the journal of a rename; in 3,200,371 a hole at the end of a file went with its name.
#[test]
fn files_worlds_that_once_failed() {
    let seeds = [
        2_002_074, 2_002_332, 2_002_407, 2_010_510, 2_010_891, 2_012_241, 2_018_075, 3_111_879, 3_200_371,
        3_202_281, 3_205_841, 3_207_099, 3_210_235, 3_214_579, 3_218_317, 3_304_455, 3_314_686, 3_421_932,
        3_424_079, 3_428_280,
    ];
    for seed in seeds {
        if let Err(failure) = sim::files::world(seed) {
            panic!("{failure}");
        }
    }
}

/// Each must have happened once in thirty worlds, at least.
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

/// More for a long night.
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
    }
}
