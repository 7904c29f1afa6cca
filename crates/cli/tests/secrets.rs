//! Secrets appear neither in the arguments of a process nor in logs, errors or the mount table.

use crate::fixture::{Home, capture};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const SECRET: &str = "hush-hush-0123456789";

#[test]
fn s118_errors_do_not_repeat_secrets() {
    let home = Home::new().with("AWS_SECRET_ACCESS_KEY", SECRET).with("AWS_ACCESS_KEY_ID", "AKIA-TEST");
    let endpoint = "--endpoint-url=http://127.0.0.1:1";
    let brief = "--retry-timeout=1s";
    for words in [
        vec!["mount", "s3://bucket", "mnt", endpoint, brief],
        vec!["object", "ls", "s3://bucket", endpoint, brief],
        vec!["mount", "s3://key:hush-hush-0123456789@bucket", "mnt"],
        vec!["mount", "s3://bucket", "mnt", "--endpoint-url=http://key:hush-hush-0123456789@127.0.0.1:1"],
        vec!["object", "ls", "s3://bucket", "--secret-access-key"],
    ] {
        let refused = home.tenon(&words);
        assert_ne!(refused.code, 0);
        assert!(!refused.err.contains(SECRET) && !refused.out.contains(SECRET), "{refused:?}");
    }
}

#[test]
fn a_key_file_is_used_and_must_be_private() {
    let home = Home::new();
    let file = home.path("keys");
    fs::write(&file, format!("AKIA:{SECRET}\n")).unwrap();
    let words = ["object", "ls", "s3://bucket", "--endpoint-url=http://127.0.0.1:1", "--retry-timeout=1s"];
    let words = [words.as_slice(), &["--access-key-file=keys"]].concat();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(home.refused(&words).contains("chmod 600"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let refused = home.refused(&words);
    assert!(refused.contains("127.0.0.1:1") && !refused.contains(SECRET), "{refused}");
}

#[test]
fn s118_neither_ps_nor_log_nor_status_shows_a_secret() {
    let server = servers::shared_minio();
    let bucket = crate::s3::new_bucket(server, "secrets");
    let home = crate::s3::home(server);
    home.ok([
        "mount",
        &format!("s3://{bucket}"),
        "mnt",
        "--endpoint-url",
        &server.endpoint(),
        "--log-level=trace",
        "--log-file=log",
    ]);
    fs::write(home.mnt().join("file"), vec![1; 9 << 20]).unwrap();
    let pid = home.pid();
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let seen = [
        ("ps", String::from_utf8_lossy(&arguments).into_owned()),
        ("mount table", fs::read_to_string("/proc/self/mountinfo").unwrap()),
        ("status", home.ok(["status", "mnt"])),
        ("log", fs::read_to_string(home.path("log")).unwrap()),
    ];
    for (place, text) in seen {
        assert!(!text.is_empty() && !text.contains(server.secret_key()), "{place} shows the secret");
    }
    assert_eq!(capture(home.command(crate::fixture::tenon()).args(["umount", "mnt"])).code, 0);
}
