//! The caches that an op makes stale. Pure functions of the op and its logged effects.

use meta::{Effect, Ino, Kind, Name, Op, Refreshed};

use crate::followers::invalidation::Invalidation;

/// Returns what a front end must drop after an op that it did not make itself.
///
/// A name comes before the inodes under it: a front end's lookup that is under way ends before the name is dropped, so that attributes
/// which this lookup has cached are dropped after it.
pub(crate) fn invalidations(op: &Op, effect: &Effect) -> Vec<Invalidation> {
    match op {
        // These change nothing that a front end shows.
        Op::Root { .. }
        | Op::Lease { .. }
        | Op::CreateOrphan { .. }
        | Op::HandOn { .. }
        | Op::SetQuota { .. }
        | Op::AwaitExport { .. }
        | Op::Exported { .. }
        | Op::Purge { .. }
        | Op::SetBatch { .. }
        | Op::SetRefusedOp { .. } => Vec::new(),
        Op::Create { parent, name, .. } => names_of(&[(*parent, name)], &[]),
        Op::Link { ino, parent, name } => names_of(&[(*parent, name)], &[*ino]),
        // A file that is gone has no attributes. It stays if it has further names or is open.
        Op::Unlink { parent, name, .. } | Op::Vanish { parent, name, .. } => {
            names_of(&[(*parent, name)], effect.inode.as_slice())
        }
        // Programs may be in the directory.
        Op::Rmdir { parent, name } => names_of(&[(*parent, name)], &inodes_of(effect)),
        Op::Rename { from, to, .. } => names_of(&[(from.0, &from.1), (to.0, &to.1)], &inodes_of(effect)),
        Op::SetAttr { ino, changes } if changes.size_bytes.is_some() => vec![Invalidation::Inode(*ino)],
        Op::SetAttr { ino, .. }
        | Op::Accessed { ino, .. }
        | Op::SetXattr { ino, .. }
        | Op::RemoveXattr { ino, .. } => vec![Invalidation::Attributes(*ino)],
        // Without a time, the same bytes have another place in the bucket.
        Op::Publish { mtime: None, .. } => Vec::new(),
        Op::Publish { ino, .. } | Op::Splice { ino, .. } => vec![Invalidation::Inode(*ino)],
        // An import makes a name known, and no front end caches that a name is missing. A directory counts as a link of its parent.
        Op::Import { parent, seen, .. } if seen.kind == Kind::Directory => {
            vec![Invalidation::Attributes(*parent)]
        }
        Op::Import { .. } => Vec::new(),
        Op::Refresh { ino, .. } => match effect.refreshed {
            Refreshed::Nothing => Vec::new(),
            Refreshed::Attributes => vec![Invalidation::Attributes(*ino)],
            Refreshed::Content => vec![Invalidation::Inode(*ino)],
        },
        // Only names that no front end holds are evicted. A directory counted as a link of its parent.
        Op::Evict { parent, .. } => vec![Invalidation::Attributes(*parent)],
    }
}

/// Returns whether an op may make caches stale, whatever its effects are.
pub(crate) fn may_invalidate(op: &Op) -> bool {
    let effect = Effect { refreshed: Refreshed::Content, ..Effect::default() };
    !invalidations(op, &effect).is_empty()
}

/// Returns the names that an op took from inodes that a front end may hold, each with its inode.
pub(crate) fn lost_names<'o>(op: &'o Op, effect: &Effect) -> Vec<(Ino, (Ino, &'o Name))> {
    let taken = |ino: Option<Ino>, parent, name| ino.map(|ino| (ino, (parent, name)));
    match op {
        Op::Unlink { parent, name, .. } | Op::Rmdir { parent, name } | Op::Vanish { parent, name, .. } => {
            taken(effect.inode.or(effect.other), *parent, name).into_iter().collect()
        }
        Op::Rename { from, to, .. } => {
            let moved = taken(effect.inode, from.0, &from.1);
            moved.into_iter().chain(taken(effect.other, to.0, &to.1)).collect()
        }
        // No front end holds an inode that is evicted.
        Op::Evict { .. }
        | Op::Root { .. }
        | Op::Lease { .. }
        | Op::Create { .. }
        | Op::CreateOrphan { .. }
        | Op::Link { .. }
        | Op::HandOn { .. }
        | Op::SetAttr { .. }
        | Op::Accessed { .. }
        | Op::SetXattr { .. }
        | Op::RemoveXattr { .. }
        | Op::Publish { .. }
        | Op::Splice { .. }
        | Op::Import { .. }
        | Op::Refresh { .. }
        | Op::SetQuota { .. }
        | Op::AwaitExport { .. }
        | Op::Exported { .. }
        | Op::Purge { .. }
        | Op::SetBatch { .. }
        | Op::SetRefusedOp { .. } => Vec::new(),
    }
}

/// Returns the invalidations of names, of their directories and of inodes.
fn names_of(names: &[(Ino, &Name)], inodes: &[Ino]) -> Vec<Invalidation> {
    let entries = names.iter().map(|(parent, name)| Invalidation::entry(*parent, name.as_bytes()));
    let directories = names.iter().map(|(parent, _)| Invalidation::Inode(*parent));
    let inodes = inodes.iter().map(|ino| Invalidation::Attributes(*ino));
    entries.chain(directories).chain(inodes).collect()
}

/// Returns the inodes that an op affected.
fn inodes_of(effect: &Effect) -> Vec<Ino> {
    effect.inode.into_iter().chain(effect.other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use meta::{AttrChanges, BatchId, Moment, Observed, RenameHow, XattrHow};
    use store::Timestamp;

    const DIR: Ino = Ino(10);
    const OTHER_DIR: Ino = Ino(11);
    const FILE: Ino = Ino(20);
    const OTHER_FILE: Ino = Ino(21);

    fn name(text: &str) -> Name {
        Name::try_from(text).unwrap()
    }

    fn entry(parent: Ino, name: &str) -> Invalidation {
        Invalidation::entry(parent, name.as_bytes())
    }

    fn seen(kind: Kind) -> Observed {
        let (zero, at) = (Timestamp(0), Moment::default());
        Observed {
            kind,
            size_bytes: 0,
            object: None,
            mode: 0o644,
            uid: 0,
            gid: 0,
            rdev: 0,
            atime: zero,
            mtime: zero,
            ctime: zero,
            btime: zero,
            target: None,
            exact: true,
            looked_at: at,
        }
    }

    /// Returns an op of every kind, with effects, and what a front end must drop after it.
    fn cases() -> Vec<(Op, Effect, Vec<Invalidation>)> {
        let (none, is) = (Effect::default(), Effect { inode: Some(FILE), ..Effect::default() });
        let gone = Effect { other: Some(FILE), ..none };
        let both = Effect { inode: Some(FILE), other: Some(OTHER_FILE), ..none };
        let refreshed = |refreshed| Effect { refreshed, ..none };
        let (mode, umask, uid, gid, rdev) = (0, 0, 0, 0, 0);
        let create = |kind| Op::Create {
            parent: DIR,
            name: name("a"),
            ino: FILE,
            kind,
            mode,
            umask,
            uid,
            gid,
            rdev,
            target: None,
        };
        let rename = Op::Rename {
            from: (DIR, name("a")),
            to: (OTHER_DIR, name("b")),
            how: RenameHow::Replace,
            keep: true,
        };
        let renamed = [
            entry(DIR, "a"),
            entry(OTHER_DIR, "b"),
            Invalidation::Inode(DIR),
            Invalidation::Inode(OTHER_DIR),
        ];
        let publish =
            |mtime| Op::Publish { ino: FILE, base: None, content: Vec::new(), size_bytes: 0, mtime };
        let splice = Op::Splice { ino: FILE, ranges: vec![], content: vec![], size_bytes: 0, mtime: None };
        let import = |kind| Op::Import { parent: DIR, name: name("a"), ino: FILE, seen: seen(kind) };
        let refresh = || Op::Refresh { ino: FILE, seen: seen(Kind::File) };
        let set = |size_bytes| Op::SetAttr {
            ino: FILE,
            changes: AttrChanges { size_bytes, ..AttrChanges::default() },
        };
        let unlink = Op::Unlink { parent: DIR, name: name("a"), keep: true };
        let vanish = Op::Vanish { parent: DIR, name: name("a"), looked_at: Moment::default(), keep: false };
        let xattr = |value: &'static [u8]| Op::SetXattr {
            ino: FILE,
            name: (*b"user.a").into(),
            value: value.into(),
            how: XattrHow::Set,
        };
        let in_dir = |more: &[Invalidation]| [&[entry(DIR, "a"), Invalidation::Inode(DIR)], more].concat();
        let attributes = || vec![Invalidation::Attributes(FILE)];
        vec![
            (Op::Root { mode, uid, gid }, none, vec![]),
            (Op::Lease { from: Ino(1), to: Ino(2) }, none, vec![]),
            (create(Kind::File), none, in_dir(&[])),
            (create(Kind::Directory), none, in_dir(&[])),
            (Op::CreateOrphan { parent: DIR, ino: FILE, mode, umask, uid, gid }, none, vec![]),
            (Op::Link { ino: FILE, parent: DIR, name: name("a") }, none, in_dir(&attributes())),
            (unlink.clone(), is, in_dir(&attributes())),
            (unlink, gone, in_dir(&[])),
            (Op::HandOn { ino: FILE, parent: DIR, name: name("a") }, none, vec![]),
            (Op::Rmdir { parent: DIR, name: name("a") }, gone, in_dir(&attributes())),
            (rename.clone(), is, [&renamed[..], &attributes()].concat()),
            (rename, both, [&renamed[..], &attributes(), &[Invalidation::Attributes(OTHER_FILE)]].concat()),
            (set(None), none, attributes()),
            (set(Some(7)), none, vec![Invalidation::Inode(FILE)]),
            (Op::Accessed { ino: FILE, atime: Timestamp(1) }, none, attributes()),
            (xattr(b"b"), none, attributes()),
            (Op::RemoveXattr { ino: FILE, name: (*b"user.a").into() }, none, attributes()),
            (publish(Some(Timestamp(1))), none, vec![Invalidation::Inode(FILE)]),
            (publish(None), none, vec![]),
            (splice, none, vec![Invalidation::Inode(FILE)]),
            (import(Kind::File), none, vec![]),
            (import(Kind::Directory), none, vec![Invalidation::Attributes(DIR)]),
            (refresh(), refreshed(Refreshed::Nothing), vec![]),
            (refresh(), refreshed(Refreshed::Attributes), attributes()),
            (refresh(), refreshed(Refreshed::Content), vec![Invalidation::Inode(FILE)]),
            (vanish, gone, in_dir(&[])),
            (Op::Evict { parent: DIR, name: name("a") }, gone, vec![Invalidation::Attributes(DIR)]),
            (Op::SetQuota { dir: DIR, limits: None }, none, vec![]),
            (Op::AwaitExport { ino: FILE }, none, vec![]),
            (Op::Exported { ino: FILE, change: 1 }, none, vec![]),
            (Op::Purge { ino: FILE }, none, vec![]),
            (Op::SetBatch { id: BatchId(7), record: None }, none, vec![]),
            (Op::SetRefusedOp { batch: BatchId(7), index: 1, record: None }, none, vec![]),
        ]
    }

    #[test]
    fn each_op_invalidates_what_it_makes_stale() {
        let cases = cases();
        for (op, effect, expected) in &cases {
            assert_eq!(invalidations(op, effect), *expected, "{op:?} with {effect:?}");
            assert!(may_invalidate(op) || expected.is_empty(), "{op:?}");
        }
        let kinds: std::collections::HashSet<_> =
            cases.iter().map(|(op, ..)| std::mem::discriminant(op)).collect();
        assert_eq!(kinds.len(), 25, "one case at least for each kind of op");
    }

    #[test]
    fn names_of_inodes_that_lost_them_are_known() {
        let both = Effect { inode: Some(FILE), other: Some(OTHER_FILE), ..Effect::default() };
        let (from, to) = ((DIR, name("a")), (OTHER_DIR, name("b")));
        let rename = Op::Rename { from: from.clone(), to: to.clone(), how: RenameHow::Exchange, keep: true };
        assert_eq!(lost_names(&rename, &both), [(FILE, (DIR, &from.1)), (OTHER_FILE, (OTHER_DIR, &to.1))]);
        let rmdir = Op::Rmdir { parent: DIR, name: name("a") };
        let gone = Effect { inode: None, ..both };
        assert_eq!(lost_names(&rmdir, &gone), [(OTHER_FILE, (DIR, &name("a")))]);
        assert_eq!(lost_names(&Op::Purge { ino: FILE }, &both), []);
    }
}
