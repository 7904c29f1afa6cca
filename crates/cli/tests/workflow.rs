//! The workflow of the DelveFS paper (section IV-D, "Short read alignment") with real parts: Debian's bowtie2 and its
//! examples, a MinIO that sends notifications by webhook, boto3 as the sequencer, an event handler, and mounts with a
//! ruleset each.

use crate::fixture::{Home, capture, eventually};
use crate::handlers::{RunningTenon, free_port};
use crate::s3::{home, new_bucket};
use crate::view_mounts::{Client, names};
use servers::S3Server;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;

const EXAMPLES: &str = "/usr/share/doc/bowtie2/examples";
const SECRET: &str = "hush";

/// An aligner's views: the genome, the index that the first aligner builds from it, the reads addressed to this
/// aligner, and a directory for results.
const ALIGNER: &str = "
reference: {container: BUCKET, object: '**/*.fa', recency: 100ms}
index:
  container: BUCKET
  object: index/*.bt2*
  properties: {made-of: lambda}
  recency: 100ms
reads:
  container: BUCKET
  object: '**/*.fq'
  properties: {align-on: NAME}
  recency: 100ms
aligned:
  container: BUCKET
  object: aligned/*.sam
  properties: {stage: aligned}
  output: {aligned-on: NAME}
  recency: 100ms
";

/// The views of the program that processes the results.
const READER: &str = "
results: {container: BUCKET, properties: {stage: aligned}, recency: 100ms}
from-two: {container: BUCKET, properties: {aligned-on: two}, recency: 100ms}
";

/// The sequencer: an S3 client that stores reads, each addressed to the aligner that shall align them. The last file
/// is addressed to no aligner.
const SEQUENCER: &str = r#"
import boto3, os
s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
bucket = os.environ["BUCKET"]
shares = ["one", "two", "one", "one", "two", "nobody"]
lines = open("plain/reads_1.fq").readlines()[:len(shares) * 4 * 500]
for lane, name in enumerate(shares):
    with open(f"plain/lane-{lane}.fq", "w") as plain:
        plain.writelines(lines[lane * 2000:][:2000])
    s3.upload_file(f"plain/lane-{lane}.fq", bucket, f"2026/11/lane-{lane}.fq", ExtraArgs={"Metadata": {"align-on": name}})
"#;

const GENOME: &str = r#"
import boto3, os
s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
s3.put_bucket_notification_configuration(Bucket=os.environ["BUCKET"], NotificationConfiguration={"QueueConfigurations": [
    {"QueueArn": "arn:minio:sqs:us-east-1:TENON:webhook", "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}]})
s3.upload_file("plain/lambda_virus.fa", os.environ["BUCKET"], "genomes/lambda_virus.fa")
"#;

/// A process that is killed at the end of the test.
struct Subscriber(Child);

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// All machines of the workflow, in one home.
struct Laboratory {
    home: Home,
    bucket: String,
    handler: RunningTenon,
}

impl Laboratory {
    fn new(server: &S3Server, events: u16) -> Self {
        let bucket = new_bucket(server, "workflow");
        let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint()).with("BUCKET", &bucket);
        fs::write(home.path("secret"), SECRET).unwrap();
        fs::set_permissions(home.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::create_dir(home.path("plain")).unwrap();
        for name in ["reference/lambda_virus.fa", "reads/reads_1.fq"] {
            let from = format!("{EXAMPLES}/{name}.gz");
            assert!(Path::new(&from).exists(), "no {from}: run scripts/packages bowtie2 bowtie2-examples");
            home.shell(&format!("gunzip -c {from} > plain/{}", name.rsplit('/').next().unwrap()));
        }
        let source = format!("webhook://127.0.0.1:{events}/minio");
        let words = ["events", "serve", "--listen=127.0.0.1:0", "--events", &source, "--event-secret=secret"];
        let handler = RunningTenon::start(&home, &words);
        Self { home, bucket, handler }
    }

    /// Mounts views without a volume and returns the mount point.
    fn mount(&self, name: &str, rules: &str) -> PathBuf {
        let (file, dir) = (format!("{name}.yaml"), self.home.path(name));
        let rules = rules.replace("BUCKET", &self.bucket).replace("NAME", name);
        fs::write(self.home.path(&file), rules).unwrap();
        fs::create_dir(&dir).unwrap();
        let handler = self.handler.first_line();
        self.home.ok([
            "mount",
            "--views",
            &file,
            name,
            "--handler",
            &handler,
            "--state-dir",
            &format!("state-{name}"),
        ]);
        dir
    }

    fn python(&self, program: &str) {
        let output = capture(self.home.command("/usr/bin/python3").args(["-c", program]));
        assert_eq!(output.code, 0, "{output:?}");
    }

    fn subscribe(&self, mount: &Path) -> Subscriber {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients/subscriber.sh");
        Subscriber(self.home.command("/bin/bash").arg(script).arg(mount).spawn().unwrap())
    }

    /// Returns the alignments that bowtie2 computes from plain local files, without any view.
    fn align_plain_files(&self, lane: u32) -> String {
        self.home.shell(&format!("bowtie2 --quiet -x plain/lambda -U plain/lane-{lane}.fq"))
    }
}

/// Returns all lines except the one that quotes the command line.
fn alignments(sam: &str) -> Vec<&str> {
    sam.lines().filter(|line| !line.starts_with("@PG")).collect()
}

#[test]
fn s261_s265_reads_find_their_aligners_and_results_their_readers() {
    let events = free_port();
    let server = servers::minio_with(&[
        ("MINIO_NOTIFY_WEBHOOK_ENABLE_TENON", "on"),
        ("MINIO_NOTIFY_WEBHOOK_ENDPOINT_TENON", &format!("http://127.0.0.1:{events}/minio")),
        ("MINIO_NOTIFY_WEBHOOK_AUTH_TOKEN_TENON", SECRET),
    ]);
    let laboratory = Laboratory::new(&server, events);
    let home = &laboratory.home;
    let [one, two] = ["one", "two"].map(|name| laboratory.mount(name, ALIGNER));
    let reader = laboratory.mount("reader", READER);
    let (results, from_two) = (reader.join("results"), reader.join("from-two"));
    assert_eq!((names(&one.join("reads")), names(&results)), (Vec::new(), Vec::new()));

    // The genome arrives. The first aligner builds the index, and both aligners see it.
    laboratory.python(GENOME);
    eventually("the genome appears", || one.join("reference/lambda_virus.fa").exists());
    home.shell("bowtie2-build --quiet one/reference/lambda_virus.fa one/index/lambda");
    home.shell("bowtie2-build --quiet plain/lambda_virus.fa plain/lambda");
    let index: Vec<String> =
        names(&home.path("plain")).into_iter().filter(|name| name.ends_with("bt2")).collect();
    assert_eq!((index.len(), names(&one.join("index"))), (6, index.clone()));
    eventually("the second aligner sees the index", || names(&two.join("index")) == index);
    for name in &index {
        assert!(
            fs::read(two.join("index").join(name)).unwrap()
                == fs::read(home.path("plain").join(name)).unwrap()
        );
    }

    // The sequencer stores reads, and each aligner aligns its share.
    let subscribers = [&one, &two].map(|mount| laboratory.subscribe(mount));
    laboratory.python(SEQUENCER);
    let lanes = [0, 1, 2, 3, 4].map(|lane| format!("lane-{lane}.sam"));
    eventually("all results appear", || names(&results) == lanes);
    let client = Client::of(&server, &laboratory.bucket);
    assert_eq!(names(&from_two), ["lane-1.sam", "lane-4.sam"]);
    assert_eq!(names(&two.join("reads")), ["lane-1.fq", "lane-4.fq"]);
    for lane in 0..5 {
        let (name, plain) = (format!("lane-{lane}.sam"), laboratory.align_plain_files(lane));
        let result = fs::read_to_string(results.join(&name)).unwrap();
        assert!(alignments(&result) == alignments(&plain) && alignments(&plain).len() > 500, "{name}");
        let by = if from_two.join(&name).exists() { "two" } else { "one" };
        let properties = client.user(&format!("aligned/{name}"));
        assert_eq!((properties["stage"].as_str(), properties["aligned-on"].as_str()), ("aligned", by));
    }
    drop(subscribers);
    for name in ["one", "two", "reader"] {
        home.ok(["umount", name]);
    }
}
