//! An object drive on a file: formatted, served, killed, served again, mounted, looked at.

use crate::endpoint::{KEY, SECRET};
use crate::fixture::{Home, said, tenon};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};

/// A drive that is served until it is killed.
struct Serving(Child, String);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Home {
    fn with_drive(self) -> Self {
        self.ok(["drive", "format", "drive.img", "--size", "64MiB"]);
        self
    }

    fn drive(&self) -> String {
        format!("drive://{}", self.path("drive.img").display())
    }

    fn serve_drive(&self) -> Serving {
        let mut command = self.command(tenon());
        command.args(["serve", &self.drive(), "--listen", "127.0.0.1:0", "--users", "users.toml"]);
        let mut serving = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(serving.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Serving(serving, url.trim().to_owned())
    }

    fn boto3(&self, url: &str, program: &str) {
        let mut script = self.command("/usr/bin/python3");
        let program = format!(
            "import boto3, os\ns3 = boto3.client('s3', endpoint_url=os.environ['URL'], region_name='us-east-1')\n{program}"
        );
        script.args(["-c", &program]).env("URL", url);
        let outcome = said(script.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET));
        assert_eq!(outcome.code, 0, "{outcome:?}");
    }
}

const STORE: &str = "
s3.create_bucket(Bucket='photos')
s3.put_object(Bucket='photos', Key='small', Body=b'kept', Metadata={'by': 'tests'}, Tagging='a=b')
s3.put_object(Bucket='photos', Key='large', Body=b'0123456789abcdef' * 100_000)
upload = s3.create_multipart_upload(Bucket='photos', Key='joined')['UploadId']
sizes = [5 << 20, 1000]
parts = [s3.upload_part(Bucket='photos', Key='joined', UploadId=upload, PartNumber=n, Body=b'x' * size) for n, size in enumerate(sizes, 1)]
parts = [{'PartNumber': n, 'ETag': part['ETag']} for n, part in enumerate(parts, 1)]
s3.complete_multipart_upload(Bucket='photos', Key='joined', UploadId=upload, MultipartUpload={'Parts': parts})
s3.put_object(Bucket='photos', Key='gone', Body=b'')
s3.delete_object(Bucket='photos', Key='gone')
";

const COMPARE: &str = "
assert [o['Key'] for o in s3.list_objects_v2(Bucket='photos')['Contents']] == ['joined', 'large', 'small']
small = s3.get_object(Bucket='photos', Key='small')
assert small['Body'].read() == b'kept' and small['Metadata'] == {'by': 'tests'}
assert s3.get_object_tagging(Bucket='photos', Key='small')['TagSet'] == [{'Key': 'a', 'Value': 'b'}]
assert s3.get_object(Bucket='photos', Key='large', Range='bytes=70000-70003')['Body'].read() == b'0123'
assert s3.get_object(Bucket='photos', Key='joined')['Body'].read() == b'x' * ((5 << 20) + 1000)
";

#[test]
fn a_drive_that_was_killed_has_what_it_acknowledged() {
    let home = Home::new().with_users().with_drive();
    let serving = home.serve_drive();
    home.boto3(&serving.1, STORE);
    home.boto3(&serving.1, COMPARE);
    let refused = home.refused(["drive", "info", "drive.img"]);
    assert!(refused.contains("in use by another tenon"), "{refused}");
    drop(serving);
    home.boto3(&home.serve_drive().1, COMPARE);
    let info: serde_json::Value =
        serde_json::from_str(&home.ok(["drive", "info", "drive.img", "--json"])).unwrap();
    assert_eq!(info["len_bytes"], 64 << 20);
    assert!(home.ok(["drive", "map", "drive.img"]).contains('.'));
    assert!(home.ok(["drive", "check", "drive.img"]).ends_with(" 0 problems\n"));
    assert!(home.ok(["drive", "scrub", "drive.img"]).ends_with("0 damaged\n"));
}

#[test]
fn a_drive_is_mounted_as_directories() {
    let home = Home::new().with_users().with_drive();
    let serving = home.serve_drive();
    home.boto3(&serving.1, STORE);
    drop(serving);
    home.ok(["mount", &home.drive(), "mnt"]);
    let photos = home.mnt().join("photos");
    assert_eq!(fs::read(photos.join("small")).unwrap(), b"kept");
    fs::write(photos.join("from-a-program"), "bytes").unwrap();
    home.ok(["umount", "mnt"]);
    home.boto3(
        &home.serve_drive().1,
        "assert s3.get_object(Bucket='photos', Key='from-a-program')['Body'].read() == b'bytes'",
    );
}

#[test]
fn what_is_no_drive_is_refused_and_kept() {
    let home = Home::new();
    fs::write(home.path("precious.img"), vec![7; 64 << 20]).unwrap();
    assert!(home.refused(["drive", "info", "precious.img"]).contains("not a drive"));
    assert!(home.refused(["drive", "format", "precious.img"]).contains("--force"));
    assert!(home.refused(["drive", "format", "precious.img", "--size", "1GiB"]).contains("there already"));
    assert!(home.refused(["drive", "format", "tiny.img", "--size", "1MiB"]).contains("too small"));
    assert_eq!(fs::read(home.path("precious.img")).unwrap(), vec![7; 64 << 20]);
}

#[test]
fn damage_is_found_by_a_scrub() {
    let home = Home::new().with_users().with_drive();
    let serving = home.serve_drive();
    home.boto3(&serving.1, STORE);
    drop(serving);
    home.serve_drive();
    let image = fs::read(home.path("drive.img")).unwrap();
    let at = image.windows(32).position(|window| window == b"0123456789abcdef0123456789abcdef").unwrap();
    let file = OpenOptions::new().write(true).open(home.path("drive.img")).unwrap();
    file.write_all_at(b"!", at as u64 + 5000).unwrap();
    let said = home.tenon(["drive", "scrub", "drive.img"]);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.out.contains("'large'"), "{said:?}");
}
