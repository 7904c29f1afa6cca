//! The files of users and of the certificate are changed while an endpoint serves.

use crate::endpoint::{KEY, SECRET};
use crate::fixture::{Home, capture, eventually, tenon};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// A `tenon serve` process with a file of users and a log.
struct EndpointProcess {
    home: Home,
    process: Child,
    url: String,
}

impl Drop for EndpointProcess {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl EndpointProcess {
    fn start() -> Self {
        Self::start_with(Home::new().with_users(), &[])
    }

    fn start_with(home: Home, more: &[&str]) -> Self {
        home.ok(["format", "volume", "--naming", "inode"]);
        let mut command = home.command(tenon());
        let log = fs::File::create(home.path("log")).unwrap();
        command.args(["serve", "volume", "--users", "users.toml", "--listen", "127.0.0.1:0"]).args(more);
        let mut process = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { home, process, url: url.trim().to_owned() }
    }

    /// Lists the bucket as a user by boto3. Returns `ok`, or the error's code.
    fn list_as(&self, user: &str) -> String {
        let program = r#"
import boto3, botocore, os, sys
s3 = boto3.client("s3", endpoint_url=os.environ["URL"], region_name="us-east-1")
try:
    s3.list_objects_v2(Bucket="volume")
    print("ok")
except botocore.exceptions.ClientError as error:
    print(error.response["Error"]["Code"])
"#;
        let mut script = self.home.command("/usr/bin/python3");
        script.args(["-c", program]).env("URL", &self.url);
        script.env("AWS_ACCESS_KEY_ID", user).env("AWS_SECRET_ACCESS_KEY", SECRET);
        let output = capture(&mut script);
        assert_eq!(output.code, 0, "{output:?}");
        output.out.trim().to_owned()
    }

    /// Replaces the file of users as a whole.
    fn write(&self, text: &str, mode: u32) {
        let staged = self.home.path("users.toml.new");
        fs::write(&staged, text).unwrap();
        fs::set_permissions(&staged, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(&staged, self.home.path("users.toml")).unwrap();
    }

    /// Returns the subject of the certificate that a client is shown.
    fn subject(&self) -> String {
        let address = self.url.trim_start_matches("https://");
        let shown = format!(
            "openssl s_client -connect {address} </dev/null 2>/dev/null | openssl x509 -noout -subject"
        );
        capture(self.home.command("/bin/sh").args(["-c", &shown])).out.trim().to_owned()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path("log")).unwrap()
    }

    fn refusals(&self) -> usize {
        self.log().matches("so the earlier ones stay").count()
    }
}

fn users(names: &[&str]) -> String {
    let user = |name: &&str| format!("[[user]]\naccess_key = \"{name}\"\nsecret_key = \"{SECRET}\"\n");
    names.iter().map(user).collect()
}

/// Makes a certificate that is signed by itself, and its key.
pub(crate) fn make_certificate(home: &Home, name: &str) {
    let made = format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name} \
         -keyout {name}.key -out {name}.pem && chmod 600 {name}.key"
    );
    let output = capture(home.command("/bin/sh").args(["-c", &made]));
    assert_eq!(output.code, 0, "{output:?}");
}

#[test]
fn s580_the_certificate_is_reloaded() {
    let home = Home::new().with_users();
    for name in ["first", "second"] {
        make_certificate(&home, name);
    }
    let replace = |home: &Home, file: &str| {
        fs::copy(home.path(&format!("second.{file}")), home.path("staged")).unwrap();
        fs::rename(home.path("staged"), home.path(&format!("first.{file}"))).unwrap();
    };
    let served = EndpointProcess::start_with(home, &["--tls-cert", "first.pem", "--tls-key", "first.key"]);
    assert_eq!(served.subject(), "subject=CN = first");
    // A certificate without its key is refused, until the key follows.
    replace(&served.home, "pem");
    eventually("the log says so", || served.log().contains("so the earlier one stays"));
    assert_eq!(served.subject(), "subject=CN = first");
    replace(&served.home, "key");
    eventually("the new certificate is shown", || served.subject() == "subject=CN = second");
}

#[test]
fn s221_the_file_of_users_is_reloaded() {
    let served = EndpointProcess::start();
    assert_eq!(served.list_as("later"), "InvalidAccessKeyId");
    served.write(&users(&[KEY, "later"]), 0o600);
    eventually("a new user comes in", || served.list_as("later") == "ok");
    served.write(&users(&["later"]), 0o600);
    eventually("a removed user is refused", || served.list_as(KEY) == "InvalidAccessKeyId");
    assert_eq!(served.list_as("later"), "ok");
    assert!(served.log().contains("users.toml: 1 users"), "{}", served.log());
}

#[test]
fn s222_a_wrong_file_of_users_changes_nothing() {
    let served = EndpointProcess::start();
    let wrong = [
        ("[[user]", 0o600),
        ("[[user]]\naccess_key = \"later\"\n", 0o600),
        ("[[user]]\naccess_key = \"later\"\nsecret_key = 12345678901\n", 0o600),
        (&users(&["later", "later"]), 0o600),
        (&users(&["later"]), 0o644),
    ];
    for (at, (text, mode)) in wrong.iter().enumerate() {
        served.write(text, *mode);
        eventually("the log says so", || served.refusals() == at + 1);
        assert_eq!(served.list_as(KEY), "ok", "{text}");
    }
    // An error is logged once, and again on SIGHUP.
    served.home.signal(served.process.id(), rustix::process::Signal::HUP);
    eventually("SIGHUP reads it", || served.refusals() == wrong.len() + 1);
    fs::set_permissions(served.home.path("users.toml"), fs::Permissions::from_mode(0o600)).unwrap();
    eventually("a corrected mode is noticed", || served.list_as("later") == "ok");
    fs::remove_file(served.home.path("users.toml")).unwrap();
    eventually("a missing file is logged", || served.refusals() == wrong.len() + 2);
    assert_eq!(served.list_as("later"), "ok");
    let log = served.log();
    assert!(log.contains("users.toml, line 3: a value must be a string"), "{log}");
    assert!(!log.contains(SECRET) && !log.contains("12345678901"), "{log}");
}

/// Commands that versitygw's client tests run as `versitygw admin`.
#[test]
fn the_substitute_for_versitygw_admin_changes_users() {
    let served = EndpointProcess::start();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/versitygw-admin");
    let admin = |words: &[&str]| {
        let mut command = served.home.command("/usr/bin/python3");
        let who = ["admin", "-a", KEY, "-s", SECRET, "-er", &served.url];
        command.arg(&script).args(who).args(words).env("USERS", served.home.path("users.toml"));
        capture(&mut command)
    };
    let create = ["create-user", "-a", "later", "-s", SECRET, "-r", "user"];
    let made = admin(&create);
    assert_eq!((made.code, served.list_as("later").as_str()), (0, "AccessDenied"), "{made:?}");
    assert!(admin(&create).err.contains("is there"));
    assert_eq!(admin(&["change-bucket-owner", "-b", "volume", "-o", "later"]).code, 0);
    assert_eq!(served.list_as("later"), "ok");
    assert!(admin(&["list-users"]).out.contains("later policy-only"));
    assert_eq!(admin(&["delete-user", "-a", "later"]).code, 0);
    assert_eq!(served.list_as("later"), "InvalidAccessKeyId");
    // For any other command, the script runs the program of that name, with the file as it was before.
    assert_eq!(admin(&create).code, 0);
    let other = served.home.path("versitygw");
    fs::write(&other, "#!/bin/sh\necho \"$@\"\n").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o700)).unwrap();
    let mut test = served.home.command("/usr/bin/python3");
    test.arg(&script).args(["test", "a-case"]).env("PATH", served.home.path("."));
    assert_eq!(capture(test.env("USERS", served.home.path("users.toml"))).out, "test a-case\n");
    assert_eq!(served.list_as("later"), "InvalidAccessKeyId");
}
