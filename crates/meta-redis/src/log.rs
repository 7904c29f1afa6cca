//! The op log in the stream `log`.

use crate::connection::Connection;
use crate::failure::unexpected;
use crate::request::Arguments;
use crate::scripts::Script;
use crate::values::{Values, optional_bytes};
use meta::{EngineError, LogCap, LoggedRun, Seqno};
use meta_remote::{Changes, Failure, LogPage, LogSize, LogState, Position, SessionId};

/// Maximum commits, and pages of a run, to read at a time.
const COMMITS_MAX: usize = 4096;
const PAGES_MAX: u32 = 64;

/// Returns the state of the log from the answer of a script.
fn state(mut values: Values) -> Result<LogState, Failure> {
    Ok(LogState {
        head: values.seqno()?,
        cut: values.seqno()?,
        size: LogSize { ops: values.int()?, bytes: values.int()?, run_bytes: values.int()? },
        first: values.optional_seqno()?,
        needed_after: values.optional_seqno()?,
    })
}

/// Returns the state of the log, and the cursor of a consumer; `None` if it is not registered.
pub(crate) async fn cursor(
    connection: &Connection,
    consumer: &str,
) -> Result<(LogState, Option<Seqno>), Failure> {
    let mut values = Values::of(connection.run(Script::Cursor, Arguments::default().text(consumer)).await?)?;
    Ok((state(values.array()?)?, values.optional_seqno()?))
}

/// Returns the state of the log, and ops after a cursor: whole commits and pages of runs, until they have `limit` ops or more.
pub(crate) async fn read_after(
    connection: &Connection,
    cursor: Seqno,
    limit: usize,
) -> Result<(LogState, LogPage), Failure> {
    let mut arguments = Arguments::default();
    arguments.text(cursor.0).text(limit.clamp(1, COMMITS_MAX));
    let mut values = Values::of(connection.run(Script::ReadLog, &arguments).await?)?;
    let (log_state, mut commits) = (state(values.array()?)?, values.array()?);
    let mut page = LogPage::new(limit);
    while !commits.is_empty() && !page.is_full() {
        let mut entry = commits.array()?;
        let (commit, ops) = (entry.seqno()?, entry.bytes()?);
        if entry.is_empty() {
            page.add(commit, &ops)?;
            continue;
        }
        let (version, pages) = (entry.seqno()?, u32::try_from(entry.int()?).map_err(|_| unexpected())?);
        let number = |stored: i64| u64::try_from(stored).unwrap_or_default();
        let run = LoggedRun { version, pages, ops: number(entry.int()?), bytes: number(entry.int()?) };
        add_run(connection, &mut page, &run, cursor, commit).await?;
    }
    Ok((log_state, page))
}

/// Adds the pages of a run's ops that come after the cursor, as far as there is room.
async fn add_run(
    connection: &Connection,
    page: &mut LogPage,
    run: &LoggedRun,
    cursor: Seqno,
    commit: Seqno,
) -> Result<(), Failure> {
    let (key, mut next) = (pages_key(run.version), run.first_page_after(cursor, commit));
    while !page.is_full() && next < run.pages {
        let numbers = next..run.pages.min(next + PAGES_MAX);
        let fields: Vec<String> = numbers.map(|number| number.to_string()).collect();
        let fields: Vec<&[u8]> = fields.iter().map(String::as_bytes).collect();
        let mut found = Values::of(connection.call("HMGET", &key, &fields).await?)?;
        while !found.is_empty() && !page.is_full() {
            let missing =
                || Failure::Refused(EngineError::Corrupt("ops of a run are missing in the log".into()));
            let ops = optional_bytes(found.next_value()?)?.ok_or_else(missing)?;
            page.add(run.seqno_of_page(commit, next), &ops)?;
            next += 1;
        }
    }
    Ok(())
}

/// Returns the name of the key of a run's pages.
pub(crate) fn pages_key(version: Seqno) -> String {
    format!("run-pages:{}", version.0)
}

/// Cuts off what the log need not keep, at most `commits_max` commits.
pub(crate) async fn trim(connection: &Connection, cap: &LogCap, commits_max: i64) -> Result<(), Failure> {
    let mut arguments = Arguments::default();
    arguments.text(cap.tail_ops).text(cap.bytes_max).text(cap.run_bytes_max).text(commits_max);
    connection.run(Script::Trim, &arguments).await.map(drop)
}

/// Returns the commits of other sessions than `session` among the next `limit` commits after a position.
pub(crate) async fn changes_after(
    connection: &Connection,
    after: Position,
    session: SessionId,
    limit: i64,
) -> Result<Changes, Failure> {
    let mut arguments = Arguments::default();
    arguments.text(after.seqno.0).text(session.0);
    match after.writer {
        Some([session, generation, group]) => arguments.text(session).text(generation).text(group),
        None => arguments.text("").text("").text(""),
    };
    arguments.text(limit);
    let mut values = Values::of(connection.run(Script::ChangesAfter, &arguments).await?)?;
    let (head, cut, is_other_history) = (values.seqno()?, values.seqno()?, values.int()? == 1);
    let (to, writer) = (values.seqno()?, [values.int()?, values.int()?, values.int()?]);
    let writer = writer.iter().all(|number| *number >= 0).then_some(writer);
    let (mut entries, mut commits) = (values.array()?, Vec::new());
    while !entries.is_empty() {
        let mut entry = entries.array()?;
        let at = entry.seqno()?;
        commits.push((at, if entry.is_empty() { None } else { Some(entry.bytes()?) }));
    }
    Ok(Changes { head, cut, commits, to: Position { seqno: to, writer }, is_other_history })
}
