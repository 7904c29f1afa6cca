//! Features of packages on mounts: each finding is reported at once, and a mount that hangs ends with its limits.

use crate::bench_run::{BenchRun, programs};
use crate::fake::Fake;
use bench::{Finding, Platform, ProbeEvent, Target, Verdict, probe_all};
use std::cell::RefCell;
use std::time::Duration;

/// Probes a target over a directory. Returns the findings in the order in which they were reported, and those at the end.
fn probe(target: Target) -> (Vec<Finding>, Vec<Finding>) {
    let mut bench_run = BenchRun::new(vec![target], Platform::directory());
    bench_run.plan.limits.job = Duration::from_secs(6);
    let (tried, ended) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let observe = |event: ProbeEvent<'_>| match event {
        ProbeEvent::Tried(name, finding) => {
            assert_eq!((name, ended.borrow().len()), ("Fake", 0));
            tried.borrow_mut().push(finding.clone());
        }
        ProbeEvent::Ended((_, probed)) => ended.borrow_mut().extend(probed.clone().unwrap()),
    };
    probe_all(&bench_run.plan, &programs(), &observe).unwrap();
    bench_run.check_nothing_is_left();
    (tried.into_inner(), ended.into_inner())
}

fn verdict<'f>(findings: &'f [Finding], feature: &str) -> &'f Verdict {
    &findings.iter().find(|finding| finding.feature == feature).unwrap().verdict
}

#[test]
fn each_feature_is_reported_as_soon_as_it_was_tried() {
    let (tried, ended) = probe(Fake::good().target());
    assert_eq!(tried, ended);
    assert_eq!(verdict(&ended, "rename a file"), &Verdict::Yes(String::new()));
    assert!(matches!(verdict(&ended, "foreign object visible"), Verdict::Yes(_)));
    // Without a proxy nothing counts requests.
    assert!(matches!(verdict(&ended, "rename copies no object"), Verdict::No(_)));
}

/// A regression test: calls on a bucket's mount were made without a limit, so that a probe of a busy machine printed nothing for minutes.
/// Opening a FIFO for reading blocks until a writer comes, which none does: so does `read_dir` of a dead mount.
#[test]
fn a_mount_that_hangs_for_foreign_objects_is_reported() {
    let hang = r#"mount --bind "$1" "$2"; mkfifo "$2/visible""#;
    let (tried, _) = probe(Fake::good().mount(hang).target());
    let Verdict::No(reason) = verdict(&tried, "object visible after close") else { panic!("{tried:?}") };
    assert!(reason.contains("no answer within"), "{reason}");
    assert!(matches!(verdict(&tried, "foreign object visible"), Verdict::Yes(_)));
}
