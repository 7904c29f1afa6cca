//! The leases of verifiers. Pure: time is an argument.

use batch::{Proof, Terms};
use meta::{BatchId, Engine, EngineError, Reader};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A verifier counts as present for this long after it has asked for a batch. Verifiers ask several times a second.
const PRESENT: Duration = Duration::from_secs(5);

/// How long a batch waits to be taken while verifiers are present: they may all be at work.
const TAKE_MAX: Duration = Duration::from_secs(3);

/// Time after which a lease ends without a request of its holder.
pub(super) const LEASE: Duration = Duration::from_secs(10);

/// Leases that may end without a verdict. Then the batch is verified here.
const LOSSES_MAX: u32 = 2;

/// Maximum time that a batch waits for verifiers, whatever they do.
pub(super) const TOTAL_MAX: Duration = Duration::from_secs(600);

/// Verifiers that are remembered. Their names are those of tokens, of which there are few.
const VERIFIERS_MAX: usize = 1024;

/// A batch that is offered to verifiers.
#[derive(Debug)]
pub(in crate::serving::batches) struct Offer {
    /// The directory of the batch.
    pub(in crate::serving::batches) dir: PathBuf,
    pub(in crate::serving::batches) terms: Terms,
    pub(in crate::serving::batches) proof: Proof,
    /// The volume, of which each lease gets a snapshot.
    pub(in crate::serving::batches) engine: Arc<dyn Engine>,
}

/// The leases of all batches that are offered.
#[derive(Debug, Default)]
pub(super) struct Leases {
    tasks: BTreeMap<BatchId, Task>,
    /// When each verifier has asked for a batch last.
    verifiers: BTreeMap<String, Instant>,
    /// Number of leases so far.
    count: u32,
}

/// A batch that is offered.
#[derive(Debug)]
struct Task {
    offer: Arc<Offer>,
    offered: Instant,
    /// Since when the batch has no lease.
    idle_since: Instant,
    lease: Option<Lease>,
    /// Leases that have ended without a verdict.
    losses: u32,
    outcome: Option<Outcome>,
}

/// A lease of a batch.
#[derive(Clone)]
pub(super) struct Lease {
    /// The number of the lease, greater than those of all leases before, also of earlier mounts.
    pub(super) fence: u64,
    /// The name of the holder's token.
    pub(super) verifier: String,
    /// The snapshot that is lent to the holder.
    pub(super) snapshot: Arc<dyn Reader>,
    ends: Instant,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fence, verifier, ends, .. } = self;
        f.debug_struct("Lease")
            .field("fence", fence)
            .field("verifier", verifier)
            .field("ends", ends)
            .finish_non_exhaustive()
    }
}

/// The end of a verification elsewhere.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// The verdict of this lease is there.
    Verdict(Lease),
    /// The verifier could not verify the batch, or has rejected it.
    Failure { verifier: String, why: String },
}

/// The next step of a merge.
#[derive(Debug)]
pub(super) enum Decision {
    /// Wait until something changes, or until this time.
    Wait(Instant),
    /// Verify the batch here. The reason is logged, if there is one.
    VerifyHere(Option<&'static str>),
    Ended(Outcome),
}

/// A lease that does not count: it has ended, was never given, or belongs to another verifier.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease has ended; ask for another batch")]
pub(super) struct StaleLease;

impl Leases {
    /// Offers a batch.
    pub(super) fn offer(&mut self, id: BatchId, offer: Arc<Offer>, now: Instant) {
        let task = Task { offer, offered: now, idle_since: now, lease: None, losses: 0, outcome: None };
        self.tasks.insert(id, task);
    }

    /// Withdraws a batch. Its leases end.
    pub(super) fn withdraw(&mut self, id: BatchId) {
        self.tasks.remove(&id);
    }

    /// Leases the batch that was offered first of those that wait; `None` if none waits. `mount` is the number of the mount.
    pub(super) fn take(
        &mut self,
        mount: u64,
        verifier: String,
        now: Instant,
    ) -> Result<Option<(BatchId, Lease, Arc<Offer>)>, EngineError> {
        self.end_leases(now);
        if self.verifiers.len() >= VERIFIERS_MAX {
            self.verifiers.retain(|_, asked| now.duration_since(*asked) < PRESENT);
        }
        self.verifiers.insert(verifier.clone(), now);
        let waiting =
            self.tasks.iter_mut().filter(|(_, task)| task.lease.is_none() && task.outcome.is_none());
        let Some((id, task)) = waiting.min_by_key(|(id, task)| (task.offered, **id)) else { return Ok(None) };
        let snapshot = task.offer.engine.snapshot()?;
        self.count += 1;
        let fence = (mount << 32) | u64::from(self.count);
        let lease = Lease { fence, verifier, snapshot, ends: now + LEASE };
        task.lease = Some(lease.clone());
        Ok(Some((*id, lease, Arc::clone(&task.offer))))
    }

    /// Extends a lease that counts, and returns it.
    pub(super) fn renew(
        &mut self,
        id: BatchId,
        verifier: &str,
        fence: u64,
        now: Instant,
    ) -> Result<(Lease, Arc<Offer>), StaleLease> {
        self.end_leases(now);
        let task = self.tasks.get_mut(&id).ok_or(StaleLease)?;
        let lease = task.lease.as_mut().ok_or(StaleLease)?;
        if lease.fence != fence || lease.verifier != verifier {
            return Err(StaleLease);
        }
        lease.ends = now + LEASE;
        Ok((lease.clone(), Arc::clone(&task.offer)))
    }

    /// Ends a lease that counts, with a verdict or a failure.
    pub(super) fn finish(
        &mut self,
        id: BatchId,
        verifier: &str,
        fence: u64,
        failure: Option<String>,
        now: Instant,
    ) -> Result<(), StaleLease> {
        let (lease, _) = self.renew(id, verifier, fence, now)?;
        let task = self.tasks.get_mut(&id).ok_or(StaleLease)?;
        task.lease = None;
        task.outcome = Some(match failure {
            None => Outcome::Verdict(lease),
            Some(why) => Outcome::Failure { verifier: lease.verifier, why },
        });
        Ok(())
    }

    /// Returns what the merge of a batch does next.
    pub(super) fn decide(&mut self, id: BatchId, now: Instant) -> Decision {
        self.end_leases(now);
        let is_anyone_present = self.verifiers.values().any(|asked| now.duration_since(*asked) < PRESENT);
        let Some(task) = self.tasks.get(&id) else { return Decision::VerifyHere(None) };
        let last = task.offered + TOTAL_MAX;
        match (&task.outcome, &task.lease) {
            (Some(outcome), _) => Decision::Ended(outcome.clone()),
            _ if now >= last => Decision::VerifyHere(Some("no verifier has returned a verdict in time")),
            (None, Some(lease)) => Decision::Wait(lease.ends.min(last)),
            (None, None) if task.losses >= LOSSES_MAX => {
                Decision::VerifyHere(Some("the verifiers that had taken it have not returned a verdict"))
            }
            // If there was never a verifier, a merge does not mention verifiers.
            (None, None) if !is_anyone_present && task.losses == 0 => Decision::VerifyHere(None),
            (None, None) if !is_anyone_present => {
                Decision::VerifyHere(Some("the verifier that had taken it is gone"))
            }
            (None, None) if now >= task.idle_since + TAKE_MAX => {
                Decision::VerifyHere(Some("no verifier has taken it in time"))
            }
            (None, None) => Decision::Wait((task.idle_since + TAKE_MAX).min(last)),
        }
    }

    /// Ends the leases whose time is over.
    fn end_leases(&mut self, now: Instant) {
        for task in self.tasks.values_mut() {
            if task.lease.take_if(|lease| lease.ends <= now).is_some() {
                task.losses += 1;
                task.idle_since = now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meta::access::Caller;
    use meta::{Ino, LogCap, MemoryEngine, Moment};
    use store::Timestamp;

    const ID: BatchId = BatchId(7);

    fn offer() -> Arc<Offer> {
        let terms = Terms {
            caller: Caller { uid: 0, gid: 0, groups: Box::default() },
            lease: Ino(7)..Ino(9),
            at: Moment::default(),
            times: Timestamp(0)..=Timestamp(1),
            content: None,
            packs: None,
            keeps_refused: true,
            submitted: Timestamp(1),
        };
        let engine = Arc::new(MemoryEngine::new(LogCap::UNLIMITED));
        Arc::new(Offer { dir: PathBuf::new(), terms, proof: Proof::Reduced, engine })
    }

    fn offered(now: Instant) -> Leases {
        let mut leases = Leases::default();
        leases.offer(ID, offer(), now);
        leases
    }

    fn take(leases: &mut Leases, verifier: &str, now: Instant) -> Option<u64> {
        leases.take(3, verifier.to_owned(), now).unwrap().map(|(_, lease, _)| lease.fence)
    }

    #[test]
    fn s634_a_batch_does_not_wait_for_verifiers_that_are_not_there() {
        let now = Instant::now();
        let mut leases = offered(now);
        assert!(matches!(leases.decide(ID, now), Decision::VerifyHere(None)));
        let mut leases = Leases::default();
        assert_eq!(take(&mut leases, "a", now), None);
        leases.offer(ID, offer(), now + PRESENT);
        assert!(matches!(leases.decide(ID, now + PRESENT), Decision::VerifyHere(None)));
    }

    /// The verifiers are at work on other batches.
    #[test]
    fn s634_a_batch_that_nobody_takes_waits_seconds() {
        let now = Instant::now();
        let mut leases = Leases::default();
        assert_eq!(take(&mut leases, "a", now), None);
        leases.offer(ID, offer(), now);
        assert!(matches!(leases.decide(ID, now), Decision::Wait(until) if until == now + TAKE_MAX));
        assert!(matches!(leases.decide(ID, now + TAKE_MAX), Decision::VerifyHere(Some(_))));
    }

    #[test]
    fn s635_two_verifiers_do_not_get_one_batch_and_a_stale_lease_does_not_count() {
        let now = Instant::now();
        let mut leases = offered(now);
        let first = take(&mut leases, "a", now).unwrap();
        assert_eq!(take(&mut leases, "b", now), None, "the batch has a lease");
        assert_eq!(leases.renew(ID, "b", first, now).unwrap_err(), StaleLease, "of another verifier");
        assert_eq!(leases.renew(ID, "a", first + 1, now).unwrap_err(), StaleLease);
        assert!(leases.renew(ID, "a", first, now + LEASE / 2).is_ok());
        assert_eq!(take(&mut leases, "b", now + LEASE), None, "the lease was extended");
        let later = now + LEASE * 2;
        let second = take(&mut leases, "b", later).unwrap();
        assert!(second > first);
        assert_eq!(leases.finish(ID, "a", first, None, later), Err(StaleLease));
        assert!(matches!(leases.decide(ID, later), Decision::Wait(_)));
        assert_eq!(leases.finish(ID, "b", second, None, later), Ok(()));
        assert_eq!(leases.finish(ID, "b", second, None, later), Err(StaleLease), "a lease ends once");
        assert!(matches!(
            leases.decide(ID, later),
            Decision::Ended(Outcome::Verdict(lease)) if lease.fence == second
        ));
        leases.withdraw(ID);
        assert_eq!(leases.renew(ID, "b", second, later).unwrap_err(), StaleLease);
    }

    #[test]
    fn s634_verifiers_that_die_or_never_end_delay_a_batch_for_a_bounded_time() {
        let mut now = Instant::now();
        let mut leases = offered(now);
        for _ in 0..LOSSES_MAX {
            take(&mut leases, "a", now).unwrap();
            now += LEASE;
        }
        assert!(matches!(leases.decide(ID, now), Decision::VerifyHere(Some(_))));
        let mut leases = offered(now);
        let fence = take(&mut leases, "a", now).unwrap();
        let end = now + TOTAL_MAX;
        while now < end {
            assert!(matches!(leases.decide(ID, now), Decision::Wait(_)));
            leases.renew(ID, "a", fence, now).unwrap();
            now += LEASE / 2;
        }
        assert!(matches!(leases.decide(ID, now), Decision::VerifyHere(Some(_))));
    }

    #[test]
    fn leases_of_a_later_mount_have_greater_numbers() {
        let now = Instant::now();
        let mut leases = offered(now);
        let fence = take(&mut leases, "a", now).unwrap();
        let mut later = offered(now);
        let next = later.take(4, "a".to_owned(), now).unwrap().unwrap().1.fence;
        assert!(next > fence);
        assert_eq!(later.renew(ID, "a", fence, now).unwrap_err(), StaleLease);
    }
}
