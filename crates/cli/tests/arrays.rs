//! An object drive on several files: devices are removed, come back, are replaced, and are damaged.

use crate::drives::{COMPARE, STORE};
use crate::fixture::{Home, Output};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

const EACH: u64 = 24 << 20;

impl Home {
    fn names(&self, which: impl IntoIterator<Item = usize>) -> String {
        let names: Vec<String> = which.into_iter().map(|n| self.text(&format!("dev{n}"))).collect();
        names.join(",")
    }

    /// Makes a drive on six files, two of which may be lost.
    fn with_array(self) -> Self {
        let words = ["drive", "format", "dev0", "dev1", "dev2", "dev3", "dev4", "dev5"];
        let output = self.ok(words.into_iter().chain(["--data", "4", "--parity", "2", "--size", "24MiB"]));
        assert!(output.contains("serve it with `tenon serve drive:///"), "{output}");
        self
    }

    /// Serves the drive while a program runs.
    fn with_served(&self, which: impl IntoIterator<Item = usize>, program: &str) {
        let serving = self.serve(&format!("drive://{}", self.names(which)), &[]);
        self.boto3(&serving.1, program);
    }

    fn state_of(&self, which: impl IntoIterator<Item = usize>) -> Vec<String> {
        let info: serde_json::Value =
            serde_json::from_str(&self.ok(["drive", "info", &self.names(which), "--json"])).unwrap();
        let members = info["array"]["members"].as_array().unwrap();
        members.iter().map(|member| member["state"].as_str().unwrap().to_owned()).collect()
    }

    fn scrubbed(&self, which: impl IntoIterator<Item = usize>) -> Output {
        self.tenon(["drive", "scrub", &self.names(which)])
    }
}

const LATER: &str = "s3.put_object(Bucket='photos', Key='later', Body=b'abcdefgh' * 300_000)";
const COMPARE_LATER: &str =
    "assert s3.get_object(Bucket='photos', Key='later')['Body'].read() == b'abcdefgh' * 300_000";

fn new_file(path: &Path) {
    fs::File::create_new(path).unwrap().set_len(EACH).unwrap();
}

#[test]
fn two_of_six_devices_go_and_others_come() {
    let home = Home::new().with_users().with_array();
    home.with_served(0..6, STORE);
    fs::remove_file(home.path("dev1")).unwrap();
    fs::remove_file(home.path("dev4")).unwrap();
    // The devices may be named in any order, and missing ones too.
    home.with_served([5, 4, 3, 2, 1, 0], COMPARE);
    home.with_served([3, 0, 5, 2], LATER);
    assert_eq!(home.state_of(0..6)[3..], ["in sync", "missing", "in sync"]);

    new_file(&home.path("dev6"));
    let output = home.ok(["drive", "rebuild", &home.names([0, 2, 3, 5]), "dev6"]);
    assert!(output.contains("is now member 1 of the drive"), "{output}");
    assert_eq!(home.state_of([0, 2, 3, 5, 6]).iter().filter(|state| *state == "in sync").count(), 5);
    fs::remove_file(home.path("dev0")).unwrap();
    home.with_served([2, 3, 5, 6], COMPARE_LATER);
    home.ok(["mount", &format!("drive://{}", home.names([2, 3, 5, 6])), "mnt"]);
    assert_eq!(fs::read(home.mnt().join("photos/small")).unwrap(), b"kept");
    home.ok(["umount", "mnt"]);
    let scrubbed = home.scrubbed([2, 3, 5, 6]);
    assert!(scrubbed.code == 0 && scrubbed.out.ends_with(" 0 damaged\n"), "{scrubbed:?}");
    assert!(home.ok(["drive", "check", &home.names([2, 3, 5, 6])]).ends_with(" 0 problems\n"));

    fs::remove_file(home.path("dev2")).unwrap();
    let refused = home.refused(["drive", "info", &home.names([0, 2, 3, 5, 6])]);
    assert!(
        refused.contains("4 of 6 are needed, but 3 are present and in sync; missing: member 0, 2, 4"),
        "{refused}"
    );
    assert!(refused.contains("dev2: No such file"), "{refused}");
}

#[test]
fn a_device_that_was_missing_is_stale_until_it_is_rebuilt() {
    let home = Home::new().with_users().with_array();
    fs::rename(home.path("dev2"), home.path("away")).unwrap();
    home.with_served(0..6, STORE);
    fs::rename(home.path("away"), home.path("dev2")).unwrap();
    assert_eq!(home.state_of(0..6)[2], "stale");
    assert!(home.ok(["drive", "info", &home.names(0..6)]).contains("2 stale: /"));
    home.ok(["drive", "rebuild", &home.names(0..6), "dev2"]);
    assert!(home.state_of(0..6).iter().all(|state| state == "in sync"));
    let refused = home.refused(["drive", "rebuild", &home.names(0..6), "dev2"]);
    assert!(refused.contains("there is nothing to rebuild"), "{refused}");
    home.with_served([2, 1, 0, 3], COMPARE);
}

#[test]
fn a_scrub_repairs_damage_of_one_device() {
    let home = Home::new().with_users().with_array();
    home.with_served(0..6, STORE);
    let device = OpenOptions::new().write(true).open(home.path("dev3")).unwrap();
    device.write_all_at(&vec![0x55; 4 << 20], 1 << 20).unwrap();
    device.write_all_at(&vec![0x55; 4 << 20], EACH - (4 << 20)).unwrap();
    let scrubbed = home.scrubbed(0..6);
    assert!(scrubbed.code == 0 && scrubbed.out.contains("rewritten from the other devices"), "{scrubbed:?}");
    assert_eq!(home.scrubbed(0..6).out.lines().count(), 1, "there is nothing left to repair");
    fs::remove_file(home.path("dev0")).unwrap();
    fs::remove_file(home.path("dev1")).unwrap();
    home.with_served(0..6, COMPARE);
}

/// Overwrites two ranges of dev3, as another program might.
fn damage_one(home: &Home) {
    let device = OpenOptions::new().write(true).open(home.path("dev3")).unwrap();
    device.write_all_at(&vec![0x55; 4 << 20], 1 << 20).unwrap();
    device.write_all_at(&vec![0x55; 4 << 20], EACH - (4 << 20)).unwrap();
    device.sync_all().unwrap();
}

const WORK: &str = "
for n in range(60):
    body = b'%d' % n * 30_000
    s3.put_object(Bucket='photos', Key=f'work/{n % 7}', Body=body)
    assert s3.get_object(Bucket='photos', Key=f'work/{n % 7}')['Body'].read() == body
for n in range(7):
    s3.delete_object(Bucket='photos', Key=f'work/{n}')
";

/// Regression: a scrub was refused while the drive was served.
#[test]
fn s531_a_served_array_is_scrubbed_while_clients_read_and_write() {
    let home = Home::new().with_users().with_array();
    let volume = format!("drive://{}", home.names(0..6));
    let serving = home.serve(&volume, &[]);
    home.boto3(&serving.1, STORE);
    damage_one(&home);
    std::thread::scope(|scope| {
        let working = scope.spawn(|| home.boto3(&serving.1, WORK));
        let scrubbed = home.tenon(["drive", "scrub", &home.names(0..6), "--rate", "1GiB"]);
        assert!(
            scrubbed.code == 0 && scrubbed.out.contains("rewritten from the other devices"),
            "{scrubbed:?}"
        );
        assert!(scrubbed.out.ends_with(" 0 damaged\n"), "{scrubbed:?}");
        working.join().unwrap();
    });
    home.boto3(&serving.1, COMPARE);
    assert_eq!(home.scrubbed(0..6).out.lines().count(), 1, "there is nothing left to repair");
    drop(serving);
    fs::remove_file(home.path("dev0")).unwrap();
    fs::remove_file(home.path("dev1")).unwrap();
    home.with_served(0..6, COMPARE);
}

/// Regression: a drive that lost a device could only be rebuilt out of service.
#[test]
fn s532_a_device_of_a_served_array_is_rebuilt_while_clients_read_and_write() {
    let home = Home::new().with_users().with_array();
    fs::remove_file(home.path("dev1")).unwrap();
    let serving = home.serve(&format!("drive://{}", home.names(0..6)), &[]);
    home.boto3(&serving.1, STORE);
    new_file(&home.path("dev6"));
    fs::write(home.path("precious"), vec![7; EACH as usize]).unwrap();
    let refused = home.refused(["drive", "rebuild", &home.names(0..6), "precious"]);
    assert!(refused.contains("--force"), "{refused}");
    std::thread::scope(|scope| {
        let working = scope.spawn(|| home.boto3(&serving.1, WORK));
        let output = home.ok(["drive", "rebuild", &home.names(0..6), "dev6", "--rate", "1GiB"]);
        assert!(output.contains(" 0 damaged") && output.contains("is now member 1 of the drive"), "{output}");
        working.join().unwrap();
    });
    let refused = home.refused(["drive", "rebuild", &home.names(0..6), "dev6"]);
    assert!(refused.contains("there is nothing to rebuild"), "{refused}");
    home.boto3(&serving.1, LATER);
    drop(serving);
    fs::remove_file(home.path("dev0")).unwrap();
    fs::remove_file(home.path("dev2")).unwrap();
    home.with_served([3, 4, 5, 6], COMPARE_LATER);
}

/// Regression: a rebuild computed the new device from a damaged one, though a second parity device could have shown
/// the damage.
#[test]
fn a_rebuild_scrubs_first() {
    let home = Home::new().with_users().with_array();
    home.with_served(0..6, STORE);
    damage_one(&home);
    fs::remove_file(home.path("dev1")).unwrap();
    new_file(&home.path("dev6"));
    let output = home.ok(["drive", "rebuild", &home.names([0, 2, 3, 4, 5]), "dev6"]);
    assert!(
        output.contains("rewritten from the other devices") && output.contains("is now member 1"),
        "{output}"
    );
    fs::remove_file(home.path("dev0")).unwrap();
    fs::remove_file(home.path("dev2")).unwrap();
    home.with_served([3, 4, 5, 6], COMPARE);
}

/// Regression: commands other than `format` took several devices only as absolute paths in one joined word.
#[test]
fn s533_every_command_takes_the_devices_as_format_does() {
    let home = Home::new().with_users().with_array();
    home.with_served(0..6, STORE);
    let words = ["dev0", "dev1", "dev2", "dev3", "dev4", "dev5"];
    let joined = words.join(",");
    for named in [&words[..], &[joined.as_str()], &[home.names(0..6).as_str()]] {
        let run = |command: &str, more: &[&str]| home.ok([&["drive", command][..], named, more].concat());
        assert!(run("info", &[]).contains("4 of data, 2 of parity"));
        assert!(run("map", &[]).contains("a zone of"));
        assert!(run("check", &[]).ends_with(" 0 problems\n"));
        assert!(run("scrub", &[]).ends_with(" 0 damaged\n"));
        assert!(run("export", &["out"]).contains("0 left out"));
    }
    assert_eq!(fs::read(home.path("out/photos/small")).unwrap(), b"kept");
    fs::remove_file(home.path("dev5")).unwrap();
    new_file(&home.path("dev6"));
    let output = home.ok(["drive", "rebuild", "dev0", "dev1", "dev2", "dev3", "dev4", "dev6"]);
    assert!(output.contains("is now member 5 of the drive"), "{output}");
}

#[test]
fn impossible_arrays_are_refused() {
    let home = Home::new();
    let refused = |words: &[&str]| home.refused([&["drive", "format"][..], words].concat());
    assert!(refused(&["a", "b", "--size", "24MiB"]).contains("--parity"));
    assert!(refused(&["a", "b", "--parity", "2", "--size", "24MiB"]).contains("leaves no device"));
    assert!(refused(&["a", "b", "--data", "3", "--parity", "1"]).contains("add up to the 2 devices"));
    assert!(refused(&["a", "--parity", "1", "--size", "24MiB"]).contains("one device"));
    assert!(refused(&["a", "a", "--parity", "1", "--size", "24MiB"]).contains("named twice"));
    new_file(&home.path("one"));
    new_file(&home.path("other"));
    let refused = home.refused(["drive", "info", &format!("{},{}", home.text("one"), home.text("other"))]);
    assert!(refused.contains("none of the devices belongs to an array"), "{refused}");
    home.ok(["drive", "format", "one", "other", "--parity", "1"]);
    let refused = home.refused(["drive", "format", "one"]);
    assert!(refused.contains("--force"), "{refused}");
    fs::write(home.path("precious"), vec![7; EACH as usize]).unwrap();
    let refused = home.refused(["drive", "rebuild", &home.text("one"), "precious"]);
    assert!(refused.contains("--force"), "{refused}");
}

/// Regression: the console and the process reported a stale device as missing.
#[test]
fn a_stale_device_is_stale_in_the_console_until_it_is_rebuilt() {
    let home = Home::new().with_users().with_array();
    fs::rename(home.path("dev2"), home.path("away")).unwrap();
    home.with_served(0..6, STORE);
    fs::rename(home.path("away"), home.path("dev2")).unwrap();
    let volume = format!("drive://{}", home.names(0..6));
    let serving = home.serve(&volume, &["--console", "127.0.0.1:0"]);
    let status: serde_json::Value = serde_json::from_str(&home.ok(["status", &volume, "--json"])).unwrap();
    let url = status["console"].as_str().unwrap();
    let browser = crate::console::sign_in(url, crate::endpoint::KEY);
    let states = || {
        browser.open(&format!("{url}/drives"));
        let script =
            "return [...document.querySelectorAll('main table .badge')].map(cell => cell.innerText).join()";
        browser.run(script, &[]).as_str().unwrap().to_owned()
    };
    assert_eq!(states(), "in sync,in sync,stale,in sync,in sync,in sync");
    home.ok(["drive", "rebuild", &home.names(0..6), "dev2"]);
    assert_eq!(states(), ["in sync"; 6].join(","));
    drop(serving);
}

/// Regression: a device that is stale, or that may be, was used without a warning.
#[test]
fn s581_the_log_names_the_members_without_which_an_array_is_opened() {
    let home = Home::new().with_users();
    home.ok(["drive", "format", "dev0", "dev1", "--data", "1", "--parity", "1", "--size", "24MiB"]);
    let log_of = |which: &[usize]| {
        let log = home.path("serve.log");
        let volume = format!("drive://{}", home.names(which.iter().copied()));
        drop(home.serve(&volume, &["--log-file", log.to_str().unwrap()]));
        let text = fs::read_to_string(&log).unwrap_or_default();
        fs::remove_file(&log).unwrap();
        text
    };
    assert!(!log_of(&[0, 1]).contains("WARN"));
    let half = log_of(&[1]);
    assert!(
        half.contains("without a missing member, whose contents may be newer") && half.contains("member=0"),
        "{half}"
    );
    let again = log_of(&[1]);
    assert!(again.contains("without a missing member: replace it with 'tenon drive rebuild'"), "{again}");
    let both = log_of(&[0, 1]);
    assert!(
        both.contains("missed writes") && both.contains("dev0") && both.contains("tenon drive rebuild"),
        "{both}"
    );
    let stale = log_of(&[0]);
    assert!(stale.contains("may be newer") && stale.contains("member=1"), "{stale}");
}
