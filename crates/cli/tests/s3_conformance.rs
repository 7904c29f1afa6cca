//! versitygw's client tests on the endpoint of a drive. docs/s3-conformance.md says which cases do not pass, and why.

use crate::drives::ServeProcess;
use crate::endpoint::{KEY, SECRET, client_of};
use crate::fixture::{Home, capture};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use store::Buckets;

/// Beginnings of the names of versitygw's cases about itself: its users, its modes.
const OF_THE_GATEWAY: [&str; 5] = ["IAM", "S3IAM", "AccessControl", "PublicBucket", "Scout"];

/// Number of cases in the pinned version of versitygw without those.
const CASES: usize = 756;

/// An endpoint over an empty drive, with the substitute for `versitygw admin`.
struct Endpoint {
    serving: ServeProcess,
    home: Home,
}

impl Endpoint {
    fn start() -> Self {
        let home = Home::new().with_users();
        std::os::unix::fs::symlink(in_repository("scripts/versitygw-admin"), home.path("versitygw")).unwrap();
        home.ok(["drive", "format", "drive.img", "--size", "512MiB"]);
        let serving = home.serve(&format!("drive://{}", home.text("drive.img")), &[]);
        Self { serving, home }
    }

    /// Runs versitygw with arguments in the home. Returns what it printed, and whether it succeeded.
    fn versitygw(&self, arguments: &[&str]) -> (String, bool) {
        let programs = servers::program("versitygw");
        let path = format!("/usr/sbin:/usr/bin:/sbin:/bin:{}", programs.parent().unwrap().display());
        let mut command = self.home.command("/usr/bin/timeout");
        command.arg("90").arg("./versitygw").args(arguments);
        command.env("PATH", path).env("USERS", self.home.path("users.toml"));
        let output = capture(&mut command);
        (output.out + &output.err, output.code == 0)
    }

    fn passes(&self, case: &str) -> bool {
        let at = ["test", "-a", KEY, "-s", SECRET, "-e", &self.serving.1, "--allow-insecure"];
        let (printed, succeeded) = self.versitygw(&[&at[..], &[case, "--versioning-enabled"]].concat());
        // Cases that leave unfinished uploads fail at their end, as a drive does not delete a bucket that has some.
        let mut failures = printed.lines().filter(|line| line.contains("FAIL") || line.contains("error"));
        match succeeded {
            true => printed.contains("PASS") && !printed.contains("FAIL"),
            false => {
                failures.all(|line| line.contains("S3: DeleteBucket") && line.contains("BucketNotEmpty"))
            }
        }
    }

    /// Returns whether a case left nothing behind. Locked objects cannot be removed, and the next case wants the same name of a bucket.
    fn is_clean(&self, runtime: &tokio::runtime::Runtime) -> bool {
        runtime.block_on(client_of(&self.serving.1).list()).unwrap().is_empty()
    }
}

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).canonicalize().unwrap()
}

/// Returns the names of all cases.
fn cases(endpoint: &Endpoint) -> Vec<String> {
    let (help, _) = endpoint.versitygw(&["test", "--help"]);
    let named =
        help.lines().filter(|line| line.contains(" Runs ")).filter_map(|line| line.split_whitespace().next());
    let is_of_s3 = |case: &&str| {
        case.contains('_')
            && !OF_THE_GATEWAY.iter().any(|begin| case.starts_with(begin))
            && !case.contains("WebsiteHosting")
            && !case.ends_with("_not_implemented")
    };
    named.filter(is_of_s3).map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the names in the document of cases that do not pass. A name may contain `*`.
fn documented_failures() -> Vec<String> {
    let document = std::fs::read_to_string(in_repository("docs/s3-conformance.md")).unwrap();
    let (failures, _) = document.split_once("## Deliberate differences").unwrap();
    let quoted = failures.split('`').skip(1).step_by(2);
    let is_name = |word: &&str| {
        word.contains('_')
            && word.contains(|c: char| c.is_ascii_lowercase())
            && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '*')
    };
    quoted.filter(is_name).map(str::to_owned).collect()
}

/// Returns whether a name is that of a case, with `*` for any characters.
fn is_name_of(name: &str, case: &str) -> bool {
    match name.split_once('*') {
        None => name == case,
        Some((begin, end)) => {
            case.len() >= begin.len() + end.len() && case.starts_with(begin) && case.ends_with(end)
        }
    }
}

#[test]
fn the_documented_cases_of_versitygw_fail_and_all_others_pass() {
    let first = Endpoint::start();
    let queue = Mutex::new(cases(&first));
    assert_eq!(queue.lock().unwrap().len(), CASES);
    drop(first);
    let failed = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let mut endpoint = Endpoint::start();
                while let Some(case) = { queue.lock().unwrap().pop() } {
                    if !endpoint.passes(&case) {
                        failed.lock().unwrap().insert(case);
                    }
                    if !endpoint.is_clean(&runtime) {
                        endpoint = Endpoint::start();
                    }
                }
            });
        }
    });
    let (failed, documented) = (failed.into_inner().unwrap(), documented_failures());
    let undocumented: Vec<&String> =
        failed.iter().filter(|case| !documented.iter().any(|name| is_name_of(name, case))).collect();
    let stale: Vec<&String> =
        documented.iter().filter(|name| !failed.iter().any(|case| is_name_of(name, case))).collect();
    assert!(undocumented.is_empty() && stale.is_empty(), "fail: {undocumented:?}\npass: {stale:?}");
}
