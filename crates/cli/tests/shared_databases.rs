//! Two mounts of one volume whose metadata is in a database, as two machines would have them.

use crate::databases::{Setup, StartDatabase, database_tests};
use crate::fixture::eventually;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;

database_tests! {
    s650_opening_a_file_shows_what_another_machine_closed
    s650_appends_by_turns_are_all_there
    s651_changes_of_names_reach_other_machines
    s652_machines_that_change_one_directory_do_not_disturb_each_other
    s653_removing_a_file_ends_it_for_other_machines
    s654_a_machine_that_dies_stops_no_other_one
}

const LAYOUTS: [(&str, &[&str]); 2] =
    [("whole", &["--naming", "inode"]), ("chunked", &["--mapping", "chunked", "--chunk-size", "1MiB"])];

/// Mounts a volume as two machines.
fn mount_twice(setup: &Setup) -> [PathBuf; 2] {
    let there = setup.home.path("there");
    fs::create_dir_all(&there).unwrap();
    let here = setup.mount("one");
    setup.home.ok(["mount", &setup.url, "there", "--state-dir", "two"]);
    [here, there]
}

fn unmount_both(setup: &Setup) {
    setup.home.ok(["fsck", "mnt"]);
    setup.home.ok(["umount", "mnt"]);
    setup.home.ok(["umount", "there"]);
}

fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// An open after a close on the other machine sees all of it, without waiting.
fn s650_opening_a_file_shows_what_another_machine_closed(database: StartDatabase) {
    for (name, flags) in LAYOUTS {
        let setup = Setup::new(database, &format!("shared-open-{name}"), flags);
        let mounts = mount_twice(&setup);
        let mut expected = String::new();
        for round in 0..40 {
            let (writer, reader) = (&mounts[round % 2], &mounts[(round + 1) % 2]);
            let line = format!("line {round}\n");
            append(&writer.join("log"), &line);
            expected += &line;
            assert_eq!(fs::read_to_string(reader.join("log")).unwrap(), expected, "{name}, round {round}");
            fs::write(writer.join("replaced"), &expected).unwrap();
            assert_eq!(fs::read_to_string(reader.join("replaced")).unwrap(), expected);
            // Shorter than before.
            fs::write(reader.join("replaced"), &line).unwrap();
            assert_eq!(fs::read_to_string(writer.join("replaced")).unwrap(), line);
        }
        unmount_both(&setup);
    }
}

/// Regression: a machine that had closed a file stored its parts anew as one object. If another machine had appended
/// meanwhile, that was lost; and an open after such a close could read, and append to, an older content.
fn s650_appends_by_turns_are_all_there(database: StartDatabase) {
    let setup = Setup::new(database, "shared-appends", &["--naming", "inode"]);
    let mounts = mount_twice(&setup);
    let mut expected = String::new();
    for round in 0..200 {
        let (writer, reader) = (&mounts[round % 2], &mounts[(round + 1) % 2]);
        let line = format!("{round};");
        append(&writer.join("log"), &line);
        expected += &line;
        assert_eq!(fs::read_to_string(reader.join("log")).unwrap(), expected, "round {round}");
    }
    unmount_both(&setup);
}

fn s651_changes_of_names_reach_other_machines(database: StartDatabase) {
    let setup = Setup::new(database, "shared-names", &["--naming", "inode"]);
    let [here, there] = mount_twice(&setup);
    fs::create_dir(here.join("dir")).unwrap();
    fs::write(here.join("dir/file"), "text").unwrap();
    assert_eq!(names(&there.join("dir")), BTreeSet::from(["file".to_owned()]));
    let nlink = |path: &Path| fs::metadata(path).map(|found| found.nlink()).ok();
    assert_eq!(nlink(&there.join("dir/file")), Some(1));

    fs::hard_link(here.join("dir/file"), here.join("second")).unwrap();
    eventually("the link is counted", || nlink(&there.join("dir/file")) == Some(2));
    assert_eq!(
        fs::metadata(there.join("second")).unwrap().ino(),
        fs::metadata(there.join("dir/file")).unwrap().ino()
    );
    fs::rename(here.join("dir"), here.join("moved")).unwrap();
    eventually("the directory has its new name", || {
        !there.join("dir").exists() && there.join("moved/file").exists()
    });
    fs::set_permissions(here.join("second"), fs::Permissions::from_mode(0o640)).unwrap();
    eventually("the mode changes", || {
        fs::metadata(there.join("second")).unwrap().permissions().mode() & 0o777 == 0o640
    });
    fs::remove_file(here.join("second")).unwrap();
    eventually("a name is gone", || {
        !there.join("second").exists() && nlink(&there.join("moved/file")) == Some(1)
    });
    // A name that was missing, and was looked up, appears.
    assert!(!there.join("new").exists());
    fs::write(here.join("new"), "new").unwrap();
    eventually("a new name is found", || there.join("new").exists() && names(&there).contains("new"));

    let held = File::open(there.join("new")).unwrap();
    append(&here.join("new"), " and longer");
    eventually("an open file shows what was appended", || {
        let mut text = String::new();
        let mut bytes = [0; 64];
        let length = held.read_at(&mut bytes, 0).unwrap();
        text.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
        text == "new and longer"
    });
    drop(held);
    unmount_both(&setup);
}

/// Both machines change one directory at the same time: each creation has one winner, and nothing is lost.
fn s652_machines_that_change_one_directory_do_not_disturb_each_other(database: StartDatabase) {
    let setup = Setup::new(database, "shared-directory", &["--naming", "inode"]);
    let mounts = mount_twice(&setup);
    fs::create_dir(mounts[0].join("dir")).unwrap();
    let won: usize = thread::scope(|scope| {
        let machines: Vec<_> = mounts
            .iter()
            .enumerate()
            .map(|(machine, mnt)| {
                scope.spawn(move || (0..60).filter(|round| work(mnt, machine, *round)).count())
            })
            .collect();
        machines.into_iter().map(|machine| machine.join().unwrap()).sum()
    });
    assert_eq!(won, 60, "each file was created exclusively by one machine");
    for mnt in &mounts {
        eventually("both show the same names", || names(&mnt.join("dir")).len() == 60 + 2 * 60);
        for machine in 0..2 {
            for round in 0..60 {
                let text = fs::read_to_string(mnt.join(format!("dir/moved-{machine}-{round}"))).unwrap();
                assert_eq!(text, format!("{machine} {round}"));
            }
        }
    }
    unmount_both(&setup);
}

/// Creates, renames and removes files. Returns whether this machine created the contended file of the round.
fn work(mnt: &Path, machine: usize, round: usize) -> bool {
    let dir = mnt.join("dir");
    let (own, moved) =
        (dir.join(format!("own-{machine}-{round}")), dir.join(format!("moved-{machine}-{round}")));
    fs::write(&own, format!("{machine} {round}")).unwrap();
    fs::rename(&own, &moved).unwrap();
    let removed = dir.join(format!("removed-{machine}"));
    fs::write(&removed, "x").unwrap();
    fs::remove_file(&removed).unwrap();
    match OpenOptions::new().write(true).create_new(true).open(dir.join(format!("contended-{round}"))) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            false
        }
    }
}

/// A file that another machine removes is gone for a program that has it open there, and the volume stays sound.
fn s653_removing_a_file_ends_it_for_other_machines(database: StartDatabase) {
    let setup = Setup::new(database, "shared-removal", &["--naming", "inode"]);
    let [here, there] = mount_twice(&setup);
    fs::write(here.join("file"), vec![7; 3 << 20]).unwrap();
    let mut held = File::open(there.join("file")).unwrap();
    let mut first = [0; 4096];
    held.read_exact(&mut first).unwrap();
    fs::remove_file(here.join("file")).unwrap();
    eventually("the name is gone", || !there.join("file").exists());
    let mut rest = Vec::new();
    match held.read_to_end(&mut rest) {
        Ok(_) => assert!(rest.iter().all(|byte| *byte == 7)),
        Err(error) => {
            assert!([Some(libc::ESTALE), Some(libc::EIO)].contains(&error.raw_os_error()), "{error}")
        }
    }
    drop(held);
    // A restart of one machine leaves what the other one has open without a name.
    fs::write(here.join("kept"), "kept").unwrap();
    let kept = File::open(here.join("kept")).unwrap();
    fs::remove_file(here.join("kept")).unwrap();
    setup.home.ok(["umount", "there"]);
    setup.home.ok(["mount", &setup.url, "there", "--state-dir", "two"]);
    let mut bytes = [0; 4];
    kept.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"kept");
    drop(kept);
    unmount_both(&setup);
}

/// A machine that dies does not stop the others, and takes the volume up again with its state directory.
fn s654_a_machine_that_dies_stops_no_other_one(database: StartDatabase) {
    let setup = Setup::new(database, "shared-death", &["--naming", "inode"]);
    let [here, there] = mount_twice(&setup);
    fs::write(here.join("closed"), "closed").unwrap();
    setup.home.signal(setup.home.pid(), rustix::process::Signal::KILL);
    fs::write(there.join("after"), "after").unwrap();
    assert_eq!(fs::read_to_string(there.join("closed")).unwrap(), "closed");
    setup.home.ok(["umount", "mnt"]);
    let here = setup.mount("one");
    assert_eq!(fs::read_to_string(here.join("after")).unwrap(), "after");
    unmount_both(&setup);
}
