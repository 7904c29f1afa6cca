//! Drives of a pool that are missing, foreign, failed or new.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn s344_keys_that_may_be_on_a_missing_drive_are_unavailable() {
    let devices = joined(&[80, 128, 256]).await;
    let pool = open(&devices).await.unwrap();
    let store = photos(&pool).await;
    for number in 0..60 {
        put(&*store, &format!("key-{number}"), format!("body {number}")).await.unwrap();
    }
    let homes = assert_one_home_each(&pool).await;
    drop((store, pool));
    for away in 0..3 {
        let devices: Vec<SimDevice> = devices.iter().map(SimDevice::fork).collect();
        let here: Vec<SimDevice> = (0..3).filter(|n| *n != away).map(|n| devices[n].clone()).collect();
        let refused = open(&here).await.unwrap_err().to_string();
        assert!(refused.contains(&format!("drives of the pool are missing: {} (", away + 1)), "{refused}");
        let pool = Pool::open(drives(&here), DEGRADED).await.unwrap();
        let store = photos(&pool).await;
        for (name, home) in &homes {
            let found = read(&*store, name).await;
            if *home == away {
                assert!(is_unavailable(found) && is_unavailable(store.find(&key(name)).await));
                assert!(is_unavailable(put(&*store, name, "new").await));
                assert!(is_unavailable(store.delete(&key(name), Precondition::None).await));
            } else {
                assert_eq!(found.unwrap(), format!("body {}", &name[4..]));
                put(&*store, name, "new").await.unwrap();
            }
        }
        assert!(is_unavailable(put(&*store, "nobody has it", "new").await));
        assert!(is_unavailable(listed(&*store, None, 10).await));
        assert!(is_unavailable(
            store.versions().unwrap().list(ListVersions { limit: 1, ..Default::default() }).await
        ));
        assert!(is_unavailable(store.uploads().unwrap().list(b"").await));
        assert!(is_unavailable(store.settings().unwrap().set("policy", Some("new".into())).await));
        assert!(is_unavailable(store.versions().unwrap().set_state(Versioning::Enabled).await));
        assert!(is_unavailable(pool.create("another").await) && is_unavailable(pool.delete("photos").await));
        drop((store, pool));
        // With the drive back, everything is as before, and writes made meanwhile are there.
        let pool = open(&devices).await.unwrap();
        let store = photos(&pool).await;
        assert_eq!(listed(&*store, None, 10).await.unwrap().len(), 60);
        for (name, home) in &homes {
            let expected = if *home == away { format!("body {}", &name[4..]) } else { "new".into() };
            assert_eq!(read(&*store, name).await.unwrap(), expected);
        }
    }
}

/// A key that one drive cannot read may be found on another drive. If no drive has it, it is not known to be missing.
#[tokio::test(flavor = "multi_thread")]
async fn s344_a_failing_drive_does_not_hide_keys_of_others() {
    let devices = joined(&[80, 128, 256]).await;
    let pool = open(&devices).await.unwrap();
    let store = photos(&pool).await;
    for number in 0..300 {
        put(&*store, &format!("key-{number}"), "x").await.unwrap();
    }
    for (_, drive) in pool.drives() {
        drive.close().await.unwrap();
    }
    let homes = assert_one_home_each(&pool).await;
    drop((store, pool));
    let options = OpenOptions { index_bytes: 0, read_cache_bytes: 0, ..OpenOptions::default() };
    let open =
        |device: &SimDevice| Drive::open(Arc::new(device.clone()), options, Arc::new(SystemClock)).unwrap();
    let pool = Pool::open(devices.iter().map(open).collect(), COMPLETE).await.unwrap();
    let store = photos(&pool).await;
    devices[2].fail_reads(0..256 * MIB);
    for (name, home) in &homes {
        match home {
            2 => assert!(is_unavailable(store.head(&key(name)).await)),
            _ => drop(store.head(&key(name)).await.unwrap()),
        }
    }
}

/// A write failed on one drive although its frame had reached the device. The key was missing then, so the next attempt chose another
/// drive, and when the pool was opened again both drives had the key.
#[tokio::test(flavor = "multi_thread")]
async fn s341_s344_a_key_that_a_failed_drive_may_have_is_not_stored_elsewhere() {
    let devices = joined(&[80, 80]).await;
    let pool = open(&devices).await.unwrap();
    let store = photos(&pool).await;
    for number in 0..20 {
        put(&*store, &format!("key-{number}"), "before").await.unwrap();
    }
    devices[0].cut_power_after(1);
    let mut stored = 0;
    while put(&*store, &format!("new-{stored}"), "new").await.is_ok() {
        stored += 1;
    }
    for number in stored..stored + 20 {
        assert!(is_unavailable(put(&*store, &format!("new-{number}"), "again").await));
        assert!(is_unavailable(store.delete(&key(&format!("new-{number}")), Precondition::None).await));
    }
    for (name, home) in assert_one_home_each(&pool).await {
        assert_eq!(
            read(&*store, &name).await.unwrap(),
            if name.starts_with("new") { "new" } else { "before" }
        );
        assert_eq!(put(&*store, &name, "after").await.is_ok(), home == 1, "{name}");
    }
    drop((store, pool));
    devices.iter().for_each(|device| device.crash(3));
    let pool = open(&devices).await.unwrap();
    put(&*photos(&pool).await, &format!("new-{stored}"), "again").await.unwrap();
    assert_one_home_each(&pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s345_foreign_drives_and_copies_are_refused() {
    let (devices, others) = (joined(&[80, 80]).await, [formatted_one(80, 70), formatted_one(80, 71)]);
    let stranger = formatted_one(80, 72);
    pool::join(&drives(&others), &Entropy::new(4)).await.unwrap();
    let error = async |which: &[&SimDevice]| {
        let devices: Vec<SimDevice> = which.iter().map(|device| (*device).clone()).collect();
        open(&devices).await.unwrap_err().to_string()
    };
    assert!(error(&[&devices[0], &others[1]]).await.contains("belongs to another pool"));
    assert!(error(&[&devices[0], &devices[1], &stranger]).await.contains("does not belong to the pool"));
    assert!(error(&[&devices[0], &devices[1], &devices[0].fork()]).await.contains("remove the copy"));
    assert!(error(&[&stranger]).await.contains("no pool"));
    let alone = pool::join(&drives(&[stranger]), &Entropy::new(4)).await.unwrap_err();
    assert!(alone.to_string().contains("2 to 64 drives"), "{alone}");
    open(&[devices[1].clone(), devices[0].clone()]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s346_an_empty_drive_joins_and_new_keys_go_there() {
    let devices = formatted(&[64, 64, 256, 80]);
    let store = crate::fixture::bucket_of(&drives(&devices[..1])[0]).await;
    put(&*store, "from before", "kept").await.unwrap();
    store.settings().unwrap().set("policy", Some("kept too".into())).await.unwrap();
    store.versions().unwrap().set_state(Versioning::Enabled).await.unwrap();
    drop(store);
    // The drive that has objects is the first of the new pool, in whatever order the drives are given.
    let joining = |which: &[usize]| {
        let devices: Vec<SimDevice> = which.iter().map(|n| devices[*n].clone()).collect();
        async move { pool::join(&drives(&devices), &Entropy::new(3)).await }
    };
    let ids: Vec<u64> = drives(&devices).iter().map(Drive::id).collect();
    assert_eq!(joining(&[1, 0]).await.unwrap().drives, [ids[0], ids[1]]);
    let pool = open(&devices[..2]).await.unwrap();
    let store = photos(&pool).await;
    assert_eq!(read(&*store, "from before").await.unwrap(), "kept");
    for (_, drive) in pool.drives() {
        let part = Buckets::open(&drive, "photos").await.unwrap();
        assert_eq!(part.settings().unwrap().get("policy").await.unwrap(), Some("kept too".into()));
        assert_eq!(part.versions().unwrap().state().await.unwrap(), Versioning::Enabled);
    }
    drop((store, pool));
    drives(&devices[3..])[0].create("another").await.unwrap();
    assert!(joining(&[0, 1, 3]).await.unwrap_err().to_string().contains("must be empty"));
    assert!(joining(&[0, 2]).await.unwrap_err().to_string().contains("name all drives of the pool"));
    assert_eq!(joining(&[0, 1, 2]).await.unwrap().drives, ids[..3]);
    assert_eq!(joining(&[2, 1, 0]).await.unwrap().drives, ids[..3], "again");
    let pool = open(&devices[..3]).await.unwrap();
    let store = photos(&pool).await;
    for number in 0..60 {
        put(&*store, &format!("key-{number}"), "x").await.unwrap();
    }
    let homes = assert_one_home_each(&pool).await;
    assert!(homes.values().filter(|on| **on == 2).count() > 30, "{homes:?}");
    assert_eq!(read(&*store, "from before").await.unwrap(), "kept");
}

/// Pools are enlarged when their drives are full.
#[tokio::test(flavor = "multi_thread")]
async fn s346_a_drive_joins_full_ones() {
    let devices = formatted(&[24, 64]);
    let drive = drives(&devices[..1]).remove(0);
    let store = crate::fixture::bucket_of(&drive).await;
    let mut stored = 0;
    for len in [1 << 20, 100_000, 3000, 1] {
        while put(&*store, &format!("key-{stored:05}"), vec![1; len]).await.is_ok() {
            stored += 1;
        }
    }
    drop((store, drive));
    pool::join(&drives(&devices), &Entropy::new(3)).await.unwrap();
    let pool = open(&devices).await.unwrap();
    let store = photos(&pool).await;
    put(&*store, "new", vec![7; 8 << 20]).await.unwrap();
    assert_eq!(listed(&*store, None, 1000).await.unwrap().len(), stored + 1);
}
