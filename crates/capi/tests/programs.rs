//! C programs on volumes by path and by inode.

use crate::compiler::Program;
use crate::volumes::{TestVolume, text};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn check_files(volume: &TestVolume, naming: &str) {
    let program = Program::compile("tests/programs/files.c");
    let mut command = program.command();
    command.args([&volume.url, naming]).args(volume.options());
    let output = volume.run(command);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(volume.private_states(), 0);
    let mounted = volume.mount();
    assert_eq!(fs::read_to_string(mounted.path().join("left")).unwrap(), "stored");
    assert_eq!(fs::read_to_string(mounted.path().join("dir/file")).unwrap(), "0123");
}

#[test]
fn s780_s781_files_of_a_volume_named_by_path() {
    check_files(&TestVolume::by_path("files-path"), "path");
}

#[test]
fn s780_s781_files_of_a_volume_named_by_inode() {
    check_files(&TestVolume::by_inode("files-inode"), "inode");
}

#[test]
fn s639_s782_a_batch_is_private_resumed_after_a_kill_and_merged_with_its_refused_changes() {
    let volume = TestVolume::by_inode("batches");
    let program = Program::compile("tests/programs/batches.c");
    let run = |step: &str| {
        let mut command = program.command();
        command.args([&volume.url, step]).args(volume.options());
        volume.run(command)
    };
    let killed = run("begin");
    assert_eq!(killed.status.code(), None, "{}", text(&killed));
    let resumed = run("resume");
    assert!(resumed.status.success(), "{}", text(&resumed));
    let mounted = volume.mount();
    // The file that the batch could not name is beside the one of the volume.
    let names = fs::read_dir(mounted.path().join("job")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let kept =
        names.iter().find(|name| name.starts_with("taken.batch-")).unwrap_or_else(|| panic!("{names:?}"));
    assert_eq!(fs::read_to_string(mounted.path().join("job").join(kept)).unwrap(), "by the batch");
    // The mount has taken over the batch that the program left open.
    assert_eq!(fs::read_to_string(mounted.path().join("job/inner/kept")).unwrap(), "kept");
    let mount = mounted.path().to_string_lossy().into_owned();
    assert!(volume.tenon(["batch", "list", &mount]).contains("/job/inner"));
    let ended = volume.tenon(["batch", "end", &format!("{mount}/job/inner")]);
    assert!(ended.contains("0 refused"), "{ended}");
}

#[test]
fn s782_s784_a_volume_named_by_path_has_no_batches_and_is_shared_with_a_mount() {
    let volume = TestVolume::by_path("no-batches");
    let program = Program::compile("tests/programs/batches.c");
    let mounted = volume.mount();
    fs::write(mounted.path().join("of-the-mount"), "x").unwrap();
    let mut command = program.command();
    command.args([&volume.url, "refused"]).args(volume.options());
    let output = volume.run(command);
    assert!(output.status.success(), "{}", text(&output));
    drop(mounted);
}

#[test]
fn s784_a_volume_whose_names_are_on_this_machine_is_open_once() {
    let volume = TestVolume::by_inode("busy");
    let program = Program::compile("tests/programs/batches.c");
    let mounted = volume.mount();
    let mut command = program.command();
    command.args([&volume.url, "begin"]).args(volume.options());
    let output = volume.run(command);
    assert_eq!(output.status.code(), Some(libc::EBUSY), "{}", text(&output));
    assert!(text(&output).contains(&*mounted.path().to_string_lossy()), "{}", text(&output));
}

/// Runs the example of the documentation, and compares what a mount then shows.
fn run_example(volume: &TestVolume, files: usize, printed: &str) {
    let program = Program::compile("examples/tenon-job.c");
    let mut command = program.command();
    command.args([&volume.url, "results", &files.to_string()]).args(volume.options());
    let output = volume.run(command);
    assert!(output.status.success() && text(&output).contains(printed), "{}", text(&output));
    println!("{}", text(&output));
    let mounted = volume.mount();
    let names = listed(&mounted.path().join("results"));
    let expected: BTreeSet<String> =
        (0..files).map(|number| format!("step-{:04}/file-{number:06}", number / 1000)).collect();
    assert_eq!(names, expected);
    for number in [0, 1, 25, 26, files - 1] {
        let path = format!("results/step-{:04}/file-{number:06}", number / 1000);
        let content = vec![b'a' + (number % 26) as u8; 2000];
        assert!(fs::read(mounted.path().join(path)).unwrap() == content, "{number}");
    }
}

fn listed(root: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for step in fs::read_dir(root).unwrap() {
        let step = step.unwrap();
        for file in fs::read_dir(step.path()).unwrap() {
            let (step, file) = (step.file_name(), file.unwrap().file_name());
            names.insert(format!("{}/{}", step.to_string_lossy(), file.to_string_lossy()));
        }
    }
    names
}

#[test]
fn s782_another_mount_lists_the_files_of_a_committed_batch() {
    run_example(&TestVolume::by_inode("example-inode"), 5000, "0 refused");
}

#[test]
fn s780_the_example_works_without_a_batch() {
    run_example(&TestVolume::by_path("example-path"), 500, "500 files without a batch");
}
