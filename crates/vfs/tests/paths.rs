//! Front ends that get paths instead of inodes.

use crate::world::{CALLER, World, program};
use std::sync::Arc;
use vfs::Ino;
use vfs::paths::{self, OpenOptions};

/// The Python package returned EEXIST if another thread created the file between the lookup and the creation.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn programs_that_create_a_file_at_the_same_time_open_one_file() {
    let world = Arc::new(World::new().await);
    let programs: Vec<_> = (0..4)
        .map(|_| {
            let world = world.clone();
            program(move || async move {
                let options =
                    OpenOptions { flags: libc::O_RDWR | libc::O_CREAT, mode: 0o644, caller: CALLER };
                let mut inodes = Vec::new();
                for number in 0..100 {
                    let path = format!("file-{number}");
                    let (node, opened) =
                        paths::open(&world.fs, Ino::ROOT, path.as_bytes(), options).await.unwrap();
                    inodes.push(node.ino());
                    world.fs.release(opened.handle).await.unwrap();
                }
                inodes
            })
        })
        .collect();
    let mut inodes = Vec::new();
    for program in programs {
        inodes.push(program.await.unwrap());
    }
    assert!(inodes.iter().all(|others| *others == inodes[0]), "{inodes:?}");
}

#[tokio::test]
async fn an_exclusive_creation_of_an_existing_name_fails() {
    let world = World::new().await;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    let options = OpenOptions { flags, mode: 0o644, caller: CALLER };
    let (_node, opened) = paths::open(&world.fs, Ino::ROOT, b"file", options).await.unwrap();
    world.fs.release(opened.handle).await.unwrap();
    let refused = paths::open(&world.fs, Ino::ROOT, b"/file", options).await.unwrap_err();
    assert_eq!(refused.errno(), libc::EEXIST);
}
