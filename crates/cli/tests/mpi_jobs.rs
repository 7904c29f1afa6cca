//! Batches under the calls of MPI-IO: an OpenMPI job, and files that get their length before their bytes.

use crate::fixture::{Home, capture, tenon};
use crate::s3::{home, new_bucket};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Files of the job: `scripts/mpi-job` makes 100,000 by default.
const FILES: usize = 2000;

/// Returns the number after a label in the output of the job.
fn number_before(out: &str, label: &str) -> f64 {
    let line = out.lines().find(|line| line.contains(label)).unwrap_or_else(|| panic!("no '{label}': {out}"));
    let before = line.split(label).next().unwrap();
    before.trim_end().rsplit(' ').next().unwrap().parse().unwrap()
}

/// Eight ranks write through MPI-IO, and one of them is killed. The script compares all bytes through the mount, by S3 and in a view with
/// those of the same job in a local directory, and fails if they differ, or if `tenon gc` leaves more than twice the live bytes.
#[test]
fn s680_an_openmpi_job_makes_the_same_files_as_on_a_local_disk() {
    assert!(
        Path::new("/usr/bin/mpicc").exists(),
        "no mpicc: run scripts/packages openmpi-bin libopenmpi-dev"
    );
    let server = servers::shared_minio();
    let bucket = new_bucket(server, "mpi-job");
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/mpi-job");
    let programs = servers::program("mc");
    let mut job = home.command(script);
    job.args(["job", &FILES.to_string()]).env("TENON", tenon()).env("BUCKET", bucket);
    let run = capture(job.env("TENON_SERVERS_DIR", programs.parent().unwrap()));
    assert_eq!(run.code, 0, "{run:?}");
    for way in ["mount", "S3", "view"] {
        let compared = |line: &str| line.starts_with(way) && line.ends_with(": 2020 files are equal");
        assert!(run.out.lines().any(compared), "{way}: {}", run.out);
    }
    assert!(run.out.contains(" 0 refused") && run.out.contains("is clean"), "{}", run.out);
    let puts = number_before(&run.out, " for each small file");
    assert!(puts > 0.0 && puts <= 0.03, "{}", run.out);
}

/// Regression: a file of a batch whose length was set before its bytes were written, as MPI-IO does, and a small one that was appended to
/// or edited after its close, became an object of its own.
#[test]
fn s609_small_files_share_objects_however_they_are_written() {
    let home = Home::new();
    let job = home.mount_with_job(true);
    let mut expected = Vec::new();
    for number in 0..40 {
        let path = job.join(format!("file-{number}"));
        let mut bytes: Vec<u8> = (0..500 + number * 50).map(|at| (at * 7 + number) as u8).collect();
        let file =
            OpenOptions::new().create(true).read(true).write(true).truncate(false).open(&path).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        // The last bytes of some files stay zeros.
        let written = bytes.len() - number % 4 * 100;
        bytes[written..].fill(0);
        file.write_all_at(&bytes[..written], 0).unwrap();
        drop(file);
        match number % 3 {
            0 => {
                File::options().append(true).open(&path).unwrap().write_all(b"appended").unwrap();
                bytes.extend(b"appended");
            }
            1 => {
                let file = File::options().write(true).open(&path).unwrap();
                file.write_all_at(b"edited", 300).unwrap();
                file.sync_all().unwrap();
                file.write_all_at(b"again", 100).unwrap();
                bytes[300..306].copy_from_slice(b"edited");
                bytes[100..105].copy_from_slice(b"again");
            }
            _ => {}
        }
        expected.push((path, bytes));
    }
    // A file that outgrows packs keeps its bytes, of which the first are in a pack.
    let long = job.join("long");
    fs::write(&long, vec![1; 60_000]).unwrap();
    let file = File::options().write(true).open(&long).unwrap();
    file.write_all_at(&[2; 9_000_000], 70_000).unwrap();
    drop(file);
    expected.push((long, [vec![1; 60_000], vec![0; 10_000], vec![2; 9_000_000]].concat()));
    let assert_all = || {
        for (path, bytes) in &expected {
            assert!(fs::read(path).unwrap() == *bytes, "{}", path.display());
        }
    };
    assert_all();
    home.ok(["batch", "end", "mnt/job"]);
    assert_all();
    home.remount();
    assert_all();
    home.ok(["gc", "mnt"]);
    assert_all();
    let (packs, others): (Vec<_>, Vec<_>) =
        home.batch_objects().into_iter().partition(|key| key.contains("/pack-"));
    assert!(packs.len() == 1 && others.len() <= 2, "{packs:?} {others:?}");
    home.ok(["umount", "mnt"]);
    home.ok(["fsck", "volume"]);
}
