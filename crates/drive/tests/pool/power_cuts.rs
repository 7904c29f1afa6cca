//! Power cuts during changes of a pool.

use super::*;

/// Power cuts at every moment while drives join: either the former drives are a pool as before, or all drives are.
#[tokio::test]
async fn s346_interrupted_joining_is_repeated() {
    for (cut, operations) in (0..3).flat_map(|cut| (0..5).map(move |operations| (cut, operations))) {
        let devices = joined(&[64, 64]).await.into_iter().chain([formatted_one(80, 50)]).collect::<Vec<_>>();
        drop(photos(&open(&devices[..2]).await.unwrap()).await);
        let opened = drives(&devices);
        devices[cut].cut_power_after(operations);
        let joined = pool::join(&opened, &Entropy::new(3)).await;
        drop(opened);
        devices.iter().for_each(|device| device.crash(operations));
        match open(&devices[..2]).await {
            Ok(pool) => assert_eq!((joined.is_ok(), pool.drive_count()), (false, 2), "{cut} {operations}"),
            Err(error) => assert!(error.to_string().contains("missing: 3 ("), "{error}"),
        }
        if joined.is_err() {
            pool::join(&drives(&devices), &Entropy::new(3)).await.unwrap();
        }
        let pool = open(&devices).await.unwrap();
        put(&*photos(&pool).await, "key", "x").await.unwrap();
        assert_eq!(pool.drive_count(), 3);
    }
}

/// Power cuts at every moment while a bucket is created, configured or deleted: the drives agree afterwards, and the call can be repeated.
#[tokio::test]
async fn s347_buckets_are_whole_after_a_crash() {
    for (call, cut, operations) in (0..4)
        .flat_map(|call| (0..3).flat_map(move |cut| (0..4).map(move |operations| (call, cut, operations))))
    {
        let devices = joined(&[64, 64, 64]).await;
        let pool = open(&devices).await.unwrap();
        if call > 0 {
            photos(&pool).await.settings().unwrap().set("tags", Some("old".into())).await.unwrap();
        }
        devices[cut].cut_power_after(operations);
        let done = change(&pool, call).await;
        drop(pool);
        devices.iter().for_each(|device| device.crash(operations));
        let pool = open(&devices).await.unwrap();
        let context = format!("call {call}, drive {cut} after {operations}: {done:?}");
        assert_agree(&pool, &context).await;
        if done.is_ok() {
            assert_eq!(pool.list().await.unwrap().is_empty(), call == 3, "{context}");
        }
        match (call, change(&pool, call).await) {
            (_, Ok(())) => {}
            (0, Err(StoreError::BucketState { .. })) | (3, Err(StoreError::NoSuchBucket(_))) => {}
            (_, Err(error)) => panic!("{context}, then {error}"),
        }
        assert_agree(&pool, &context).await;
    }
}

/// Creates, configures or deletes the bucket.
async fn change(pool: &Pool, call: usize) -> store::Result<()> {
    match call {
        0 => pool.create("photos").await,
        1 => {
            let store = Buckets::open(pool, "photos").await?;
            store.settings().unwrap().set("tags", Some("new".into())).await
        }
        2 => {
            let store = Buckets::open(pool, "photos").await?;
            store.versions().unwrap().set_state(Versioning::Enabled).await
        }
        _ => pool.delete("photos").await,
    }
}

/// Checks that all drives have the same buckets with the same settings.
async fn assert_agree(pool: &Pool, context: &str) {
    let mut all = Vec::new();
    for (_, drive) in pool.drives() {
        let mut settings_of_drive = Vec::new();
        for name in drive.list().await.unwrap() {
            let store = Buckets::open(&drive, &name).await.unwrap();
            let (versions, settings) = (store.versions().unwrap(), store.settings().unwrap());
            settings_of_drive.push((
                name,
                versions.state().await.unwrap(),
                settings.get("tags").await.unwrap(),
            ));
        }
        all.push(settings_of_drive);
    }
    assert!(all.windows(2).all(|two| two[0] == two[1]), "{context}: {all:?}");
}

/// The possible contents of each key: the body acknowledged last, and those of later writes without an answer; `None` means no object.
type PossibleContents = BTreeMap<String, Vec<Option<Bytes>>>;

/// Objects are stored, copied, renamed and deleted. The power of one drive fails at a random moment, then that of all. Everything
/// acknowledged is there, on one drive, and nothing that was not requested.
#[tokio::test]
async fn s317_s341_power_cuts_keep_one_home_per_key_and_acknowledged_writes() {
    for seed in 0..60 {
        let (entropy, devices) = (Entropy::new(seed), joined(&[24, 32, 48]).await);
        let mut possible = PossibleContents::new();
        for _ in 0..4 {
            let pool = open(&devices).await.unwrap();
            let store = photos(&pool).await;
            assert_possible(&*store, &possible, seed).await;
            assert_one_home_of_all(&pool).await;
            devices[entropy.below(3) as usize].cut_power_after(entropy.below(120));
            for _ in 0..40 {
                change_random_key(&*store, &entropy, &mut possible).await;
            }
            drop((store, pool));
            devices.iter().for_each(|device| device.crash(entropy.next_u64()));
        }
    }
}

/// Changes a random key, and updates its possible contents.
async fn change_random_key(store: &dyn ObjectStore, entropy: &Entropy, possible: &mut PossibleContents) {
    let draw = || format!("key-{}", entropy.below(12));
    let (name, other) = (draw(), draw());
    let len = [10, 5000, 300_000][entropy.below(3) as usize];
    let body = Bytes::from(vec![entropy.below(250) as u8; len]);
    let (done, changed) = match entropy.below(6) {
        0 => (store.delete(&key(&name), Precondition::None).await.is_ok(), vec![(name, None)]),
        kind @ 1..=2 if name != other => {
            let Ok(Some(meta)) = store.find(&key(&name)).await else { return };
            let Ok(bytes) = read(store, &name).await else { return };
            match kind {
                1 => {
                    let copied = store.copy(&meta.object, &key(&other), CopyOptions::default()).await;
                    (copied.is_ok(), vec![(other, Some(bytes))])
                }
                _ => {
                    let renamed = store.rename(&meta.object, &key(&other), Precondition::None).await;
                    (renamed.is_ok(), vec![(other, Some(bytes)), (name, None)])
                }
            }
        }
        3 => (in_parts(store, &name, body.clone()).await.is_ok(), vec![(name, Some(body))]),
        _ => (put(store, &name, body.clone()).await.is_ok(), vec![(name, Some(body))]),
    };
    for (name, state) in changed {
        let known = possible.entry(name).or_insert_with(|| vec![None]);
        if done {
            known.clear();
        }
        known.push(state);
    }
}

async fn assert_possible(store: &dyn ObjectStore, possible: &PossibleContents, seed: u64) {
    let listed = listed(store, None, 5).await.unwrap();
    for (name, states) in possible {
        let found = match read(store, name).await {
            Err(StoreError::NotFound(_)) => None,
            found => Some(found.unwrap()),
        };
        let lens: Vec<_> = states.iter().map(|state| state.as_ref().map(Bytes::len)).collect();
        assert!(
            states.contains(&found),
            "seed {seed}: {name} has {:?} of {lens:?}",
            found.map(|found| found.len())
        );
        assert_eq!(listed.contains(name), found.is_some(), "seed {seed}: {name}");
    }
    assert!(listed.iter().all(|name| possible.contains_key(name)), "seed {seed}: {listed:?}");
}
