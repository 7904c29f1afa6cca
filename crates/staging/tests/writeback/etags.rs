//! Etags that the bucket gives to uploaded objects.

use super::*;

#[tokio::test]
async fn etags_of_uploads_are_reported_at_once_and_after_a_restart() {
    let mut world = World::new(options(Duration::ZERO));
    let before = world.put("before", "body", Precondition::None).await.unwrap();
    world.writeback.drained().await;
    world.reopen();
    let reported = Arc::new(Mutex::new(Vec::new()));
    world.writeback.set_etag_observer({
        let reported = reported.clone();
        move |key, issued, bucket| {
            reported.lock().unwrap().push((key.clone(), issued.clone(), bucket.clone()));
            true
        }
    });
    let after = world.put("after", "other", Precondition::None).await.unwrap();
    world.writeback.drained().await;
    let mut expected = Vec::new();
    for issued in [before, after] {
        let there = world.memory.head(&issued.key).await.unwrap().object.etag;
        assert_eq!(world.writeback.head(&issued.key).await.unwrap().object.etag, there, "callers use it now");
        // A caller that began earlier still has the issued etag.
        let options = GetOptions { if_match: Some(issued.etag.clone()), ..GetOptions::default() };
        world.writeback.get(&issued.key, options).await.unwrap();
        expected.push((issued.key, issued.etag, there));
    }
    assert_eq!(*reported.lock().unwrap(), expected);
}
