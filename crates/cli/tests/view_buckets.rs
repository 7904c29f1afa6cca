//! Views over buckets that the mounting user may not read, or that do not exist.

use crate::fixture::{Home, capture, eventually};
use crate::handlers::RunningTenon;
use crate::s3::new_bucket;
use crate::view_mounts::{Client, NotifyingServer, names};
use servers::S3Server;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

const USER: &str = "reader";
const PASSWORD: &str = "reads-what-it-may";

/// A user of a server, with a policy.
struct Reader<'s> {
    server: &'s S3Server,
    home: &'s Home,
}

impl<'s> Reader<'s> {
    fn new(server: &'s S3Server, home: &'s Home, may: &str) -> Self {
        let reader = Self { server, home };
        reader.admin(&["user", "add", "m", USER, PASSWORD]);
        reader.set_policy("first", may);
        reader
    }

    /// Sets the user's policy to these statements.
    fn set_policy(&self, name: &str, statements: &str) {
        let policy = format!(r#"{{"Version": "2012-10-17", "Statement": [{statements}]}}"#);
        fs::write(self.home.path("policy.json"), policy).unwrap();
        self.admin(&["policy", "create", "m", name, "policy.json"]);
        self.admin(&["policy", "attach", "m", name, "--user", USER]);
    }

    fn admin(&self, words: &[&str]) {
        let (user, password) = (self.server.access_key(), self.server.secret_key());
        let host = self.server.endpoint().replace("http://", &format!("http://{user}:{password}@"));
        let mut mc = self.home.command(servers::program("mc"));
        mc.env("MC_HOST_m", host).args(["--quiet", "admin"]);
        let output = capture(mc.args(words));
        assert_eq!(output.code, 0, "mc admin {words:?}: {output:?}");
    }
}

/// Returns a policy statement that allows everything in a bucket.
fn allow_all(bucket: &str) -> String {
    format!(
        r#"{{"Effect": "Allow", "Action": "s3:*", "Resource": ["arn:aws:s3:::{bucket}", "arn:aws:s3:::{bucket}/*"]}}"#
    )
}

/// Adds the user's credentials to a home.
fn as_reader(home: Home) -> Home {
    home.with("AWS_ACCESS_KEY_ID", USER).with("AWS_SECRET_ACCESS_KEY", PASSWORD)
}

#[test]
fn s288_an_unreadable_bucket_does_not_hide_others() {
    let notifying = NotifyingServer::start();
    let server = &notifying.server;
    let [open, shut] = ["open", "shut"].map(|name| new_bucket(server, name));
    let later = "cli-later";
    let [in_open, in_shut] = [&open, &shut].map(|bucket| Client::of(server, bucket));
    in_open.put("a", "open", &[]);
    in_shut.put("b", "shut", &[]);
    let home = as_reader(notifying.home());
    let reader = Reader::new(server, &home, &allow_all(&open));
    let rules = format!("all: {{container: [{open}, {shut}, {later}]}}\nonly: {{container: {shut}}}\n");
    fs::write(home.path("rules.yaml"), rules).unwrap();
    let [events, secret] = &notifying.flags;
    home.ok(["mount", "--views=rules.yaml", events, secret, "--log-file=log", "mnt", "--metadata-ttl=1h"]);
    let [all, only] = ["all", "only"].map(|name| home.mnt().join(name));

    assert_eq!(names(&all), ["a"]);
    assert!(fs::read_dir(&only).and_then(Iterator::collect::<Result<Vec<_>, _>>).is_err());
    let status = home.ok(["status", "mnt"]);
    for bucket in [shut.as_str(), later] {
        assert!(status.contains(&format!("; '{bucket}' cannot be read: ")), "{status}");
        let log = fs::read_to_string(home.path("log")).unwrap();
        assert!(log.contains(bucket), "{log}");
    }
    let listed = home.tenon(["views", "list", "rules.yaml"]);
    assert!(listed.out.starts_with("all: 1 objects, "), "{listed:?}");
    assert!(listed.err.contains(&format!("view 'all': '{shut}' cannot be read")), "{listed:?}");
    assert!(listed.err.contains("view 'only'"), "{listed:?}");

    // Changes in the readable bucket are seen.
    notifying.enable_notifications(&home, &open);
    in_open.put("c", "told", &[]);
    eventually("the event is applied", || names(&all) == ["a", "c"]);
    fs::write(all.join("made"), "here").unwrap();
    assert_eq!(in_open.find("made").unwrap().size_bytes, 4);

    // No event reports the new permissions; they are found by retries.
    new_bucket(server, "later");
    Client::of(server, later).put("d", "later", &[]);
    reader.set_policy("second", &format!("{}, {}", allow_all(&shut), allow_all(later)));
    eventually("all are shown", || names(&all) == ["a", "b", "c", "d", "made"]);
    assert_eq!(fs::read_to_string(all.join("b")).unwrap(), "shut");
    assert_eq!(names(&only), ["b"]);
    let is_well = || !home.ok(["status", "mnt"]).contains("cannot be read");
    eventually("the status says so", is_well);
    home.ok(["umount", "mnt"]);
}

#[test]
fn s289_a_client_of_a_handler_sees_only_what_its_credentials_may_read() {
    let server = servers::minio();
    let [open, shut] = ["open", "shut"].map(|name| new_bucket(&server, name));
    for (bucket, keys) in [(&open, ["a", "b"]), (&shut, ["c", "d"])] {
        let client = Client::of(&server, bucket);
        keys.iter().for_each(|key| client.put(key, "x", &[]));
    }
    let homes = [crate::s3::home(&server), as_reader(crate::s3::home(&server))];
    let [home, theirs] = homes.map(|home| home.with("AWS_ENDPOINT_URL", &server.endpoint()));
    let reader = Reader::new(&server, &theirs, &allow_all(&open));
    let rules =
        format!("all: {{container: [{open}, {shut}]}}\nany: {{container: 'cli-*', object: '[bd]'}}\n");
    for home in [&home, &theirs] {
        fs::write(home.path("rules.yaml"), &rules).unwrap();
    }
    let handler =
        RunningTenon::start(&home, &["events", "serve", "--listen=127.0.0.1:0", "--state-dir=handler"]);
    let at = handler.first_line();
    for home in [&home, &theirs] {
        home.ok(["mount", "--views=rules.yaml", "mnt", "--handler", &at, "--metadata-ttl=0s"]);
    }
    let names_in = |home: &Home, view: &str| names(&home.mnt().join(view));
    assert_eq!(names_in(&home, "all"), ["a", "b", "c", "d"]);
    assert_eq!(names_in(&home, "any"), ["b", "d"]);
    assert_eq!(names_in(&theirs, "all"), ["a", "b"]);
    assert_eq!(names_in(&theirs, "any"), ["b"]);
    assert!(!theirs.mnt().join("all/c").exists());
    let status = theirs.ok(["status", "mnt"]);
    assert!(status.contains(&format!("; '{shut}' cannot be read: ")), "{status}");
    assert!(!home.ok(["status", "mnt"]).contains("cannot be read"));

    reader.set_policy("second", &allow_all(&shut));
    eventually("what it may read now is shown", || names_in(&theirs, "all") == ["a", "b", "c", "d"]);
    assert_eq!(fs::read_to_string(theirs.mnt().join("all/c")).unwrap(), "x");
    home.ok(["umount", "mnt"]);
    theirs.ok(["umount", "mnt"]);
}

/// In a view too, a file's owner and mode decide who may open it.
#[test]
fn s289_the_mode_of_a_file_holds_in_a_view() {
    let server = servers::shared_minio();
    let bucket = new_bucket(server, "modes");
    let client = Client::of(server, &bucket);
    let owned = [("file-permissions", "0100600"), ("file-owner", "2001"), ("file-group", "2001")];
    client.put("own", "secret", &owned);
    let home = crate::s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    let rules = format!("all: {{container: {bucket}, properties: {{file-owner: ['*', null]}}}}\n");
    fs::write(home.path("rules.yaml"), rules).unwrap();
    home.ok(["mount", "--views=rules.yaml", "mnt", "--allow-other", "--attributes=headers"]);
    // Let other users pass through the temporary directory.
    let dir = home.mnt();
    fs::set_permissions(dir.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let reads = |user: &str| {
        let mut command = home.command("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups", "cat"]).arg(dir.join("all/own"));
        capture(&mut command)
    };
    assert_eq!(names(&dir.join("all")), ["own"]);
    assert_eq!(reads("2001").out, "secret");
    let refused = reads("2002");
    assert!(refused.out.is_empty() && refused.err.contains("Permission denied"), "{refused:?}");
    home.ok(["umount", "mnt"]);
}
