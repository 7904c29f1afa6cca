//! Transactions as arguments of scripts, and their answers.

use crate::failure::unexpected;
use crate::record::{self, Start};
use crate::values::Values;
use meta::codec::append_to_log_page;
use meta::{Commit, Condition, Locker, LoggedRun, Merge, RunRecord, Seqno};
use meta_remote::{
    Applied, Failure, Group, Lease, LogSize, MergedRow, Outcome, SILENCE_S_MAX, SessionId, Sums,
    changed_keys, ended, number_of,
};
use redis::Value;

/// Arguments of a script.
#[derive(Debug, Default)]
pub(crate) struct Arguments(pub(crate) Vec<Vec<u8>>);

impl Arguments {
    /// Adds a value as text.
    pub(crate) fn text(&mut self, value: impl ToString) -> &mut Self {
        self.0.push(value.to_string().into_bytes());
        self
    }

    /// Adds bytes as they are.
    pub(crate) fn bytes(&mut self, value: impl Into<Vec<u8>>) -> &mut Self {
        self.0.push(value.into());
        self
    }

    /// Adds the place of a transaction among those of its session.
    fn turn(&mut self, session: SessionId, generation: i64, number: i64) -> &mut Self {
        self.text(session.0).text(generation).text(number).text(SILENCE_S_MAX)
    }

    fn merges(&mut self, merges: &[(Vec<u8>, Merge)]) -> Result<(), Failure> {
        self.text(merges.len());
        for (key, merge) in merges {
            self.bytes(key.as_slice()).bytes(record::encode_change(key, *merge)?);
        }
        Ok(())
    }

    fn conditions(&mut self, conditions: &[Condition]) {
        self.text(conditions.len());
        for condition in conditions {
            let (kind, key, extra): (_, &[u8], &[u8]) = match condition {
                Condition::Version { key, version } => ("v", key, &record::encode_version(*version)),
                Condition::Present { key } => ("p", key, b""),
                Condition::Absent { key } => ("a", key, b""),
                Condition::RangeEmpty(range) => ("r", &range.from, &range.to),
            };
            self.text(kind).bytes(key).bytes(extra);
        }
    }

    /// Adds a commit as `scripts/commit.lua` describes it.
    fn commit(&mut self, commit: &Commit) -> Result<(), Failure> {
        self.text(commit.puts.len());
        for (key, value) in &commit.puts {
            self.bytes(key.as_slice()).bytes(record::encode(key, Sums::of(key, value), value));
        }
        self.text(commit.deletes.len());
        for key in &commit.deletes {
            self.bytes(key.as_slice());
        }
        self.merges(&commit.merges)?;
        self.conditions(&commit.conditions);
        if commit.is_check() {
            self.text("").text("").text("");
        } else {
            let mut page = Vec::new();
            commit.ops.iter().for_each(|op| append_to_log_page(&mut page, op));
            self.text(commit.ops.len()).bytes(page).bytes(changed_keys::encode(changed_keys::of(commit)));
        }
        Ok(())
    }
}

/// Returns the arguments of the script that commits a group.
pub(crate) fn of_group(
    group: &Group,
    session: SessionId,
    generation: i64,
    number: i64,
) -> Result<Arguments, Failure> {
    let mut arguments = Arguments::default();
    arguments.turn(session, generation, number).text(group.count());
    group.numbered().try_for_each(|(_, commit)| arguments.commit(commit))?;
    Ok(arguments)
}

/// Returns whether a group frees memory: each commit deletes records, and puts no more than it deletes.
pub(crate) fn frees_memory(group: &Group) -> bool {
    group
        .numbered()
        .all(|(_, commit)| !commit.deletes.is_empty() && commit.puts.len() <= commit.deletes.len())
}

/// Returns the arguments of the script that adds a run.
pub(crate) fn of_run(
    run: &LoggedRun,
    record: &RunRecord,
    session: SessionId,
    generation: i64,
    number: i64,
) -> Result<Arguments, Failure> {
    let mut arguments = Arguments::default();
    arguments.turn(session, generation, number);
    arguments.text(run.version.0).text(number_of(run)).text(run.ops).text(run.bytes).text(run.pages);
    // The commit has neither puts nor deletes.
    arguments.text(0).text(0);
    arguments.merges(&record.merges)?;
    arguments.conditions(&record.conditions);
    Ok(arguments)
}

/// Returns the outcome of a transaction from the answer of its script.
pub(crate) fn applied(answer: Value) -> Result<Applied, Failure> {
    let mut values = Values::of(answer)?;
    match &*values.bytes()? {
        b"ok" => {}
        b"ended" => return Err(Failure::Refused(ended())),
        b"merge" => {
            return Err(Failure::Merge(
                "a link count or the usage of a quota would leave its range, or a record has no such number"
                    .into(),
            ));
        }
        _ => return Err(unexpected()),
    }
    let (base, mut numbers, mut failed) = (values.seqno()?, values.array()?, Vec::new());
    while !numbers.is_empty() {
        failed.push(i32::try_from(numbers.int()?).map_err(|_| unexpected())?);
    }
    let head = values.seqno()?;
    let size = LogSize { ops: values.int()?, bytes: values.int()?, run_bytes: values.int()? };
    let merged = merged_rows(values.array()?)?;
    let strict = leases(values.array()?)?;
    Ok(Applied { outcome: Outcome { base, failed }, now: Some((head, size)), merged, strict })
}

/// Returns the leases in an answer.
pub(crate) fn leases(mut values: Values) -> Result<Vec<Lease>, Failure> {
    let mut leases = Vec::new();
    while !values.is_empty() {
        let mut lease = values.array()?;
        leases.push(Lease {
            locker: Locker { session: lease.int()?, epoch: lease.int()? },
            fence: lease.int()?,
            beat: lease.int()?,
            read_to: lease.seqno()?,
            is_strict: lease.int()? == 1,
        });
    }
    Ok(leases)
}

/// Returns the records that were merged into, from the answer of a script.
fn merged_rows(mut values: Values) -> Result<Vec<MergedRow>, Failure> {
    let mut rows = Vec::new();
    while !values.is_empty() {
        let (key, before, record) = (values.bytes()?, values.bytes()?, values.bytes()?);
        let before = before.try_into().map(u64::from_be_bytes).map(Seqno).map_err(|_| unexpected())?;
        let Start { version, merged, .. } = Start::of(&record)?;
        rows.push(MergedRow { key, before, version, columns: merged.ok_or_else(unexpected)? });
    }
    Ok(rows)
}
