//! The CSI driver with a real server: the interface's own test suite, and a pod as a mount namespace of its own.

use crate::fixture::{Home, Output, capture, eventually, is_mounted, tenon};
use crate::s3;
use rustix::process::Signal;
use serde_json::{Value, json};
use servers::S3Server;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use store::{Buckets as _, ListRequest, Pages};

/// A running driver. Dropping it kills it, but not its mounts, which the home unmounts.
struct Driver<'h> {
    home: &'h Home,
    child: Child,
}

impl<'h> Driver<'h> {
    /// Starts a driver and waits for its socket. The server and its region are flags, the access key is none of the driver's.
    fn start(home: &'h Home, server: &S3Server, flags: &[&str]) -> Self {
        let socket = home.path("csi.sock");
        let mut command = home.command(tenon());
        command
            .args(["csi", "--node-id=node-1", "--socket", &format!("unix://{}", socket.display())])
            .args(["--records=records", "--volume-states=states", "--log-file=driver.log"])
            .args([format!("--endpoint-url={}", server.endpoint()), format!("--region={}", server.region())])
            .args(flags);
        let child = command.spawn().unwrap();
        let mut driver = Self { home, child };
        eventually("the driver answers", || {
            socket.exists() && driver.call("Identity/Probe", &json!({})).code == 0
        });
        assert!(driver.child.try_wait().unwrap().is_none());
        driver
    }

    /// Calls a method by the interface's own messages.
    fn call(&self, method: &str, request: &Value) -> Output {
        let mut client = Command::new(servers::program("csi-client"));
        client.arg(self.home.path("csi.sock")).arg(method);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = client.spawn().unwrap();
        client.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
        let output = client.wait_with_output().unwrap();
        Output {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn ok(&self, method: &str, request: &Value) -> Value {
        let output = self.call(method, request);
        assert_eq!(output.code, 0, "{method}: {output:?}\n{}", self.log());
        serde_json::from_str(&output.out).unwrap()
    }

    fn refused(&self, method: &str, request: &Value) -> String {
        let output = self.call(method, request);
        assert_eq!(output.code, 1, "{method}: {output:?}");
        output.err
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path("driver.log")).unwrap_or_default()
    }

    /// Ends the driver, and waits.
    fn stop(mut self, signal: Signal) {
        self.home.signal(self.child.id(), signal);
        self.child.wait().unwrap();
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a secret as Kubernetes passes it.
fn secrets(server: &S3Server) -> Value {
    json!({ "AWS_ACCESS_KEY_ID": server.access_key(), "AWS_SECRET_ACCESS_KEY": server.secret_key() })
}

fn capability(mode: &str, flags: &[&str]) -> Value {
    json!({ "mount": { "mountFlags": flags }, "accessMode": { "mode": mode } })
}

/// A volume of a test, with its directories.
struct Staged<'d> {
    driver: &'d Driver<'d>,
    server: &'d S3Server,
    id: String,
    mode: &'static str,
}

impl Staged<'_> {
    fn staging(&self) -> PathBuf {
        self.driver.home.path("staging")
    }

    /// Creates a volume in a bucket, and stages it.
    fn create<'d>(
        driver: &'d Driver<'d>,
        server: &'d S3Server,
        bucket: &str,
        mode: &'static str,
    ) -> Staged<'d> {
        let created = driver.ok(
            "Controller/CreateVolume",
            &json!({
                "name": "pvc-1",
                "volumeCapabilities": [capability(mode, &[])],
                "parameters": { "bucket": bucket, "prefix": "volumes" },
                "secrets": secrets(server),
            }),
        );
        let id = created["volume"]["volumeId"].as_str().unwrap().to_owned();
        assert_eq!(id, format!("s3://{bucket}/volumes/pvc-1"));
        let staged = Staged { driver, server, id, mode };
        fs::create_dir_all(staged.staging()).unwrap();
        staged.stage(&["metadata-ttl=0s"]);
        staged
    }

    fn stage(&self, flags: &[&str]) {
        let request = json!({
            "volumeId": self.id,
            "stagingTargetPath": self.staging(),
            "volumeCapability": capability(self.mode, flags),
            "secrets": secrets(self.server),
        });
        self.driver.ok("Node/NodeStageVolume", &request);
    }

    fn publish_request(&self, target: &Path, read_only: bool) -> Value {
        json!({
            "volumeId": self.id,
            "stagingTargetPath": self.staging(),
            "targetPath": target,
            "volumeCapability": capability(self.mode, &[]),
            "readonly": read_only,
        })
    }

    fn publish(&self, target: &Path, read_only: bool) {
        self.driver.ok("Node/NodePublishVolume", &self.publish_request(target, read_only));
    }

    fn unpublish(&self, target: &Path) {
        self.driver.ok("Node/NodeUnpublishVolume", &json!({ "volumeId": self.id, "targetPath": target }));
        assert!(!target.exists());
    }

    fn unstage(&self) {
        let request = json!({ "volumeId": self.id, "stagingTargetPath": self.staging() });
        self.driver.ok("Node/NodeUnstageVolume", &request);
        assert!(!is_mounted(&self.staging()));
    }

    fn unstage_and_delete(&self) {
        self.unstage();
        let request = json!({ "volumeId": self.id, "secrets": secrets(self.server) });
        self.driver.ok("Controller/DeleteVolume", &request);
    }
}

/// Runs a shell in a mount namespace of its own, whose `/pod` is a directory of the node, as a container has it.
fn in_pod(home: &Home, target: &Path, script: &str) -> Output {
    let setup = "mkdir -p \"$ROOT/pod\" && mount --rbind \"$TARGET\" \"$ROOT/pod\" && cd \"$ROOT/pod\" && exec sh -ec \"$SCRIPT\"";
    let mut command = home.command("unshare");
    command.args(["--mount", "--propagation=slave", "sh", "-ec", setup]);
    command.env("ROOT", home.path("home")).env("TARGET", target).env("SCRIPT", script);
    capture(&mut command)
}

/// Returns the keys of a bucket that begin with a prefix.
fn keys(server: &S3Server, bucket: &str, prefix: &str) -> Vec<String> {
    let prefix = prefix.to_owned().into();
    let listed = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = s3::buckets(server).open(bucket).await.unwrap();
        let request = ListRequest { prefix, limit: 1000, ..ListRequest::default() };
        Pages::new(store.as_ref(), request).collect().await.unwrap()
    });
    listed.iter().map(|entry| String::from_utf8(entry.text().to_vec()).unwrap()).collect()
}

#[test]
fn s790_the_interfaces_own_test_suite_passes() {
    let server = servers::shared_minio();
    let bucket = s3::new_bucket(server, "csi-sanity");
    for parameters in
        [format!("bucket: {bucket}\nprefix: sanity\n"), "bucketPrefix: cli-sanity-\n".to_owned()]
    {
        let home = Home::new();
        let driver = Driver::start(&home, server, &[]);
        fs::write(home.path("parameters.yaml"), parameters).unwrap();
        let secret = format!(
            "{{AWS_ACCESS_KEY_ID: {}, AWS_SECRET_ACCESS_KEY: {}}}",
            server.access_key(),
            server.secret_key()
        );
        let requests = [
            "CreateVolumeSecret",
            "DeleteVolumeSecret",
            "ControllerValidateVolumeCapabilitiesSecret",
            "ControllerExpandVolumeSecret",
            "NodeStageVolumeSecret",
            "NodePublishVolumeSecret",
        ];
        let all: String = requests.iter().map(|request| format!("{request}: {secret}\n")).collect();
        fs::write(home.path("secrets.yaml"), all).unwrap();
        let mut suite = home.command(servers::program("csi-sanity"));
        suite
            .args(["--ginkgo.no-color", "--ginkgo.timeout=10m", "--csi.testvolumeparameters=parameters.yaml"])
            .args(["--csi.secrets=secrets.yaml", &format!("--csi.endpoint={}", home.text("csi.sock"))])
            .args([
                format!("--csi.mountdir={}", home.text("target")),
                format!("--csi.stagingdir={}", home.text("stage")),
            ]);
        let tested = capture(&mut suite);
        assert_eq!(tested.code, 0, "{}\n{}\n{}", tested.out, tested.err, driver.log());
        assert!(tested.out.contains(" 0 Failed"), "{}", tested.out);
        println!("{}", tested.out.lines().rev().find(|line| line.contains(" Passed")).unwrap_or_default());
        assert_eq!(fs::read_dir(home.path("records")).unwrap().count(), 0, "{}", driver.log());
    }
}

#[test]
fn s791_a_pod_and_an_s3_client_see_each_others_files() {
    let server = servers::shared_minio();
    let bucket = s3::new_bucket(server, "csi-pod");
    let home = Home::new();
    let driver = Driver::start(&home, server, &[]);
    let volume = Staged::create(&driver, server, &bucket, "MULTI_NODE_MULTI_WRITER");
    let (one, two) = (home.path("pods/one/mount"), home.path("pods/two/mount"));
    volume.publish(&one, false);
    volume.publish(&one, false);
    volume.publish(&two, true);
    let wrote = in_pod(
        &home,
        &one,
        "echo hello > file && mkdir -p a/b && head -c 9000000 /dev/urandom > a/b/large && ls",
    );
    assert_eq!((wrote.code, wrote.out.as_str()), (0, "a\nfile\n"), "{wrote:?}");
    let client = s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    assert_eq!(client.ok(["object", "get", &format!("{}/file", volume.id)]), "hello\n");
    fs::write(client.path("source"), "by a client").unwrap();
    client.ok(["object", "put", &format!("{}/other", volume.id), "source"]);
    let read = in_pod(
        &home,
        &two,
        "cat file other && ! echo x > file 2>/dev/null && ! touch new 2>/dev/null && stat -c %s a/b/large",
    );
    assert_eq!((read.code, read.out.as_str()), (0, "hello\nby a client9000000\n"), "{read:?}");
    let refused = driver.refused("Node/NodePublishVolume", &volume.publish_request(&one, true));
    assert!(refused.starts_with("AlreadyExists"), "{refused}");
    let stats = driver.ok("Node/NodeGetVolumeStats", &json!({ "volumeId": volume.id, "volumePath": one }));
    assert_eq!(
        (stats["usage"][0]["unit"].as_str(), stats["usage"][1]["unit"].as_str()),
        (Some("BYTES"), Some("INODES"))
    );
    let busy = json!({ "volumeId": volume.id, "stagingTargetPath": volume.staging() });
    assert!(driver.refused("Node/NodeUnstageVolume", &busy).starts_with("FailedPrecondition"));
    volume.unpublish(&one);
    volume.unpublish(&two);
    volume.unpublish(&two);
    assert!(keys(server, &bucket, "volumes/").contains(&"volumes/pvc-1/file".to_owned()));
    volume.unstage_and_delete();
    assert_eq!(keys(server, &bucket, "volumes/"), [""; 0]);
}

/// Each node has a driver and state of its own. A volume that is used by one node after another shows all that was written before.
#[test]
fn s791_a_volume_moves_between_nodes() {
    let server = servers::shared_minio();
    let bucket = s3::new_bucket(server, "csi-nodes");
    let homes = [Home::new(), Home::new()];
    let drivers = [Driver::start(&homes[0], server, &[]), Driver::start(&homes[1], server, &[])];
    let first = Staged::create(&drivers[0], server, &bucket, "SINGLE_NODE_WRITER");
    let id = first.id.clone();
    first.unstage();
    let mut written = String::new();
    for round in 0..6 {
        let driver = &drivers[round % 2];
        let volume = Staged { driver, server, id: id.clone(), mode: "SINGLE_NODE_WRITER" };
        fs::create_dir_all(volume.staging()).unwrap();
        volume.stage(&[]);
        let target = driver.home.path("pod");
        volume.publish(&target, false);
        let line = format!("round {round}\n");
        let script = format!(
            "mkdir -p d; echo 'round {round}' >> d/log; mv -f d/log d/next; mv d/next d/log; cat d/log; ls d"
        );
        let output = in_pod(driver.home, &target, &script);
        written.push_str(&line);
        assert_eq!((output.code, output.out), (0, format!("{written}log\n")), "{}", output.err);
        volume.unpublish(&target);
        volume.unstage();
    }
    drivers[0].ok("Controller/DeleteVolume", &json!({ "volumeId": id, "secrets": secrets(server) }));
    assert_eq!(keys(server, &bucket, ""), [""; 0]);
}

#[test]
fn s792_mounts_continue_without_the_driver_and_dead_ones_are_made_again() {
    let server = servers::shared_minio();
    let bucket = s3::new_bucket(server, "csi-restart");
    let home = Home::new();
    let driver = Driver::start(&home, server, &[]);
    let volume = Staged::create(&driver, server, &bucket, "SINGLE_NODE_WRITER");
    let (id, target, staging) = (volume.id.clone(), home.path("pod"), volume.staging());
    volume.publish(&target, false);
    fs::write(target.join("file"), "one").unwrap();
    driver.stop(Signal::KILL);
    assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "one");
    let pid = || mount_pid(&home, &staging);
    let first = pid();

    // A new driver finds the mount, and replaces it when its process is killed.
    let driver = Driver::start(&home, server, &[]);
    let volume = Staged { driver: &driver, server, id, mode: "SINGLE_NODE_WRITER" };
    volume.stage(&["metadata-ttl=0s"]);
    assert_eq!(pid(), first);
    home.signal(first, Signal::KILL);
    eventually("the volume is mounted again", || {
        fs::read_to_string(target.join("file")).is_ok_and(|text| text == "one")
    });
    assert_ne!(pid(), first);

    // The end of a container stores everything, and the next driver mounts the volume again.
    driver_ends_with_its_mounts(&home, server, &driver, &target, &staging);
    let driver = Driver::start(&home, server, &["--end-mounts"]);
    let volume = Staged { driver: &driver, server, ..volume };
    eventually("the volume is mounted again", || {
        fs::read_to_string(target.join("last")).is_ok_and(|text| text == "two")
    });
    volume.unpublish(&target);
    volume.unstage_and_delete();
    assert_eq!(fs::read_dir(home.path("records")).unwrap().count(), 0);
}

#[test]
fn s792_a_mount_whose_record_was_lost_is_replaced_and_unmounted() {
    let server = servers::shared_minio();
    let bucket = s3::new_bucket(server, "csi-lost");
    let home = Home::new();
    let driver = Driver::start(&home, server, &[]);
    let volume = Staged::create(&driver, server, &bucket, "SINGLE_NODE_WRITER");
    let lose_records = || {
        for entry in fs::read_dir(home.path("records")).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    };
    let first = mount_pid(&home, &volume.staging());
    lose_records();
    volume.stage(&["ro"]);
    assert_ne!(mount_pid(&home, &volume.staging()), first);
    assert!(fs::write(volume.staging().join("file"), "x").is_err());
    lose_records();
    volume.unstage_and_delete();
}

/// Replaces the driver by one that ends its mounts, and ends it.
fn driver_ends_with_its_mounts(
    home: &Home,
    server: &S3Server,
    old: &Driver<'_>,
    target: &Path,
    staging: &Path,
) {
    home.signal(old.child.id(), Signal::KILL);
    fs::write(target.join("last"), "two").unwrap();
    let last = mount_pid(home, staging);
    let driver = Driver::start(home, server, &["--end-mounts"]);
    driver.stop(Signal::TERM);
    eventually("the process of the mount has ended", || !Path::new(&format!("/proc/{last}/root")).exists());
    assert!(!home.path("csi.sock").exists());
    assert!(fs::read_dir(home.path("records")).unwrap().count() > 0);
}

fn mount_pid(home: &Home, at: &Path) -> u32 {
    let status = home.ok(["status".as_ref(), at.as_os_str(), "--json".as_ref()]);
    let status: Value = serde_json::from_str(&status).unwrap();
    status["pid"].as_u64().unwrap().try_into().unwrap()
}

#[test]
fn s793_secrets_are_only_in_files_of_the_drivers_user() {
    let server = servers::shared_minio();
    let bucket = s3::new_bucket(server, "csi-secret");
    let home = Home::new();
    let driver = Driver::start(&home, server, &["--log-level=trace"]);
    let volume = Staged::create(&driver, server, &bucket, "SINGLE_NODE_WRITER");
    let pid = mount_pid(&home, &volume.staging());
    let seen = ["cmdline", "environ"].map(|file| fs::read(format!("/proc/{pid}/{file}")).unwrap()).concat();
    let seen = format!("{}{}", String::from_utf8_lossy(&seen), driver.log());
    assert!(seen.contains("--access-key-file=") && !seen.contains(server.secret_key()), "{seen}");
    let mut holding = Vec::new();
    for directory in ["records", "states"] {
        find_secret(&home.path(directory), server.secret_key(), &mut holding);
    }
    assert_eq!(holding.len(), 1, "{holding:?}");
    assert_eq!(fs::metadata(&holding[0]).unwrap().permissions().mode() & 0o777, 0o600);
    let request = json!({ "volumeId": "x", "secrets": { "password": "hush-hush" } });
    driver.ok("Controller/DeleteVolume", &request);
    let request = json!({ "volumeId": volume.id, "secrets": { "password": "hush-hush" } });
    let refused = driver.refused("Controller/DeleteVolume", &request);
    assert!(refused.contains("AWS_ACCESS_KEY_ID") && !refused.contains("hush"), "{refused}");
    assert!(!driver.log().contains("hush-hush"));
    volume.unstage_and_delete();
    assert_eq!(fs::read_dir(home.path("records")).unwrap().count(), 0);
}

/// Collects the files below a directory that contain a text.
fn find_secret(dir: &Path, text: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            find_secret(&entry.path(), text, found);
        } else if entry.file_type().unwrap().is_file() {
            let mut bytes = Vec::new();
            fs::File::open(entry.path()).unwrap().read_to_end(&mut bytes).unwrap();
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(entry.path());
            }
        }
    }
}

#[test]
fn s794_a_volume_in_a_pod_needs_its_own_key_and_ends_with_the_pod() {
    let server = servers::shared_minio();
    let bucket = s3::new_bucket(server, "csi-inline");
    let home = Home::new();
    let driver = Driver::start(&home, server, &[]);
    let target = home.path("pods/inline");
    let request = |attributes: Value, secrets: Value| {
        let mut context = attributes;
        context["csi.storage.k8s.io/ephemeral"] = "true".into();
        json!({
            "volumeId": "csi-0123",
            "targetPath": target,
            "volumeCapability": capability("SINGLE_NODE_WRITER", &[]),
            "volumeContext": context,
            "secrets": secrets,
        })
    };
    let unpublish = json!({ "volumeId": "csi-0123", "targetPath": target });
    let url = format!("s3://{bucket}/tmp");
    let scratch = json!({ "volume": url, "scratch": "true", "mountOptions": "file-mode=600" });
    for (attributes, secrets) in [
        (scratch.clone(), json!({})),
        (json!({ "volume": "file:///etc" }), secrets(server)),
        (json!({ "volume": url, "mountOptions": "log-file=/etc/cron.d/x" }), secrets(server)),
    ] {
        let refused = driver.refused("Node/NodePublishVolume", &request(attributes, secrets));
        assert!(refused.starts_with("InvalidArgument"), "{refused}");
    }
    driver.ok("Node/NodePublishVolume", &request(scratch.clone(), secrets(server)));
    driver.ok("Node/NodePublishVolume", &request(scratch, secrets(server)));
    let wrote = in_pod(&home, &target, "echo hello > file");
    assert_eq!(wrote.code, 0, "{wrote:?}");
    assert!(keys(server, &bucket, "tmp/").contains(&"tmp/csi-0123/file".to_owned()));
    driver.ok("Node/NodeUnpublishVolume", &unpublish);
    assert!(!target.exists());
    assert_eq!(keys(server, &bucket, "tmp/"), [""; 0]);

    // Without `scratch`, the objects stay.
    driver.ok("Node/NodePublishVolume", &request(json!({ "volume": url }), secrets(server)));
    fs::write(target.join("kept"), "x").unwrap();
    driver.ok("Node/NodeUnpublishVolume", &unpublish);
    assert_eq!(keys(server, &bucket, "tmp/kept"), ["tmp/kept"]);
    for directory in ["records", "states"] {
        assert_eq!(fs::read_dir(home.path(directory)).unwrap().count(), 0, "{directory}");
    }
}

#[test]
fn s795_objects_that_the_driver_did_not_make_are_never_deleted() {
    let server = servers::shared_minio();
    let bucket = s3::new_bucket(server, "csi-foreign");
    let home = Home::new();
    let driver = Driver::start(&home, server, &[]);
    let client = s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    fs::write(client.path("source"), "x").unwrap();
    client.ok(["object", "put", &format!("s3://{bucket}/pvc-9/file"), "source"]);
    let create = json!({
        "name": "pvc-9",
        "volumeCapabilities": [capability("SINGLE_NODE_WRITER", &[])],
        "parameters": { "bucket": bucket },
        "secrets": secrets(server),
    });
    assert!(driver.refused("Controller/CreateVolume", &create).starts_with("AlreadyExists"));
    for id in [format!("s3://{bucket}/pvc-9"), format!("s3://{bucket}")] {
        let refused =
            driver.refused("Controller/DeleteVolume", &json!({ "volumeId": id, "secrets": secrets(server) }));
        assert!(refused.starts_with("FailedPrecondition"), "{refused}");
    }
    assert_eq!(client.ok(["object", "get", &format!("s3://{bucket}/pvc-9/file")]), "x");
}

/// Returns the figures of the disk cache of a mount; null if it has none.
fn disk_cache(home: &Home, at: &Path) -> Value {
    let status = home.ok(["status".as_ref(), at.as_os_str(), "--json".as_ref()]);
    serde_json::from_str::<Value>(&status).unwrap()["disk_cache"].clone()
}

/// Volumes of one storage class share a cache, which outlives their mounts.
#[test]
fn s797_volumes_have_the_disk_cache_that_their_storage_class_asks_for() {
    let server = servers::shared_minio();
    let bucket = s3::new_bucket(server, "csi-cache");
    let home = Home::new();
    let driver = Driver::start(&home, server, &["--caches=caches", "--cache-limit=1GiB"]);
    let mode = "SINGLE_NODE_WRITER";
    let create = |size: &str, directory: &str| {
        json!({
            "name": "pvc-1",
            "volumeCapabilities": [capability(mode, &[])],
            "parameters": { "bucket": bucket, "cacheSize": size, "cacheDirectory": directory },
            "secrets": secrets(server),
        })
    };
    for (size, directory) in [("many", "data"), ("1Mi", "data"), ("512Mi", "../data"), ("512Mi", "pods")] {
        let refused = driver.refused("Controller/CreateVolume", &create(size, directory));
        assert!(refused.starts_with("InvalidArgument"), "{refused}");
    }
    let created = driver.ok("Controller/CreateVolume", &create("512Mi", "data"));
    let context = created["volume"]["volumeContext"].clone();
    assert_eq!(context, json!({ "cacheSize": "512Mi", "cacheDirectory": "data" }));
    let id = created["volume"]["volumeId"].as_str().unwrap().to_owned();
    let volume = Staged { driver: &driver, server, id, mode };
    fs::create_dir_all(volume.staging()).unwrap();
    let stage = |context: &Value| {
        json!({
            "volumeId": volume.id,
            "stagingTargetPath": volume.staging(),
            "volumeCapability": capability(mode, &["metadata-ttl=0s"]),
            "volumeContext": context,
            "secrets": secrets(server),
        })
    };
    let too_large = json!({ "cacheSize": "2Gi" });
    let refused = driver.refused("Node/NodeStageVolume", &stage(&too_large));
    assert!(refused.starts_with("InvalidArgument") && refused.contains("--cache-limit"), "{refused}");

    let body: Vec<u8> =
        (0..3_000_000_u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8).collect();
    driver.ok("Node/NodeStageVolume", &stage(&context));
    fs::write(volume.staging().join("file"), &body).unwrap();
    volume.unstage();
    // The next mount reads from the disk what this one has read.
    driver.ok("Node/NodeStageVolume", &stage(&context));
    assert!(fs::read(volume.staging().join("file")).unwrap() == body);
    let figures = || disk_cache(&home, &volume.staging());
    assert_eq!(figures()["limit_bytes"], 512 << 20);
    eventually("the bytes are cached", || figures()["stored_bytes"].as_u64().unwrap() >= body.len() as u64);
    volume.unstage();
    driver.ok("Node/NodeStageVolume", &stage(&context));
    assert!(fs::read(volume.staging().join("file")).unwrap() == body);
    assert!(figures()["hit_bytes"].as_u64().unwrap() >= body.len() as u64, "{}", figures());
    assert!(home.path("caches/data").is_dir());
    volume.unstage();
    // A volume that asks for none has none.
    driver.ok("Node/NodeStageVolume", &stage(&json!({})));
    assert_eq!(figures(), Value::Null);
    volume.unstage_and_delete();
}

#[test]
fn s797_volumes_in_pods_share_a_cache_and_drivers_without_room_refuse() {
    let server = servers::shared_minio();
    let bucket = s3::new_bucket(server, "csi-pod-cache");
    let home = Home::new();
    let target = home.path("pods/inline");
    let request = |attributes: Value| {
        let mut context = attributes;
        context["csi.storage.k8s.io/ephemeral"] = "true".into();
        context["volume"] = format!("s3://{bucket}/tmp").into();
        json!({
            "volumeId": "csi-0123",
            "targetPath": target,
            "volumeCapability": capability("SINGLE_NODE_WRITER", &[]),
            "volumeContext": context,
            "secrets": secrets(server),
        })
    };
    let driver = Driver::start(&home, server, &[]);
    let refused = driver.refused("Node/NodePublishVolume", &request(json!({ "cacheSize": "256Mi" })));
    assert!(refused.starts_with("FailedPrecondition") && refused.contains("--caches"), "{refused}");
    driver.stop(Signal::TERM);
    let driver = Driver::start(&home, server, &["--caches=caches"]);
    for attributes in [
        json!({ "cacheSize": "256Mi", "cacheDirectory": "data" }),
        json!({ "cacheSize": "11Gi" }),
        json!({ "mountOptions": "cache-dir=/etc" }),
        json!({ "mountOptions": "cache-size=1GiB" }),
    ] {
        let refused = driver.refused("Node/NodePublishVolume", &request(attributes));
        assert!(refused.starts_with("InvalidArgument"), "{refused}");
    }
    driver.ok("Node/NodePublishVolume", &request(json!({ "cacheSize": "256Mi" })));
    assert_eq!(disk_cache(&home, &target)["limit_bytes"], 256 << 20);
    assert!(home.path("caches/pods").is_dir());
    driver.ok("Node/NodeUnpublishVolume", &json!({ "volumeId": "csi-0123", "targetPath": target }));
}
