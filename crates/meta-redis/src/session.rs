//! Sessions in the hash `sessions`.

use crate::connection::Connection;
use crate::failure::unexpected;
use crate::request::Arguments;
use crate::scripts::Script;
use crate::values::Values;
use meta::EngineError;
use meta_remote::{Failure, LEASE_S, OpenError, Outcome, SILENCE_S_MAX, SessionId, SessionState, ended};

/// Begins a session. Fails with [`OpenError::InUse`] while a session that excludes this one may be alive.
pub(crate) async fn begin(
    connection: &Connection,
    holder: &str,
    is_exclusive: bool,
    version: i32,
) -> Result<SessionId, OpenError> {
    let mut arguments = Arguments::default();
    arguments.text(holder).text(i32::from(is_exclusive)).text(LEASE_S).text(SILENCE_S_MAX).text(version);
    let begun = async {
        let mut values = Values::of(connection.run(Script::BeginSession, &arguments).await?)?;
        match &*values.bytes()? {
            b"ok" => Ok(Ok(SessionId(values.int()?))),
            _ => Ok(Err((String::from_utf8_lossy(&values.bytes()?).into_owned(), values.int()?))),
        }
    };
    match begun.await.map_err(Failure::into_engine_error)? {
        Ok(id) => Ok(id),
        Err((holder, seconds)) => Err(OpenError::InUse { holder, seconds, timeout_s: LEASE_S }),
    }
}

/// Resumes a session on a new connection, after which no transaction of an earlier connection can be applied. Fails if the session has
/// ended.
pub(crate) async fn resume(
    connection: &Connection,
    session: SessionId,
    known_generation: i64,
) -> Result<SessionState, Failure> {
    let mut arguments = Arguments::default();
    arguments.text(session.0).text(known_generation);
    let mut values = Values::of(connection.run(Script::Resume, &arguments).await?)?;
    if values.is_empty() {
        return Err(Failure::Refused(ended()));
    }
    let (generation, last_group, base) = (values.int()?, values.int()?, values.seqno()?);
    let (mut numbers, mut failed) = (values.array()?, Vec::new());
    while !numbers.is_empty() {
        failed.push(i32::try_from(numbers.int()?).map_err(|_| unexpected())?);
    }
    Ok(SessionState { generation, last_group, outcome: Outcome { base, failed }, head: values.seqno()? })
}

/// Runs a script that takes a session.
pub(crate) async fn run(connection: &Connection, script: Script, session: SessionId) -> Result<(), Failure> {
    connection.run(script, Arguments::default().text(session.0)).await.map(drop)
}

/// Returns whether no other session has shown that it is alive within [`SILENCE_S_MAX`].
pub(crate) async fn is_alone(connection: &Connection, session: SessionId) -> Result<bool, Failure> {
    let mut arguments = Arguments::default();
    arguments.text(session.0).text(SILENCE_S_MAX);
    Ok(crate::values::int(&connection.run(Script::IsAlone, &arguments).await?)? == 1)
}

/// Fails unless the server has metadata of this volume, of a version that this Tenon knows.
pub(crate) async fn check_version(
    connection: &Connection,
    place: String,
    known: i32,
) -> Result<(), OpenError> {
    match stored_version(connection).await? {
        None => Err(OpenError::Missing(place)),
        Some(found) if found > known => Err(OpenError::Newer { place, found, known }),
        Some(_) => Ok(()),
    }
}

/// Returns the version of the metadata of this volume; `None` if the server has none.
pub(crate) async fn stored_version(connection: &Connection) -> Result<Option<i32>, OpenError> {
    let found = connection.call("HGET", "head", &[b"version"]).await;
    let found = found.map_err(Failure::into_engine_error)?;
    let Ok(found) = crate::values::int(&found) else { return Ok(None) };
    let found = i32::try_from(found)
        .map_err(|_| EngineError::Corrupt("the version of the metadata is not a number".into()))?;
    Ok(Some(found))
}
