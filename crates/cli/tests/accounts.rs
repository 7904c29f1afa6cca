//! Views of buckets of several accounts, which rulesets name.

use crate::fixture::{Home, eventually};
use crate::handlers::{RunningTenon, free_port};
use crate::s3::new_bucket;
use crate::view_mounts::{Client, NotifyingServer, names};
use servers::S3Server;
use std::fs;

/// Writes a profile to an AWS config file, with an endpoint and keys of its own.
fn write_profile(home: &Home, name: &str, server: &S3Server) {
    let (endpoint, region) = (server.endpoint(), server.region());
    let (key, secret) = (server.access_key(), server.secret_key());
    let profile = format!(
        "[profile {name}]\nendpoint_url = {endpoint}\nregion = {region}\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
    );
    fs::write(home.path("aws-config"), profile).unwrap();
}

/// Two servers have a bucket of the same name, and one of them sends events.
#[test]
fn s287_a_view_shows_buckets_of_another_account() {
    let (own, notifying) = (servers::shared_minio(), NotifyingServer::start());
    let bucket = new_bucket(own, "accounts");
    assert_eq!(new_bucket(&notifying.server, "accounts"), bucket);
    let (mine, theirs) = (Client::of(own, &bucket), Client::of(&notifying.server, &bucket));
    let home =
        notifying.home().with("AWS_ENDPOINT_URL", &own.endpoint()).with("AWS_CONFIG_FILE", "aws-config");
    write_profile(&home, "lab", &notifying.server);
    let rules = format!("mine: {{container: {bucket}}}\ntheirs: {{container: '{bucket}', account: lab}}\n");
    fs::write(home.path("rules.yaml"), rules).unwrap();
    mine.put("a", "mine", &[]);
    theirs.put("b", "theirs", &[]);

    let [events, secret] = &notifying.flags;
    let events = events.replace("--events=", "--events=lab=");
    home.ok(["mount", "--views=rules.yaml", &events, secret, "mnt", "--metadata-ttl=1h"]);
    let [shown, others] = ["mine", "theirs"].map(|name| home.mnt().join(name));
    assert_eq!((names(&shown), names(&others)), (vec!["a".to_owned()], vec!["b".to_owned()]));
    notifying.enable_notifications(&home, &bucket);
    theirs.put("c", "new", &[]);
    eventually("an event of the other account's source is applied", || others.join("c").exists());
    assert_eq!(fs::read_to_string(others.join("c")).unwrap(), "new");
    fs::write(others.join("made"), "through the view").unwrap();
    assert_eq!(theirs.find("made").unwrap().size_bytes, 16);
    fs::rename(others.join("made"), others.join("renamed")).unwrap();
    eventually("the object has its new key", || theirs.find("renamed").is_some());
    assert_eq!(names(&shown), ["a"]);
    assert!(mine.find("made").is_none() && mine.find("renamed").is_none());
    home.ok(["umount", "mnt"]);

    let listed = home.ok(["views", "list", "rules.yaml"]);
    assert!(listed.contains("mine: 1 object") && listed.contains("theirs: 3 objects"), "{listed}");
}

/// A handler accesses only the accounts that it was started with.
#[test]
fn s287_a_handler_uses_only_the_accounts_it_was_given() {
    let (own, other) = (servers::shared_minio(), servers::minio());
    let bucket = new_bucket(&other, "handled");
    Client::of(&other, &bucket).put("a", "theirs", &[]);
    let home =
        crate::s3::home(own).with("AWS_ENDPOINT_URL", &own.endpoint()).with("AWS_CONFIG_FILE", "aws-config");
    write_profile(&home, "lab", &other);
    fs::write(home.path("rules.yaml"), format!("theirs: {{container: {bucket}, account: lab}}\n")).unwrap();
    let listen = || format!("127.0.0.1:{}", free_port());
    let handler = |flags: &[&str]| {
        let listen = listen();
        RunningTenon::start(
            &home,
            &[&["events", "serve", "--listen", &listen, "--state-dir", &listen], flags].concat(),
        )
    };
    let asked = |handler: &RunningTenon| {
        ["views", "list", "rules.yaml", "--handler"]
            .map(str::to_owned)
            .into_iter()
            .chain([handler.first_line()])
    };
    let without = handler(&[]);
    let output = home.refused(asked(&without));
    assert!(output.contains("the account 'lab'"), "{output}");
    let with = handler(&["--account=lab"]);
    let output = home.ok(asked(&with));
    assert!(output.contains("theirs: 1 object"), "{output}");
    let nobody = home.refused(["events", "serve", "--account=nobody", "--listen", &listen()]);
    assert!(nobody.contains("the account 'nobody'"), "{nobody}");
}
