//! Versions of the tables, and credentials.

use crate::fixture::{Volume, put, shared_server};
use meta::Engine;
use meta_postgres::{Address, Postgres, PostgresEngine};
use meta_remote::RemoteOptions;

#[test]
fn tables_of_other_versions_are_refused_or_migrated() {
    let volume = Volume::new();
    volume.psql("UPDATE version SET number = 1; ALTER TABLE log DROP COLUMN keys, DROP COLUMN session");
    volume.open(RemoteOptions::default()).commit(put("k", "1")).unwrap();
    volume.psql("UPDATE version SET number = 99");
    let newer = volume.try_open(RemoteOptions::default()).unwrap_err().to_string();
    assert!(newer.contains("version 99") && newer.contains("newer Tenon"), "{newer}");
}

#[test]
fn wrong_credentials_are_one_clear_line() {
    let server = shared_server();
    let address = Address::parse(&server.url()).unwrap();
    let create = |password| PostgresEngine::create(Postgres::new(&address, password, "0000b").unwrap());
    let wrong = "not-the-password";
    let refused = create(Some(wrong)).unwrap_err().to_string();
    assert!(refused.contains("password authentication failed") && !refused.contains(wrong), "{refused}");
    assert_eq!(refused.lines().count(), 1);
    let missing = create(None).unwrap_err().to_string();
    assert!(missing.contains("password"), "{missing}");
}
