//! Limits of a table, and entries that a writer refuses.

use crate::fixture::{Model, SMALL, assert_same, build, open, table};
use sst::{Error, KEY_LEN_MAX, Options, VALUE_LEN_MAX, Writer};

#[test]
fn a_table_may_be_empty() {
    let table = table(&Model::new(), Options::default());
    assert_same(&table, &Model::new());
    assert_eq!((table.first(), table.last()), (&b""[..], &b""[..]));
    assert!(!table.may_hold(b"").unwrap());
    assert_eq!(table.get(b"").unwrap(), None);
}

#[test]
fn a_table_may_have_one_entry() {
    for (key, value) in [("", ""), ("", "value"), ("key", ""), ("key", "value")] {
        let model = Model::from([(key.into(), value.into())]);
        let table = table(&model, Options::default());
        assert_same(&table, &model);
        assert_eq!((table.first(), table.last()), (key.as_bytes(), key.as_bytes()));
    }
}

#[test]
fn a_key_out_of_order_is_refused_and_changes_nothing() {
    let mut writer = Writer::new(Vec::new(), Options::default());
    writer.add(b"", b"0").unwrap();
    assert!(matches!(writer.add(b"", b"1"), Err(Error::OutOfOrder)));
    writer.add(b"bb", b"2").unwrap();
    for key in ["bb", "ba", "b", "a", ""] {
        assert!(matches!(writer.add(key.as_bytes(), b"3"), Err(Error::OutOfOrder)), "{key}");
    }
    writer.add(b"bba", b"4").unwrap();
    let table = open(writer.finish().unwrap().0.into()).unwrap();
    let model = [("", "0"), ("bb", "2"), ("bba", "4")];
    assert_same(&table, &model.map(|(key, value)| (key.into(), value.into())).into());
}

#[test]
fn keys_and_values_of_the_greatest_length() {
    let long = |last: u8| [vec![b'k'; KEY_LEN_MAX - 1], vec![last]].concat();
    let model = Model::from([
        (b"a".to_vec(), b"small".to_vec()),
        (long(0), vec![1; VALUE_LEN_MAX]),
        (long(1), b"small".to_vec()),
        (long(2), vec![2; 100_000]),
        (b"z".to_vec(), b"small".to_vec()),
    ]);
    for options in [Options::default(), SMALL] {
        assert_same(&table(&model, options), &model);
    }
    let many: Model = (0..200).map(|number| (long(number), vec![number])).collect();
    assert_same(&table(&many, Options::default()), &many);
}

#[test]
fn longer_keys_and_values_are_refused() {
    let mut writer = Writer::new(Vec::new(), Options::default());
    let error = writer.add(&[0; KEY_LEN_MAX + 1], b"").unwrap_err();
    assert_eq!(error.to_string(), "a key of 65536 bytes is too long for a table: the maximum is 65535");
    assert!(matches!(writer.add(b"", &vec![0; VALUE_LEN_MAX + 1]), Err(Error::TooLong { .. })));
    assert_eq!(writer.finish().unwrap().1.entries, 0);
}

#[test]
fn keys_with_long_common_beginnings_take_little_room() {
    let key = |number| [vec![b'p'; 1000], format!("{number:05}").into_bytes()].concat();
    let model: Model = (0..1000).map(|number| (key(number), b"value".to_vec())).collect();
    let bytes = build(&model, Options::default());
    assert!(bytes.len() < 200_000, "{}", bytes.len());
    assert_same(&open(bytes).unwrap(), &model);
}
