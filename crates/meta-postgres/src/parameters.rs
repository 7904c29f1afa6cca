//! The parameters of the statements that decide on commits and apply them.

use meta::codec::append_to_log_page;
use meta::{Commit, Condition, EngineError, LoggedRun, Merge, RunRecord, Seqno};
use meta_remote::{Change, Group, Sums, changed_keys, number_of};
use std::error::Error;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// The kinds of conditions on a key, as the statement knows them.
const AT_VERSION: i32 = 0;
const PRESENT: i32 = 1;
const ABSENT: i32 = 2;

/// Conditions and merges of commits, in the form of the statement's parameters. `nr` is the number of a commit.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) keys: KeyConditions,
    pub(crate) ranges: EmptyRanges,
    pub(crate) own: OwnKeys,
    pub(crate) merges: Merges,
}

/// Conditions on keys, each with the number `nr` of its commit.
#[derive(Debug, Default)]
pub(crate) struct KeyConditions {
    pub(crate) nr: Vec<i32>,
    pub(crate) key: Vec<Vec<u8>>,
    pub(crate) kind: Vec<i32>,
    pub(crate) version: Vec<i64>,
}

/// Conditions that ranges are empty, each with the number `nr` of its commit.
#[derive(Debug, Default)]
pub(crate) struct EmptyRanges {
    pub(crate) nr: Vec<i32>,
    pub(crate) from: Vec<Vec<u8>>,
    pub(crate) to: Vec<Vec<u8>>,
}

/// Keys that commits with a condition on a range put or delete. Old records under them do not count for the condition.
#[derive(Debug, Default)]
pub(crate) struct OwnKeys {
    pub(crate) nr: Vec<i32>,
    pub(crate) key: Vec<Vec<u8>>,
}

/// Merges into records, as the numbers of their [`Change`]s.
#[derive(Debug, Default)]
pub(crate) struct Merges {
    pub(crate) nr: Vec<i32>,
    pub(crate) key: Vec<Vec<u8>>,
    pub(crate) sum1: Vec<i64>,
    pub(crate) sum2: Vec<i64>,
    pub(crate) max1: Vec<i64>,
    pub(crate) max2: Vec<i64>,
}

/// Writes and ops of commits, in the form of the statement's parameters. `nr` is the number of a commit.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    pub(crate) put_nr: Vec<i32>,
    pub(crate) put_key: Vec<Vec<u8>>,
    pub(crate) put_value: Vec<Bytes>,
    pub(crate) put_sum1: Vec<Option<i64>>,
    pub(crate) put_sum2: Vec<Option<i64>>,
    pub(crate) delete_nr: Vec<i32>,
    pub(crate) delete_key: Vec<Vec<u8>>,
    pub(crate) log_nr: Vec<i32>,
    pub(crate) log_ops: Vec<i64>,
    pub(crate) log_page: Vec<Vec<u8>>,
    pub(crate) log_keys: Vec<Vec<u8>>,
    /// The numbers of the commits that change something.
    pub(crate) changing: Vec<i32>,
}

/// A record's bytes as a parameter of a statement, shared with the commit.
#[derive(Debug, Clone)]
pub(crate) struct Bytes(pub(crate) meta::Value);

impl ToSql for Bytes {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        (&*self.0).to_sql(ty, out)
    }

    fn accepts(ty: &Type) -> bool {
        <&[u8] as ToSql>::accepts(ty)
    }

    to_sql_checked!();
}

impl Checks {
    /// Returns the conditions and merges of a group.
    pub(crate) fn of_group(group: &Group) -> Result<Self, EngineError> {
        let mut checks = Self::default();
        for (nr, commit) in group.numbered() {
            checks.add(nr, &commit.conditions, &commit.merges)?;
            if checks.ranges.nr.last() == Some(&nr) {
                for key in commit.written_keys() {
                    checks.own.nr.push(nr);
                    checks.own.key.push(key.to_vec());
                }
            }
        }
        Ok(checks)
    }

    /// Returns the conditions and merges of the commit that adds a run.
    pub(crate) fn of_run(run: &LoggedRun, record: &RunRecord) -> Result<Self, EngineError> {
        let mut checks = Self::default();
        checks.add(number_of(run), &record.conditions, &record.merges)?;
        Ok(checks)
    }

    /// Adds the conditions and merges of a commit. After an error nothing is added.
    fn add(
        &mut self,
        nr: i32,
        conditions: &[Condition],
        merges: &[(Vec<u8>, Merge)],
    ) -> Result<(), EngineError> {
        let changes =
            merges.iter().map(|(key, merge)| Change::of(key, *merge)).collect::<Result<Vec<_>, _>>()?;
        conditions.iter().for_each(|condition| self.add_condition(nr, condition));
        for ((key, _), change) in merges.iter().zip(changes) {
            self.merges.nr.push(nr);
            self.merges.key.push(key.clone());
            self.merges.sum1.push(change.sum1);
            self.merges.sum2.push(change.sum2);
            self.merges.max1.push(change.max1);
            self.merges.max2.push(change.max2);
        }
        Ok(())
    }

    fn add_condition(&mut self, nr: i32, condition: &Condition) {
        let (key, kind, version) = match condition {
            Condition::Version { key, version } => (key, AT_VERSION, as_stored(*version)),
            Condition::Present { key } => (key, PRESENT, 0),
            Condition::Absent { key } => (key, ABSENT, 0),
            Condition::RangeEmpty(range) => {
                self.ranges.nr.push(nr);
                self.ranges.from.push(range.from.clone());
                self.ranges.to.push(range.to.clone());
                return;
            }
        };
        self.keys.nr.push(nr);
        self.keys.key.push(key.clone());
        self.keys.kind.push(kind);
        self.keys.version.push(version);
    }
}

impl Writes {
    /// Returns the writes and ops of a group.
    pub(crate) fn of_group(group: &Group) -> Self {
        let mut writes = Self::default();
        group.numbered().for_each(|(nr, commit)| writes.add(nr, commit));
        writes
    }

    fn add(&mut self, nr: i32, commit: &Commit) {
        for (key, value) in &commit.puts {
            let Sums { sum1, sum2 } = Sums::of(key, value);
            self.put_nr.push(nr);
            self.put_key.push(key.clone());
            self.put_value.push(Bytes(value.clone()));
            self.put_sum1.push(sum1);
            self.put_sum2.push(sum2);
        }
        for key in &commit.deletes {
            self.delete_nr.push(nr);
            self.delete_key.push(key.clone());
        }
        if !commit.is_check() {
            let mut page = Vec::new();
            commit.ops.iter().for_each(|op| append_to_log_page(&mut page, op));
            self.changing.push(nr);
            self.log_nr.push(nr);
            self.log_ops.push(commit.ops.len() as i64);
            self.log_page.push(page);
            self.log_keys.push(changed_keys::encode(changed_keys::of(commit)));
        }
    }
}

/// Returns a sequence number as the database stores it.
pub(crate) fn as_stored(seqno: Seqno) -> i64 {
    i64::try_from(seqno.0).unwrap_or(i64::MAX)
}
