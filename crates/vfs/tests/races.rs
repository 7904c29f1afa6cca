//! Many programs in one directory at the same time, while it is listed: names and bytes stay true.

use crate::world::{Bucket, MIB, World, pattern, program};
use std::sync::Arc;
use store::Entropy;

/// Does something at random under names that all programs share; errors of a race are no news.
async fn act(world: &World, random: &Entropy) {
    let dirs = ["d1", "d2", "d1/sub"];
    let path = |random: &Entropy| format!("{}/{}", dirs[random.below(3) as usize], random.below(6));
    let (at, to) = (path(random), path(random));
    let outcome = match random.below(12) {
        0..=3 => world.write_file(&at, pattern(random.below(40_000) as usize)).await,
        4 => world.read_file(&at).await.map(drop),
        5 => world.unlink(&at).await,
        6 | 7 => world.rename(&at, &to).await,
        8 => world.names(dirs[random.below(3) as usize]).await.map(drop),
        9 => world.chmod(&at, 0o600 + random.below(64) as u16).await.map(drop),
        10 => world.truncate(&at, random.below(50_000)).await.map(drop),
        _ => world.rename(dirs[random.below(3) as usize], dirs[random.below(3) as usize]).await,
    };
    let expected = [
        libc::ENOENT,
        libc::EEXIST,
        libc::EISDIR,
        libc::ENOTDIR,
        libc::ENOTEMPTY,
        libc::EINVAL,
        libc::ESTALE,
        libc::EBADF,
    ];
    if let Err(error) = outcome {
        assert!(expected.contains(&error.errno()), "{error}: {error:?}");
    }
    if random.below(10) == 0 {
        world.expire();
    }
    for dir in dirs {
        if random.below(20) == 0 {
            world.mkdir(dir).await.ok();
        }
    }
}

async fn run(seed: u64, bucket: Bucket, steps: usize) {
    let world = Arc::new(bucket.mount(|config| config.part_size_bytes = 16 << 10).await);
    for dir in ["d1", "d2", "d1/sub"] {
        world.mkdir(dir).await.unwrap();
    }
    let programs: Vec<_> = (0..4)
        .map(|number| {
            let world = world.clone();
            program(move || async move {
                let random = Entropy::new(seed * 100 + number);
                for _ in 0..steps {
                    act(&world, &random).await;
                }
            })
        })
        .collect();
    for program in programs {
        program.await.unwrap();
    }
    world.fs.sync().await.unwrap();
    assert_eq!(world.fs.check().unwrap(), Vec::<String>::new(), "seed {seed}");
    let status = world.fs.status();
    assert_eq!((status.open_handles, status.dirty_files, status.write_bytes), (0, 0, 0), "seed {seed}");
    world.expire();
    world.assert_healthy().await;
    let keys = bucket.keys().await;
    let is_left_over = |key: &String| key.starts_with(".tenon/orphans") || key.starts_with("lost+found");
    assert!(!keys.iter().any(is_left_over), "seed {seed}: {keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s31_s80_programs_in_each_others_way() {
    for seed in 0..6 {
        run(seed, Bucket::in_memory(), 150).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s31_s80_programs_in_each_others_way_in_a_directory() {
    run(50, Bucket::in_directory(), 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s79_a_commit_and_a_rename_at_the_same_time() {
    for size in [100, 3 * MIB] {
        for directory in [false, true] {
            let world = Arc::new(World::with(|config| config.part_size_bytes = MIB as u64).await);
            world.mkdir("d").await.unwrap();
            world.mkdir("e").await.unwrap();
            for round in 0..20 {
                let (name, body) = (format!("d/{round}"), pattern(size + round));
                let handle = world.create(&name).await.unwrap();
                world.write_all(handle, &body).await.unwrap();
                let closing = {
                    let world = world.clone();
                    program(move || async move { world.close(handle).await })
                };
                let (from, to) = if directory {
                    ("d".to_owned(), "moved".to_owned())
                } else {
                    (name, format!("e/{round}"))
                };
                world.rename(&from, &to).await.unwrap();
                closing.await.unwrap().unwrap();
                let at = if directory { format!("moved/{round}") } else { to };
                assert!(world.bucket.object(&at).await.unwrap() == body, "{at}");
                if directory {
                    world.rename("moved", "d").await.unwrap();
                }
            }
            world.expire();
            world.assert_healthy().await;
        }
    }
}
