//! Cases about listings: order, grouping by delimiter, start position, pages.

use super::world::{Outcome, World, everything, holds, level, same};
use crate::{ListEntry, ListRequest, ListedObject};
use bytes::Bytes;

/// Checks that listings without matching keys are empty.
pub(super) async fn nothing(world: World) -> Outcome {
    same(world.store.list(everything()).await?, Default::default())?;
    same(world.store.list(level("")).await?, Default::default())?;
    world.fill(["b"]).await?;
    same(world.store.list(level("a")).await?, Default::default())?;
    same(world.store.list(level("b/")).await?, Default::default())?;
    same(world.store.list(from("b", everything())).await?, Default::default())
}

/// `a-b` sorts before `a/`, and `a0` after it: a directory sorts by its name with `/`.
pub(super) async fn byte_order(world: World) -> Outcome {
    let names = ["Z", "a", "a!", "a-b", "a/b", "a/b/c", "a/b0", "a/c", "a0", "a0/x", "b", "ä"];
    let names = world.possible(names);
    world.fill(names.iter().rev()).await?;
    same(world.texts(everything()).await?, &*names)
}

pub(super) async fn prefixes(world: World) -> Outcome {
    world.fill(world.possible(["a", "ab", "ab/c", "ab/d/e", "abc", "b"])).await?;
    let prefix =
        |text: &'static str| ListRequest { prefix: Bytes::from_static(text.as_bytes()), ..everything() };
    same(world.texts(prefix("ab")).await?, world.possible(["ab", "ab/c", "ab/d/e", "abc"]))?;
    same(world.texts(prefix("ab/")).await?, ["ab/c", "ab/d/e"])?;
    same(world.texts(prefix("ab/d")).await?, ["ab/d/e"])?;
    same(world.texts(prefix("ab/d/")).await?, ["ab/d/e"])?;
    same(world.texts(prefix("ab/d/e")).await?, ["ab/d/e"])?;
    same(world.texts(prefix("ab/d/e/")).await?, [""; 0])?;
    same(world.texts(prefix("x/y/z")).await?, [""; 0])
}

/// A prefix is bytes, and may end inside a character of the keys.
pub(super) async fn prefixes_inside_characters(world: World) -> Outcome {
    let names = world.possible(["a", "d/é", "d/ê/1", "d/ê/2", "d/ëx", "d/z", "d/日本", "é"]);
    world.fill(names.iter()).await?;
    for limit in [1, 2, 1000] {
        let prefix = |bytes: &'static [u8]| {
            let prefix = Bytes::from_static(bytes);
            ListRequest { prefix, limit, ..everything() }
        };
        same(world.texts(prefix(b"d/\xc3")).await?, ["d/é", "d/ê/1", "d/ê/2", "d/ëx"])?;
        same(world.texts(prefix(b"d/\xe6\x97")).await?, ["d/日本"])?;
        same(world.texts(prefix(b"\xc3")).await?, ["é"])?;
        let folded = ListRequest { delimiter: Some(b'/'), ..prefix(b"d/\xc3") };
        same(world.texts(folded.clone()).await?, ["d/é", "d/ê/", "d/ëx"])?;
        same(world.texts(from("d/é", folded)).await?, ["d/ê/", "d/ëx"])?;
        for none in [b"d/\xc5".as_slice(), b"\xff", b"d/\xff\xc3", b"d/\xe6\x98"] {
            same(world.texts(prefix(none)).await?, [""; 0])?;
        }
    }
    Ok(())
}

/// Checks that a delimiter folds keys into prefixes.
pub(super) async fn folding(world: World) -> Outcome {
    world.fill(["a", "dir/x", "dir/y/z", "dir2/x", "e/f/g/h", "e/f/i"]).await?;
    same(world.texts(level("")).await?, ["a", "dir/", "dir2/", "e/"])?;
    same(world.texts(level("dir/")).await?, ["dir/x", "dir/y/"])?;
    same(world.texts(level("dir")).await?, ["dir/", "dir2/"])?;
    same(world.texts(level("di")).await?, ["dir/", "dir2/"])?;
    same(world.texts(level("e/")).await?, ["e/f/"])?;
    same(world.texts(level("e/f/")).await?, ["e/f/g/", "e/f/i"])?;
    let page = world.store.list(level("e/f/")).await?;
    same(&page.entries[0], &ListEntry::Prefix(Bytes::from_static(b"e/f/g/")))
}

pub(super) async fn objects_and_prefixes_in_one_order(world: World) -> Outcome {
    world.fill(world.possible(["a", "a-", "a-b/x", "a/x", "a0", "b.txt", "b/1", "b/2", "b0/x", "c"])).await?;
    let sorted = world.possible(["a", "a-", "a-b/", "a/", "a0", "b.txt", "b/", "b0/", "c"]);
    same(world.texts(level("")).await?, &*sorted)?;
    for limit in 1..=sorted.len() {
        same(world.texts(ListRequest { limit, ..level("") }).await?, &*sorted)?;
    }
    Ok(())
}

pub(super) async fn start_after(world: World) -> Outcome {
    world.fill(world.possible(["a", "b/1", "b/2", "b/2/x", "b/3", "c"])).await?;
    same(
        world.texts(from("", everything())).await?,
        world.possible(["a", "b/1", "b/2", "b/2/x", "b/3", "c"]),
    )?;
    same(world.texts(from("a", everything())).await?, world.possible(["b/1", "b/2", "b/2/x", "b/3", "c"]))?;
    same(world.texts(from("b", everything())).await?, world.possible(["b/1", "b/2", "b/2/x", "b/3", "c"]))?;
    same(world.texts(from("b/1", everything())).await?, world.possible(["b/2", "b/2/x", "b/3", "c"]))?;
    same(world.texts(from("b/2", everything())).await?, ["b/2/x", "b/3", "c"])?;
    same(world.texts(from("b/2/", everything())).await?, ["b/2/x", "b/3", "c"])?;
    same(world.texts(from("b/25", everything())).await?, ["b/3", "c"])?;
    let below = ListRequest { prefix: Bytes::from_static(b"b/"), ..everything() };
    same(world.texts(from("a", below.clone())).await?, world.possible(["b/1", "b/2", "b/2/x", "b/3"]))?;
    same(world.texts(from("b/2", below.clone())).await?, ["b/2/x", "b/3"])?;
    same(world.texts(from("c", below)).await?, [""; 0])
}

pub(super) async fn start_after_while_folding(world: World) -> Outcome {
    world.fill(["a", "b/1", "b/2", "c", "d/1"]).await?;
    same(world.texts(from("a", level(""))).await?, ["b/", "c", "d/"])?;
    same(world.texts(from("b", level(""))).await?, ["b/", "c", "d/"])?;
    same(world.texts(from("b/", level(""))).await?, ["c", "d/"])?;
    same(world.texts(from("c", level(""))).await?, ["d/"])?;
    same(world.texts(from("b/1", level("b/"))).await?, ["b/2"])
}

/// A common prefix is returned only if its text is greater than `start_after`, even if some of its keys are greater.
pub(super) async fn start_after_inside_a_folded_prefix(world: World) -> Outcome {
    world.fill(["a", "b/1", "b/2", "b/3/x", "c"]).await?;
    same(world.texts(from("b/1", level(""))).await?, ["c"])?;
    same(world.texts(from("b/0", level(""))).await?, ["c"])?;
    same(world.texts(from("b/3/a", level("b/"))).await?, [""; 0])?;
    same(world.texts(from("b/3", level("b/"))).await?, ["b/3/"])
}

pub(super) async fn pages_of_any_size(world: World) -> Outcome {
    let names: Vec<String> =
        (0..23).map(|n| format!("k{:02}{}", n, if n % 3 == 0 { "/x" } else { "" })).collect();
    world.fill(&names).await?;
    let folded = world.texts(level("")).await?;
    for limit in [1, 2, 3, 7, 22, 23, 24] {
        same(world.texts(ListRequest { limit, ..everything() }).await?, names.as_slice())?;
        same(world.texts(ListRequest { limit, ..level("") }).await?, folded.as_slice())?;
    }
    let pages = world.pages(ListRequest { limit: 23, ..everything() }).await?;
    same(pages.len(), 1)
}

pub(super) async fn many_keys(world: World) -> Outcome {
    let names: Vec<String> = (0..2500).map(|n| format!("many/{n:05}")).collect();
    world.fill(&names).await?;
    same(world.texts(everything()).await?, names.as_slice())?;
    same(world.texts(level("many/")).await?, names.as_slice())?;
    same(world.texts(level("")).await?, ["many/"])?;
    same(world.texts(from("many/01999", everything())).await?, &names[2000..])
}

pub(super) async fn entries_describe_objects(world: World) -> Outcome {
    let stored = world.put("dir/a", "twelve bytes").await?;
    let page = world.store.list(level("dir/")).await?;
    let [ListEntry::Object(ListedObject { object, size_bytes, .. })] = page.entries.as_slice() else {
        return holds(false, "not one object");
    };
    same(*size_bytes, 12)?;
    same(&object.etag, &stored.etag)?;
    same(object.last_modified, world.head("dir/a").await?.object.last_modified)
}

pub(super) async fn another_delimiter(world: World) -> Outcome {
    world.fill(["a-b", "a-c/d-e", "a/b-c", "b"]).await?;
    let dashed = ListRequest { delimiter: Some(b'-'), ..everything() };
    same(world.texts(dashed.clone()).await?, ["a-", "a/b-", "b"])?;
    let limit = if world.capabilities.any_delimiter { 1 } else { 1000 };
    same(world.texts(ListRequest { limit, ..dashed.clone() }).await?, ["a-", "a/b-", "b"])?;
    let below = ListRequest { prefix: Bytes::from_static(b"a-c/"), ..dashed };
    same(world.texts(below).await?, ["a-c/d-"])
}

/// A key that exists during the whole listing is returned exactly once.
pub(super) async fn changes_between_pages(world: World) -> Outcome {
    let names: Vec<String> = (0..12).map(|n| format!("k{n:02}")).collect();
    world.fill(&names).await?;
    let first = world.store.list(ListRequest { limit: 5, ..everything() }).await?;
    same(first.entries.len(), 5)?;
    world.delete("k02").await?;
    world.delete("k04").await?;
    world.put("k00-new", "x").await?;
    world.delete("k07").await?;
    let rest = world.texts(ListRequest { token: first.next, ..everything() }).await?;
    same(rest, ["k05", "k06", "k08", "k09", "k10", "k11"])
}

/// Returns a request that lists keys after `start_after`.
fn from(start_after: &str, request: ListRequest) -> ListRequest {
    ListRequest { start_after: Some(Bytes::copy_from_slice(start_after.as_bytes())), ..request }
}
