//! Drives that are damaged, fail, are truncated or belong to another program, used by `tenon` and its endpoint: each
//! gives one line that says what to do, or an S3 error, and everything else continues. Bit flips in each region are
//! tests of `drive`.

use crate::fixture::{Home, capture, tenon};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;

const LEN_BYTES: u64 = 64 << 20;

impl Home {
    /// Runs `tests/clients/damage.py` with an empty drive.
    fn damage(&self, words: &[&str]) -> String {
        self.ok(["drive", "format", "drive.img", "--size", "64MiB"]);
        let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/damage.py");
        let mut client = self.command("/usr/bin/python3");
        client.arg(script).args([words[0], "drive.img"]).args(&words[1..]).env("TENON", tenon());
        let outcome = capture(&mut client);
        assert!(outcome.code == 0 && !outcome.err.contains("panicked"), "{outcome:?}");
        outcome.out
    }
}

#[test]
fn answers_of_a_damaged_drive_are_right_or_errors() {
    let output = Home::new().damage(&["flips", "18"]);
    assert!(output.contains("both superblocks | tenon: "), "{output}");
}

#[test]
fn device_errors_become_s3_errors_and_the_server_continues() {
    Home::new().damage(&["errors"]);
}

/// Devices that are not drives, or are too short, are refused with one line that says what to do, and are not changed.
#[test]
fn foreign_or_truncated_devices_are_refused_with_advice() {
    let home = Home::new().with_users();
    home.ok(["drive", "format", "drive.img", "--size", "64MiB"]);
    let image = fs::read(home.path("drive.img")).unwrap();
    let refused = |change: &dyn Fn(&fs::File)| {
        fs::write(home.path("bad.img"), &image).unwrap();
        let file = OpenOptions::new().write(true).open(home.path("bad.img")).unwrap();
        change(&file);
        let before = fs::read(home.path("bad.img")).unwrap();
        let volume = format!("drive://{}", home.path("bad.img").display());
        let served = home.refused(["serve", &volume, "--listen", "127.0.0.1:0", "--users", "users.toml"]);
        let inspected = home.refused(["drive", "info", "bad.img"]);
        assert!(fs::read(home.path("bad.img")).unwrap() == before, "{served}");
        println!("{served}{inspected}");
        (served, inspected)
    };
    let says = |(served, inspected): (String, String), text: &str| {
        assert!(served.contains(text) && inspected.contains(text), "{served}{inspected}");
    };
    for len_bytes in [LEN_BYTES - 4096, LEN_BYTES / 2, 8192, 4096, 0] {
        says(refused(&|file| file.set_len(len_bytes).unwrap()), "short");
    }
    says(
        refused(&|file| file.write_all_at(&[0; 8192], 0).unwrap()),
        "not a drive; 'tenon drive format' makes one",
    );
    // Inverted, as any fixed byte may be the one that is there.
    let garbled = |file: &fs::File| {
        for at in [9, 4096 + 9] {
            file.write_all_at(&[!image[at]], at as u64).unwrap();
        }
    };
    says(refused(&garbled), "damaged: both superblocks");
    fs::write(home.path("other.img"), vec![0; LEN_BYTES as usize]).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(home.path("other.img")).status().unwrap();
    assert!(made.success());
    let refused = home.refused(["drive", "info", "other.img"]);
    assert!(refused.contains("not a drive"), "{refused}");
}

/// Regression: a drive with one damaged frame in its log gave nothing at all, although everything before that frame
/// was intact.
#[test]
fn s492_the_intact_part_of_a_damaged_drive_is_exported() {
    let home = Home::new().with_users();
    home.ok(["drive", "format", "drive.img", "--size", "64MiB"]);
    let volume = format!("drive://{}", home.path("drive.img").display());
    let serving = home.serve(&volume, &[]);
    let program = "
s3.create_bucket(Bucket='photos')
for key in ['before', 'damaged', 'after']:
    s3.put_object(Bucket='photos', Key=key, Body=b'the object ' + key.encode())
";
    home.boto3(&serving.1, program);
    // Killed, so that the objects are in the log only.
    drop(serving);
    let image = fs::read(home.path("drive.img")).unwrap();
    let text = b"the object damaged";
    let at = image.windows(text.len()).position(|window| window == text).unwrap();
    let file = OpenOptions::new().write(true).open(home.path("drive.img")).unwrap();
    file.write_all_at(b"!", at as u64).unwrap();
    drop(file);
    let image = fs::read(home.path("drive.img")).unwrap();

    let refused = home.refused(["drive", "info", "drive.img"]);
    assert!(refused.contains("damaged: a frame of the log"), "{refused}");
    let checked = home.tenon(["drive", "check", "drive.img"]);
    assert!(checked.code == 4, "{checked:?}");
    assert!(format!("{}{}", checked.out, checked.err).contains("are left out"), "{checked:?}");
    let refused = home.refused(["drive", "export", "drive.img", "out"]);
    assert!(refused.contains("damaged"), "{refused}");
    let exported = home.tenon(["drive", "export", "drive.img", "out", "--before-damage"]);
    assert!(exported.code == 4 && exported.err.contains("left out: "), "{exported:?}");
    assert!(exported.out.contains("1 objects"), "{exported:?}");
    assert_eq!(fs::read(home.path("out/photos/before")).unwrap(), b"the object before");
    assert!(!home.path("out/photos/after").exists());
    assert!(fs::read(home.path("drive.img")).unwrap() == image, "nothing is written to it");
}

/// Regression: `drive format --size` that failed left its files, and the next one was refused because of them.
#[test]
fn a_format_that_fails_leaves_no_file_behind() {
    let home = Home::new();
    fs::write(home.path("precious"), vec![7; 1 << 20]).unwrap();
    home.refused(["drive", "format", "one.img", "--size", "64KiB"]);
    assert!(!home.path("one.img").exists());
    home.refused(["drive", "format", "new.img", "precious", "--size", "64MiB", "--parity", "1"]);
    assert!(!home.path("new.img").exists() && home.path("precious").exists());
    home.ok(["drive", "format", "one.img", "--size", "64MiB"]);
}
