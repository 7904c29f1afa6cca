//! Dump files.

use crate::fixture::{Volume, rows};
use backup::About;
use backup::dump::{DumpReader, load, write};
use meta::MemoryEngine;
use meta_disk::{DiskEngine, EngineOptions};
use std::collections::BTreeSet;
use store::Timestamp;

fn about() -> About {
    About { volume: "v".into(), owner: "id".into(), settings: None, tenon: "test".into() }
}

fn dump(volume: &Volume) -> Vec<u8> {
    let mut file = Vec::new();
    let records = write(volume.engine.as_ref(), about(), Timestamp(7), &mut file, |_| {}).unwrap();
    assert_eq!(records as usize, rows(volume.engine.as_ref()).len());
    file
}

fn load_to_memory(file: &[u8]) -> backup::Result<MemoryEngine> {
    let engine = MemoryEngine::default();
    load(&engine, &mut DumpReader::open(file)?, |_| {})?;
    Ok(engine)
}

/// The records of every family come back byte for byte, in another kind of engine too.
#[test]
fn a_dump_is_loaded_into_any_engine() {
    let volume = Volume::new();
    volume.fill();
    let tags: BTreeSet<u8> = rows(volume.engine.as_ref()).iter().map(|(key, _)| key[0]).collect();
    assert_eq!(tags, BTreeSet::from(*b"DEHINOQRSTWXZ"));
    let file = dump(&volume);
    assert_eq!(DumpReader::open(file.as_slice()).unwrap().header().about, about());
    assert_eq!(rows(&load_to_memory(&file).unwrap()), rows(volume.engine.as_ref()));
    let dir = tempfile::tempdir().unwrap();
    let engine = DiskEngine::open(&dir.path().join("engine"), EngineOptions::default()).unwrap();
    load(&engine, &mut DumpReader::open(file.as_slice()).unwrap(), |_| {}).unwrap();
    assert_eq!(rows(&engine), rows(volume.engine.as_ref()));
    let refused = load(&engine, &mut DumpReader::open(file.as_slice()).unwrap(), |_| {}).unwrap_err();
    assert!(refused.to_string().contains("records already"), "{refused}");
}

/// The lines are those that docs/format.md describes.
#[test]
fn a_dump_consists_of_json_lines() {
    let volume = Volume::new();
    volume.fill();
    let text = String::from_utf8(zstd::decode_all(dump(&volume).as_slice()).unwrap()).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines[0]["format"].as_str(), lines[0]["version"].as_u64()), (Some("tenon-dump"), Some(1)));
    let odd = lines.iter().find(|line| line["record"] == "dentry" && line["name"].is_object()).unwrap();
    assert_eq!(odd["name"]["hex"], "6e6f7420ff207574663820220a");
    let xattr = lines.iter().find(|line| line["record"] == "xattr").unwrap();
    assert_eq!(
        (xattr["name"].as_str(), xattr["value"]["hex"].as_str()),
        (Some("user.color"), Some("626c756520fe"))
    );
    assert_eq!(lines.last().unwrap()["end"].as_u64().unwrap() as usize, lines.len() - 2);
}

#[test]
fn no_damage_is_loaded() {
    let volume = Volume::new();
    volume.fill();
    let file = dump(&volume);
    for at in 0..file.len() {
        let mut changed = file.clone();
        changed[at] ^= 0x10;
        // A bit of the compressed form may have no meaning.
        let loaded = load_to_memory(&changed).map(|engine| rows(&engine));
        assert!(loaded.is_err() || loaded.unwrap() == rows(volume.engine.as_ref()), "byte {at}");
    }
    for at in (0..file.len()).step_by(7) {
        assert!(load_to_memory(&file[..at]).is_err(), "cut at {at}");
    }
    let refuse = |change: &dyn Fn(&str) -> String| {
        let text = String::from_utf8(zstd::decode_all(file.as_slice()).unwrap()).unwrap();
        load_to_memory(&zstd::encode_all(change(&text).as_bytes(), 1).unwrap()).unwrap_err().to_string()
    };
    assert!(refuse(&|text| text.replacen("\"version\":1", "\"version\":2", 1)).contains("newer Tenon"));
    assert!(refuse(&|text| text.replacen("\"uid\":3", "\"uid\":4", 1)).contains("checksum"));
    assert!(refuse(&|text| format!("{text}{{}}\n")).contains("followed"));
    let reversed = |text: &str| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.swap(1, 2);
        lines.join("\n") + "\n"
    };
    assert!(refuse(&reversed).contains("cannot be loaded"));
}
