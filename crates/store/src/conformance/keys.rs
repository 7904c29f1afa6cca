//! Cases about keys: the store uses each key byte for byte in all calls, or refuses it with `InvalidKey`.

use super::world::{Failure, Outcome, Refusal, World, key, level, refused, same};
use crate::{KEY_BYTES_MAX, ObjectKey, Payload};

pub(super) async fn an_object_beside_a_directory(world: World) -> Outcome {
    exactly(&world, [b"a".as_slice(), b"a/b", b"a/b/c", b"a/b/c/"]).await?;
    exactly(&world, [b"a/b/c/".as_slice(), b"a/b/c", b"a/b", b"a"]).await?;
    if !world.capabilities.object_beside_directory {
        return Ok(());
    }
    world.put("a", "object").await?;
    world.put("a/b", "inside").await?;
    if (world.capabilities.refuses)(&key("a/b")) {
        return Ok(());
    }
    same(world.texts(level("")).await?, ["a", "a/"])?;
    world.put("a", "replaced").await?;
    same(world.read("a").await?, "replaced")?;
    world.delete("a/b").await?;
    same(world.read("a").await?, "replaced")?;
    same(world.texts(level("")).await?, ["a"])?;
    world.put("a/b", "again").await?;
    world.delete("a").await?;
    same(world.read("a/b").await?, "again")?;
    refused(world.head("a").await, Refusal::NotFound)
}

pub(super) async fn paths_that_are_not_names(world: World) -> Outcome {
    let names = [
        "a//b",
        "a//",
        "a///b",
        "/x",
        "//",
        "/",
        "dir/",
        "dir/sub/",
        ".",
        "..",
        "./a",
        "../a",
        "a/.",
        "a/..",
        "a/../b",
        "a/./b",
        "...",
        ".hidden",
        "a/.hidden/b",
    ];
    exactly(&world, names.map(str::as_bytes)).await
}

pub(super) async fn long_keys(world: World) -> Outcome {
    let components = [vec![b'd'; 250], vec![b'e'; 255], vec![b'f'; 256]].join(&b'/');
    let tail = [&components[..], b"/", &vec![b'g'; KEY_BYTES_MAX - components.len() - 1]].concat();
    let (one, beside) = (vec![b'x'; KEY_BYTES_MAX], [&[b'x'; 300][..], b"/y"].concat());
    let (short, snow) = (vec![b'x'; 300], "☃".repeat(KEY_BYTES_MAX / 3));
    exactly(&world, [&one[..], &short, &[b'x'; 255], &[b'x'; 256], &beside, &tail, snow.as_bytes()]).await
}

pub(super) async fn special_characters(world: World) -> Outcome {
    let names = [
        " ", "a b", " a", "a ", "a+b", "100%", "%", "%41", "%2F", "a%00b", "a?b=c", "a#b", "a&b", "a=b",
        "a;b", "a:b", "a,b", "a@b", "a$b", "a!b", "a*b", "a'b", "(a)", "a\"b", "a\\b", "a<b>", "a|b", "a^b",
        "`a`", "{a}", "[a]", "~a", "a~",
    ];
    exactly(&world, names.map(str::as_bytes)).await
}

pub(super) async fn control_characters(world: World) -> Outcome {
    exactly(&world, [b"a\nb".as_slice(), b"a\rb", b"a\tb", b"\x01", b"a\x1fb", b"a\x7f"]).await?;
    exactly(&world, [b"a\0b".as_slice(), b"\0", b"\0/\0"]).await
}

pub(super) async fn unicode(world: World) -> Outcome {
    let names = ["ü", "u\u{308}", "日本/語", "☃", "😀/😀", "\u{feff}a", "a\u{200b}b", "\u{85}", "\u{ffff}"];
    exactly(&world, names.map(str::as_bytes)).await
}

pub(super) async fn bytes_that_are_not_utf8(world: World) -> Outcome {
    exactly(&world, [b"\xff".as_slice(), b"a\x80/b", b"\xc3", b"\xed\xa0\x80", b"\xff/\xfe"]).await
}

/// Keys that look like an implementation's own files, or like the escapes of [`crate::names`].
pub(super) async fn names_of_our_own(world: World) -> Outcome {
    let names = [
        ".tenon-store",
        ".tenon-store/",
        ".tenon-store/a",
        "%=a",
        "%+a",
        "%!",
        "%!a",
        "%!%3Da",
        "%=",
        "%+",
        "%!..",
        "a/%=b/c",
        "a/%+b",
        "%=.tenon-store",
        "%!.tenon-store",
        "a/.tenon-store",
        "%!.tenon-store/a",
    ];
    exactly(&world, names.map(str::as_bytes)).await
}

pub(super) async fn deep_keys(world: World) -> Outcome {
    let deep = ["d"; 200].join("/");
    exactly(&world, [deep.as_bytes(), &deep.as_bytes()[..199], b"d/e"]).await
}

/// Empty objects that stand for directories, as many tools make them.
pub(super) async fn empty_markers(world: World) -> Outcome {
    world.put("dir/", Payload::default()).await?;
    same(world.head("dir/").await?.size_bytes, 0)?;
    refused(world.head("dir").await, Refusal::NotFound)?;
    same(world.texts(level("")).await?, ["dir/"])?;
    same(world.texts(level("dir/")).await?, ["dir/"])?;
    world.put("dir/file", "x").await?;
    same(world.texts(level("dir/")).await?, ["dir/", "dir/file"])?;
    world.delete("dir/").await?;
    same(world.texts(level("dir/")).await?, ["dir/file"])?;
    refused(world.head("dir/").await, Refusal::NotFound)?;
    world.delete("dir/file").await?;
    same(world.all_keys().await?, [])
}

/// Stores an object with a unique body at each key, reads and lists all keys, and removes them one by one.
async fn exactly<const N: usize>(world: &World, names: [&[u8]; N]) -> Outcome {
    let (refused_keys, kept): (Vec<_>, Vec<_>) =
        names.into_iter().map(key).partition(|key| (world.capabilities.refuses)(key));
    for key in &refused_keys {
        refused(world.put(key.as_bytes(), "x").await, Refusal::InvalidKey)
            .map_err(|error| about(key, &error))?;
    }
    let names: Vec<&[u8]> = kept.iter().map(ObjectKey::as_bytes).collect();
    let mut kept: Vec<ObjectKey> = world.possible(names).into_iter().map(key).collect();
    for key in &kept {
        world.put(key.as_bytes(), body(key)).await.map_err(|error| about(key, &error))?;
    }
    for key in &kept {
        holds_its_body(world, key).await.map_err(|error| about(key, &error))?;
    }
    for key in kept.extract_if(.., |key| (world.capabilities.lists_wrongly)(key)) {
        world.delete(key.as_bytes()).await.map_err(|error| about(&key, &error))?;
    }
    kept.sort();
    same(world.all_keys().await?, &*kept)?;
    while let Some(key) = kept.pop() {
        world.delete(key.as_bytes()).await.map_err(|error| about(&key, &error))?;
        refused(world.head(key.as_bytes()).await, Refusal::NotFound).map_err(|error| about(&key, &error))?;
        same(world.all_keys().await?, &*kept).map_err(|error| about(&key, &error))?;
    }
    Ok(())
}

async fn holds_its_body(world: &World, key: &ObjectKey) -> Outcome {
    same(world.read(key.as_bytes()).await?, body(key))?;
    same(&world.head(key.as_bytes()).await?.object.key, key)
}

fn body(key: &ObjectKey) -> Vec<u8> {
    [b"body of ", key.as_bytes()].concat()
}

#[track_caller]
fn about(key: &ObjectKey, error: &dyn std::fmt::Display) -> Failure {
    let text = key.to_string();
    Failure::new(format!("key '{:.80}' ({} bytes): {error}", text, key.as_bytes().len()))
}
