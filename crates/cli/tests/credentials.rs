//! Credentials that expire while a volume is mounted.

use crate::fixture::{Home, eventually, tenon};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

const KEY: &str = "tenon-tests";
const SECRET: &str = "not-a-secret-but-long-enough";

/// The served part of the volume: its root has names of its own, which a mount of it may not write.
const VOLUME: &str = "s3://volume/part";

/// A volume served by a process of its own.
struct ServedVolume {
    home: Home,
    running: Option<Child>,
}

impl ServedVolume {
    fn start() -> (Self, String) {
        let home = Home::new();
        let users = format!("[[user]]\naccess_key = \"{KEY}\"\nsecret_key = \"{SECRET}\"\n");
        fs::write(home.path("users.toml"), users).unwrap();
        fs::set_permissions(home.path("users.toml"), fs::Permissions::from_mode(0o600)).unwrap();
        home.ok(["format", "volume", "--naming", "inode"]);
        let mut serving = Self { home, running: None };
        let url = serving.serve_at("127.0.0.1:0");
        (serving, url)
    }

    fn serve_at(&mut self, address: &str) -> String {
        let mut command = self.home.command(tenon());
        command.args(["serve", "volume", "--users", "users.toml", "--listen", address]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        self.running = Some(child);
        url.trim().to_owned()
    }

    /// Stops the process and starts it at the same address. It does not know its earlier sessions any more.
    fn restart(&mut self, url: &str) {
        let mut child = self.running.take().unwrap();
        self.home.signal(child.id(), rustix::process::Signal::TERM);
        assert!(child.wait().unwrap().success());
        assert_eq!(self.serve_at(url.strip_prefix("http://").unwrap()), url);
    }
}

impl Drop for ServedVolume {
    fn drop(&mut self) {
        if let Some(mut child) = self.running.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// Makes a home with this `~/.aws/config`, whose programs use the endpoint.
fn home(url: &str, config: &str) -> Home {
    let home = Home::new().with("AWS_ENDPOINT_URL", url).with("AWS_EC2_METADATA_DISABLED", "true");
    fs::create_dir(home.path("home/.aws")).unwrap();
    fs::write(home.path("home/.aws/config"), config).unwrap();
    home
}

/// Makes a file that contains its name, and syncs it.
fn store(home: &Home, name: &str) {
    let mut file = fs::File::create(home.mnt().join(name)).unwrap();
    file.write_all(name.as_bytes()).unwrap();
    file.sync_all().unwrap();
}

fn role() -> String {
    format!(
        "[profile work]\nregion = us-east-1\nrole_arn = arn:aws:iam::1:role/any\nsource_profile = base\n[profile base]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    )
}

/// The role's session ends when the endpoint is restarted; the mount begins another session and continues.
#[test]
fn a_mount_renews_its_role_session() {
    let (mut serving, url) = ServedVolume::start();
    let home = home(&url, &role());
    let words = ["--profile=work", "--metadata-ttl=0s", "--log-level=trace", "--log-file=log"];
    home.ok(["mount", VOLUME, "mnt"].iter().chain(&words));
    store(&home, "before");
    for round in ["one", "two"] {
        serving.restart(&url);
        // Sessions younger than a second are not renewed.
        std::thread::sleep(std::time::Duration::from_secs(1));
        store(&home, round);
        assert_eq!(fs::read_to_string(home.mnt().join("before")).unwrap(), "before");
    }
    assert_eq!(home.ok(["object", "get", "s3://volume/part/two", "--profile=work"]), "two");
    let log = fs::read_to_string(home.path("log")).unwrap();
    assert!(log.contains("new credentials") && !log.contains(SECRET), "{log}");
    let arguments = fs::read(format!("/proc/{}/cmdline", home.pid())).unwrap();
    assert!(!String::from_utf8_lossy(&arguments).contains(SECRET));
    home.ok(["umount", "mnt"]);
}

/// Credentials expire after two seconds: the program that prints them runs repeatedly, and no request fails.
#[test]
fn a_mount_renews_credentials_that_expire_soon() {
    let (_serving, url) = ServedVolume::start();
    let home = home(&url, "");
    let script = format!(
        "echo >> runs\nends=$(date -u -d '+2 seconds' +%Y-%m-%dT%H:%M:%SZ)\necho '{{\"Version\":1,\"AccessKeyId\":\"{KEY}\",\"SecretAccessKey\":\"{SECRET}\",\"Expiration\":\"'$ends'\"}}'\n"
    );
    fs::write(home.path("print"), format!("cd {}\n{script}", home.text(""))).unwrap();
    let config = format!("[default]\ncredential_process = sh {}\n", home.text("print"));
    fs::write(home.path("home/.aws/config"), config).unwrap();
    home.ok(["mount", VOLUME, "mnt", "--metadata-ttl=0s"]);
    let runs = || fs::read_to_string(home.path("runs")).unwrap().lines().count();
    eventually("the credentials were renewed three times", || {
        store(&home, "file");
        runs() >= 4
    });
    home.ok(["umount", "mnt"]);
}

#[test]
fn s117_missing_credentials_are_reported_in_one_line() {
    let (_serving, url) = ServedVolume::start();
    for (config, profile, expected) in [
        ("", "", "no credentials: looked at the flags, the environment, profile 'default'"),
        ("[profile x]\nrole_arn=arn:x\nmfa_serial=arn:m\nsource_profile=x\n", "--profile=x", "mfa_serial"),
        ("[default]\ncredential_process=echo hush; false\n", "", "run the command by hand"),
        (
            "[default]\nsso_start_url=https://x\nsso_region=r\nsso_account_id=1\nsso_role_name=r\n",
            "",
            "run `aws sso login`",
        ),
        (
            "[default]\nrole_arn=arn:r\nsource_profile=y\n[profile y]\naws_access_key_id=nobody\naws_secret_access_key=hush\n",
            "",
            "no credentials from role arn:r of profile 'default'",
        ),
    ] {
        let home = home(&url, config);
        let words = ["mount", VOLUME, "mnt", profile];
        let refused = home.refused(words.iter().filter(|word| !word.is_empty()));
        assert!(refused.contains(expected) && !refused.contains("hush"), "{refused}");
    }
    let unsigned = home(&url, "[default]\nrole_arn=nonsense\n");
    let denied = unsigned.refused(["mount", VOLUME, "mnt", "--no-sign-request"]);
    assert!(denied.contains("denied") && !denied.contains("role_arn"), "{denied}");
}
