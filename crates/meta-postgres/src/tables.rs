//! The tables of a volume, in a schema of their own, and their migrations.
//!
//! | table | row |
//! |---|---|
//! | `version` | the version of the tables, once |
//! | `head` | the newest commit, the size and the start of the log, the session that has exclusive access; once. Locked by every commit |
//! | `record` | a record under its key, with the commit that wrote it and the numbers that merges change |
//! | `log` | the ops of a commit and the keys of the records that it changed, or the description of a run |
//! | `run_page` | a page of a run's ops |
//! | `run_record` | a record of a run that no commit has added yet; without a value, a removal |
//! | `consumer` | the cursor of a log consumer |
//! | `session` | an engine that is open, and the number and outcome of its last group of commits |
//! | `lease` | the lease of a session that shares the volume |
//! | `lock` | the locks of a file, as `vfs` encodes them |
//!
//! `docs/format.md` describes the columns.

use crate::failure::failure;
use meta_remote::OpenError;
use tokio_postgres::Client;

/// For each version, the statements that make its tables from those of the version before.
const MIGRATIONS: [&str; 3] = [
    "
    CREATE TABLE version (number int4 NOT NULL);
    INSERT INTO version VALUES (1);
    CREATE TABLE head (
        one int4 PRIMARY KEY CHECK (one = 1),
        head int8 NOT NULL, cut int8 NOT NULL,
        log_ops int8 NOT NULL, log_bytes int8 NOT NULL, run_bytes int8 NOT NULL,
        sessions int8 NOT NULL, owner int8
    );
    INSERT INTO head VALUES (1, 0, 0, 0, 0, 0, 0, NULL);
    CREATE TABLE record (
        key bytea PRIMARY KEY, value bytea NOT NULL, version int8 NOT NULL,
        sum1 int8, sum2 int8, max1 int8, max2 int8,
        CONSTRAINT sums CHECK (
            (sum1 IS NULL OR sum1 >= 0) AND (sum2 IS NULL OR sum2 >= 0)
            AND (max1 IS NULL OR sum1 IS NOT NULL)
            AND (sum1 IS NULL OR sum2 IS NOT NULL OR sum1 <= 4294967295)
        )
    );
    CREATE TABLE log (
        seqno int8 PRIMARY KEY, ops int8 NOT NULL, bytes int8 NOT NULL, run_bytes int8 NOT NULL,
        records bytea, run_version int8, run_pages int4
    );
    CREATE TABLE run_page (version int8, page int4, records bytea NOT NULL, PRIMARY KEY (version, page));
    CREATE TABLE run_record (
        version int8, key bytea, value bytea, sum1 int8, sum2 int8, PRIMARY KEY (version, key)
    );
    CREATE TABLE consumer (name text PRIMARY KEY, cursor int8 NOT NULL);
    CREATE TABLE session (
        id int8 PRIMARY KEY, holder text NOT NULL, generation int8 NOT NULL, last_group int8 NOT NULL,
        base int8 NOT NULL, failed int4[] NOT NULL, used_at timestamptz NOT NULL
    );
",
    "
    ALTER TABLE log ADD COLUMN IF NOT EXISTS keys bytea;
    ALTER TABLE log ADD COLUMN IF NOT EXISTS session int8 NOT NULL DEFAULT 0;
",
    "
    CREATE TABLE IF NOT EXISTS lease (
        session int8 PRIMARY KEY, epoch int8 NOT NULL, fence int8 NOT NULL, beat int8 NOT NULL,
        read_to int8 NOT NULL, is_strict boolean NOT NULL
    );
    CREATE TABLE IF NOT EXISTS lock (ino int8 PRIMARY KEY, held bytea NOT NULL);
",
];

/// The version of the tables that this Tenon makes, and the newest that it knows.
pub(crate) const VERSION: i32 = MIGRATIONS.len() as i32;

/// Returns the name of the schema of a volume with this id, which becomes part of statements.
///
/// # Panics
/// Panics if the id is empty or has other characters than lower-case letters and digits.
pub(crate) fn schema_of(volume_id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    assert!(!volume_id.is_empty() && volume_id.chars().all(is_plain), "a volume's id is hexadecimal");
    format!("tenon_{volume_id}")
}

/// Returns the name of a schema for messages.
pub(crate) fn place(schema: &str) -> String {
    format!("schema '{schema}'")
}

/// Makes the tables of a new volume. Fails if there are tables already.
pub(crate) async fn create(client: &Client, schema: &str) -> Result<(), OpenError> {
    if version(client, schema).await?.is_some() {
        return Err(OpenError::Exists(place(schema)));
    }
    let text = format!(
        "BEGIN; CREATE SCHEMA {schema}; SET LOCAL search_path TO {schema}; {}
        UPDATE version SET number = {VERSION}; COMMIT",
        MIGRATIONS.concat()
    );
    run(client, &text).await
}

/// Brings the tables of a volume to the current version. Fails if there are none, or if they are newer.
pub(crate) async fn migrate(client: &Client, schema: &str) -> Result<(), OpenError> {
    let found = version(client, schema).await?.ok_or_else(|| OpenError::Missing(place(schema)))?;
    if found > VERSION {
        return Err(OpenError::Newer { place: place(schema), found, known: VERSION });
    }
    for (number, migration) in (1..=VERSION).zip(MIGRATIONS).filter(|(number, _)| *number > found) {
        run(client, &format!("BEGIN; SET LOCAL search_path TO {schema}")).await?;
        // The update waits for another process that migrates, and then finds no row.
        let update = "UPDATE version SET number = $1 WHERE number = $1 - 1";
        let updated = client.execute(update, &[&number]).await.map_err(refused)?;
        let migration = if updated > 0 { migration } else { "" };
        run(client, &format!("{migration} COMMIT")).await?;
    }
    Ok(())
}

/// Removes the tables of a volume, if there are any.
pub(crate) async fn drop_all(client: &Client, schema: &str) -> Result<(), OpenError> {
    run(client, &format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await
}

/// Returns the version of a volume's tables; `None` if there are none.
pub(crate) async fn version(client: &Client, schema: &str) -> Result<Option<i32>, OpenError> {
    let known =
        "SELECT count(*) FROM information_schema.tables WHERE table_schema = $1 AND table_name = 'version'";
    let count: i64 = client.query_one(known, &[&schema]).await.map_err(refused)?.get(0);
    if count == 0 {
        return Ok(None);
    }
    let row =
        client.query_one(&format!("SELECT number FROM {schema}.version"), &[]).await.map_err(refused)?;
    Ok(Some(row.get(0)))
}

/// Runs statements. If one fails, ends the transaction that they are in.
async fn run(client: &Client, text: &str) -> Result<(), OpenError> {
    let outcome = client.batch_execute(text).await;
    if outcome.is_err() {
        // This ends the failed transaction, so that the connection can be used again.
        let _ = client.batch_execute("ROLLBACK").await;
    }
    Ok(outcome.map_err(refused)?)
}

fn refused(error: tokio_postgres::Error) -> meta::EngineError {
    failure(error).into_engine_error()
}
