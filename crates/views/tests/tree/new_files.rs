//! Places of new files.

use super::{World, object, split};
use views::tree::{DIRECTORY_PROPERTY, Place, TreeError};

async fn place(world: &World, path: &str) -> Result<Place, String> {
    world.tree.place(&split(path)).await.map_err(|error| error.to_string())
}

fn key(place: &Place) -> String {
    String::from_utf8_lossy(place.key.as_bytes()).into_owned()
}

#[tokio::test]
async fn s275_a_new_file_gets_the_metadata_that_the_rules_require() {
    let world = World::new("out:\n  container: [result-*, results]\n  object: 'reads/**/*.fq'\n  content_type: [text/*, text/plain]\n  \
         properties: {color: ['gr*', black, green], stage: null}\n  tags: {kind: raw}\n  output: {project: bowtie}\n",).await;
    let found = place(&world, "out/a.fq").await.unwrap();
    assert_eq!((found.container.as_str(), key(&found).as_str()), ("results", "reads/a.fq"));
    let pairs = [("color", "black"), ("project", "bowtie")];
    assert_eq!(found.properties, pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert_eq!(found.tags, [("kind".to_owned(), "raw".to_owned())].into());
    assert_eq!(found.content_type.as_deref(), Some("text/plain"));
    world.tree.make_directory(&split("out/d")).await.unwrap();
    let found = place(&world, "out/d/a.fq").await.unwrap();
    assert_eq!(key(&found), "reads/d/a.fq");
    assert_eq!(found.properties[DIRECTORY_PROPERTY], "d");
    let refused = place(&world, "out/a.txt").await.unwrap_err();
    assert_eq!(refused, "'out' shows only object reads/**/*.fq");
}

#[tokio::test]
async fn s275_output_supplies_values_that_rules_leave_open() {
    let world = World::new(
        "any: {container: '*'}\nsaid: {container: 'b*', output: {container: bucket, content_type: a/b}}\n\
         wrong: {container: 'b*', output: {container: other}}\n\
         pattern: {container: bucket, properties: {color: 'gr*'}}\n\
         green: {container: bucket, properties: {color: 'gr*'}, output: {color: green}}\n\
         red: {container: bucket, properties: {color: 'gr*'}, output: {color: red}}\n",
    )
    .await;
    assert!(place(&world, "any/x").await.unwrap_err().contains("output: {container: BUCKET}"));
    let said = place(&world, "said/x").await.unwrap();
    assert_eq!((said.container.as_str(), said.content_type.as_deref()), ("bucket", Some("a/b")));
    assert!(said.properties.is_empty());
    assert!(place(&world, "wrong/x").await.unwrap_err().contains("only container b*"));
    assert!(place(&world, "pattern/x").await.unwrap_err().contains("`output: {color: VALUE}`"));
    assert_eq!(place(&world, "green/x").await.unwrap().properties["color"], "green");
    assert!(place(&world, "red/x").await.is_err());
}

/// If the key pattern has no directories, files in different directories cannot have the same name.
#[tokio::test]
async fn s275_a_key_pattern_without_directories_allows_each_file_name_once() {
    let world = World::new("set: {container: bucket, object: ['in/*.fasta', 'b\\*.txt', readme]}").await;
    for path in ["set/d", "set/e"] {
        world.tree.make_directory(&split(path)).await.unwrap();
    }
    let found = place(&world, "set/d/x.fasta").await.unwrap();
    assert_eq!((key(&found).as_str(), found.properties[DIRECTORY_PROPERTY].as_str()), ("in/x.fasta", "d"));
    world.tree.notify_stored(object("in/x.fasta", "d"));
    assert_eq!(world.key("set/d/x.fasta").await.unwrap(), "in/x.fasta");
    let taken = world.tree.place(&split("set/e/x.fasta")).await;
    assert!(matches!(taken, Err(TreeError::Exists)), "{taken:?}");
    assert_eq!(key(&place(&world, "set/b*.txt").await.unwrap()), "b*.txt");
    assert_eq!(key(&place(&world, "set/readme").await.unwrap()), "readme");
    assert!(place(&world, "set/other").await.is_err());
}

#[tokio::test]
async fn a_new_file_needs_a_directory_to_lie_in() {
    let world = World::new("set: {container: bucket}").await;
    world.handler.put(object("a", ""));
    world.handler.put(object("b", "d"));
    assert!(matches!(world.tree.place(&split("set/none/x")).await, Err(TreeError::NotFound)));
    assert!(matches!(world.tree.place(&split("set/a/x")).await, Err(TreeError::NotDirectory)));
    assert!(matches!(world.tree.place(&split("set/d")).await, Err(TreeError::IsDirectory)));
    assert!(matches!(world.tree.place(&split("set")).await, Err(TreeError::IsDirectory)));
    assert!(matches!(world.tree.place(&split("none/x")).await, Err(TreeError::NotFound)));
    let long = format!("set/{}", "x".repeat(256));
    assert!(matches!(world.tree.place(&split(&long)).await, Err(TreeError::Invalid(_))));
}
