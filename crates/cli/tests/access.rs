//! Random operations of eight users and the superuser get the same verdict from the kernel, through a mount, and from `meta::access`, with the
//! namespace in memory as the model.

use crate::fixture::Home;
use meta::access::{AccessError, Caller, authorize};
use meta::{
    AttrChanges, FsError, Ino, Inode, Kind, LogCap, MemoryEngine, Moment, Name, Namespace, Op, OpContext,
    Origin, RenameHow, XattrHow, acl, namespace,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use store::{Entropy, Timestamp};

const USERS: u32 = 8;
const FIRST_UID: u32 = 3001;
const SHARED_GROUPS: [u32; 3] = [4001, 4002, 4003];

/// Operations of one run, unless `TENON_ACCESS_OPS` says otherwise.
const OPERATIONS: usize = 6000;

/// Entries at most, so that operations meet.
const ENTRIES_MAX: usize = 120;

/// A process that acts as one user.
struct Worker {
    caller: Caller,
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(home: &Home, caller: Caller) -> Self {
        let mut command = home.command("/usr/bin/python3");
        command.arg("-c").arg(include_str!("access_worker.py"));
        command.args([caller.uid.to_string(), caller.gid.to_string(), json!(caller.groups).to_string()]);
        command.arg(home.mnt()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { caller, process, input, output: BufReader::new(output) }
    }

    /// Carries out an operation and returns its errno, 0 for success.
    fn run(&mut self, operation: &Value) -> i32 {
        writeln!(self.input, "{operation}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim().parse().unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// The model: the namespace in memory, and the path of each entry.
struct Model {
    namespace: Namespace,
    entropy: Entropy,
    now: i64,
}

/// An operation as the worker and the model carry it out.
struct Operation {
    call: Value,
    op: Op,
    /// Paths whose attributes are compared afterwards.
    paths: Vec<String>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let engine = Arc::new(MemoryEngine::new(LogCap::default()));
        let namespace = Namespace::new(engine, &context(1)).unwrap();
        Self { namespace, entropy: Entropy::new(seed), now: 1 }
    }

    fn below(&self, n: usize) -> usize {
        self.entropy.below(n as u64) as usize
    }

    fn one_of<T: Clone>(&self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    /// Returns all entries: path, directory, name and inode.
    fn entries(&self) -> Vec<(String, Ino, Name, Inode)> {
        let mut found = Vec::new();
        let mut dirs = vec![(String::new(), Ino::ROOT)];
        while let Some((path, dir)) = dirs.pop() {
            for (name, dentry) in self.namespace.entries(dir, None, usize::MAX).unwrap() {
                let path = format!("{path}{name}");
                let inode = self.namespace.inode(dentry.ino).unwrap();
                if inode.is_dir() {
                    dirs.push((format!("{path}/"), inode.ino));
                }
                found.push((path, dir, name, inode));
            }
        }
        found
    }

    /// Returns a directory: its path with a slash at the end, empty for the root.
    fn directory(&self, entries: &[(String, Ino, Name, Inode)]) -> (String, Ino) {
        let dirs = entries.iter().filter(|(_, _, _, inode)| inode.is_dir());
        let mut all: Vec<_> = dirs.map(|(path, _, _, inode)| (format!("{path}/"), inode.ino)).collect();
        all.push((String::new(), Ino::ROOT));
        self.one_of(&all)
    }

    fn name(&self) -> Name {
        Name::new(self.one_of(&["a", "b", "c", "d", "e", "f", "g"]).as_bytes()).unwrap()
    }

    fn mode(&self) -> u16 {
        let plain = self.one_of(&[
            0o777, 0o755, 0o750, 0o700, 0o775, 0o711, 0o644, 0o640, 0o664, 0o666, 0o600, 0o4755, 0,
        ]);
        plain | self.one_of(&[0, 0, 0, 0o1000, 0o2000, 0o3000, 0o4000])
    }

    fn acl(&self) -> Vec<u8> {
        let mut value = 2_u32.to_le_bytes().to_vec();
        let mut entry = |tag: u16, permissions: u16, id: u32| {
            value.extend(tag.to_le_bytes());
            value.extend(permissions.to_le_bytes());
            value.extend(id.to_le_bytes());
        };
        let permissions = || self.below(8) as u16;
        entry(1, permissions(), u32::MAX);
        entry(2, permissions(), FIRST_UID + self.below(USERS as usize) as u32);
        entry(4, permissions(), u32::MAX);
        entry(8, permissions(), self.one_of(&SHARED_GROUPS));
        entry(0x10, permissions(), u32::MAX);
        entry(0x20, permissions(), u32::MAX);
        value
    }

    /// Draws an operation of a caller.
    fn draw(&mut self, caller: &Caller) -> Operation {
        self.now += 1;
        let entries = self.entries();
        let (dir_path, dir) = self.directory(&entries);
        let name = self.name();
        let path = format!("{dir_path}{name}");
        if entries.is_empty() || self.below(10) < 2 && entries.len() < ENTRIES_MAX {
            return self.draw_create(caller, dir, name, path);
        }
        let (old_path, old_dir, old_name, inode) = self.one_of(&entries);
        let ino = inode.ino;
        // The model reaches an inode by any of its names, the kernel by the one that it is given.
        let has_one_name = inode.is_dir() || inode.nlink == 1;
        let follows = inode.kind != Kind::Symlink && has_one_name;
        let set = |changes| Op::SetAttr { ino, changes };
        let same = |call, op| Operation { call, op, paths: vec![old_path.clone()] };
        match self.below(12) {
            0 if has_one_name => {
                let call = json!(["link", old_path, path]);
                let op = Op::Link { ino, parent: dir, name };
                Operation { call, op, paths: vec![old_path, path] }
            }
            1 => {
                let call = json!(["unlink", old_path]);
                Operation {
                    call,
                    op: Op::Unlink { parent: old_dir, name: old_name, keep: false },
                    paths: vec![],
                }
            }
            2 => {
                let call = json!(["rmdir", old_path]);
                Operation { call, op: Op::Rmdir { parent: old_dir, name: old_name }, paths: vec![] }
            }
            3 | 4 => {
                let flags = self.below(3);
                let how = [RenameHow::Replace, RenameHow::NoReplace, RenameHow::Exchange][flags];
                let call = json!(["rename", old_path, path, flags]);
                let op = Op::Rename { from: (old_dir, old_name), to: (dir, name), how, keep: false };
                Operation { call, op, paths: vec![path] }
            }
            5 | 6 if follows => {
                let mode = self.mode();
                same(
                    json!(["chmod", old_path, mode]),
                    set(AttrChanges { mode: Some(mode), ..AttrChanges::default() }),
                )
            }
            7 if has_one_name => {
                let uid = self.one_of(&[
                    None,
                    None,
                    Some(inode.uid),
                    Some(FIRST_UID + self.below(USERS as usize) as u32),
                ]);
                let gid = self.one_of(&[
                    None,
                    Some(inode.gid),
                    Some(caller.gid),
                    Some(self.one_of(&SHARED_GROUPS)),
                ]);
                let number = |id: Option<u32>| id.map_or(-1, i64::from);
                let call = json!(["chown", old_path, number(uid), number(gid)]);
                same(call, set(AttrChanges { uid, gid, ..AttrChanges::default() }))
            }
            8 if follows => {
                let size_bytes = self.below(100) as u64;
                let changes = AttrChanges { size_bytes: Some(size_bytes), ..AttrChanges::default() };
                same(json!(["truncate", old_path, size_bytes]), set(changes))
            }
            9 if has_one_name => {
                let is_now = self.below(2) == 0;
                let time = Timestamp(if is_now { self.now } else { 1_000_000_000 });
                let call = if is_now { json!(["touch", old_path]) } else { json!(["utime", old_path, 1]) };
                let changes = AttrChanges { atime: Some(time), mtime: Some(time), ..AttrChanges::default() };
                same(call, set(changes))
            }
            // An access list that a stranger to the group sets also removes the set-group-id bit, which needs an op of its own.
            10 if follows && (inode.mode & 0o2000 == 0 || caller.is_in(inode.gid)) => {
                let (name, value) = match self.below(3) {
                    0 => (acl::ACCESS, self.acl()),
                    1 if inode.is_dir() => (acl::DEFAULT, self.acl()),
                    _ => (&b"user.x"[..], b"y".to_vec()),
                };
                let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                let call = json!(["setxattr", old_path, std::str::from_utf8(name).unwrap(), hex]);
                let how = XattrHow::Set;
                same(call, Op::SetXattr { ino, name: name.into(), value: value.into(), how })
            }
            _ if follows => {
                // Linux removes the default list of what is not a directory without a look at the file.
                let names = ["user.x", "system.posix_acl_access", "system.posix_acl_default"];
                let name = self.one_of(if inode.is_dir() { &names } else { &names[..2] });
                let op = Op::RemoveXattr { ino, name: name.as_bytes().into() };
                same(json!(["removexattr", old_path, name]), op)
            }
            _ => self.draw_create(caller, dir, name, path),
        }
    }

    fn draw_create(&self, caller: &Caller, parent: Ino, name: Name, path: String) -> Operation {
        let kinds = [
            ("file", Kind::File),
            ("file", Kind::File),
            ("directory", Kind::Directory),
            ("directory", Kind::Directory),
            ("fifo", Kind::Fifo),
            ("symlink", Kind::Symlink),
            ("device", Kind::CharDevice),
        ];
        let (word, kind) = self.one_of(&kinds);
        let mode = if kind == Kind::Symlink { 0o777 } else { self.mode() };
        // mkdir(2) keeps the permission bits and the sticky bit only.
        let mode = if kind == Kind::Directory { mode & 0o1777 } else { mode };
        let op = Op::Create {
            parent,
            name,
            ino: self.namespace.allocate(parent, 1)[0],
            kind,
            mode,
            umask: 0,
            uid: caller.uid,
            gid: caller.gid,
            rdev: if kind == Kind::CharDevice { 0x103 } else { 0 },
            target: (kind == Kind::Symlink).then(|| "target".into()),
        };
        Operation { call: json!(["create", path, word, mode]), op, paths: vec![path] }
    }

    /// Carries out an op as the caller. Returns its errno, 0 for success.
    fn run(&self, caller: &Caller, op: &Op) -> i32 {
        let now = Timestamp(self.now);
        let context = OpContext { uid: caller.uid, gid: caller.gid, ..context(self.now) };
        let outcome = authorize(&**self.namespace.engine(), caller, now, op);
        let outcome = outcome.and_then(|op| Ok(self.namespace.commit(&context, &op)?));
        match outcome {
            Ok(_) => 0,
            Err(AccessError::Denied) => libc::EACCES,
            Err(AccessError::NotPermitted) => libc::EPERM,
            Err(AccessError::Fs(error)) => errno(error),
        }
    }

    fn inode_at(&self, path: &str) -> Option<Inode> {
        let mut ino = Ino::ROOT;
        for name in path.split('/') {
            ino = self.namespace.entry(ino, &Name::new(name.as_bytes()).unwrap()).unwrap()?.ino;
        }
        namespace::read_inode(&**self.namespace.engine(), ino).unwrap()
    }
}

fn context(now: i64) -> OpContext {
    OpContext {
        now: Timestamp(now),
        at: Moment { mount: 1, nanos: now as u64 },
        uid: 0,
        gid: 0,
        origin: Origin::Other,
    }
}

fn errno(error: FsError) -> i32 {
    vfs::Error::from(error).errno()
}

/// Asserts that mode and owners of a path are the same on the mount and in the model.
fn assert_same_attributes(mnt: &Path, model: &Model, path: &str, context: &str) {
    let Some(inode) = model.inode_at(path) else { return };
    let found = std::fs::symlink_metadata(mnt.join(path)).unwrap();
    let found = ((found.mode() & 0o7777) as u16, found.uid(), found.gid());
    assert_eq!(found, (inode.mode, inode.uid, inode.gid), "mode and owners of {path}: {context}");
}

#[test]
fn the_access_checks_of_batches_are_those_of_the_kernel() {
    let seed = setting("TENON_ACCESS_SEED").unwrap_or_else(|| u64::from(std::process::id()) ^ time_seed());
    let operations = setting("TENON_ACCESS_OPS").map_or(OPERATIONS, |count| count as usize);
    let home = Home::new();
    home.ok(["format", "volume", "--naming", "inode"]);
    home.ok(["mount", "volume", "mnt", "--allow-other"]);
    let mut model = Model::new(seed);
    let root = Caller { uid: 0, gid: 0, groups: Box::new([]) };
    let users = (0..USERS).map(|user| {
        let groups = SHARED_GROUPS.iter().filter(|_| model.below(2) == 0).copied().collect();
        Caller { uid: FIRST_UID + user, gid: FIRST_UID + user, groups }
    });
    let callers: Vec<Caller> = users.chain([root]).collect();
    let mut workers: Vec<Worker> = callers.into_iter().map(|caller| Worker::start(&home, caller)).collect();
    let chmod_root =
        Op::SetAttr { ino: Ino::ROOT, changes: AttrChanges { mode: Some(0o1777), ..AttrChanges::default() } };
    assert_eq!(workers[USERS as usize].run(&json!(["chmod", ".", 0o1777])), 0);
    assert_eq!(model.run(&workers[USERS as usize].caller.clone(), &chmod_root), 0);
    let mut verdicts: BTreeMap<i32, usize> = BTreeMap::new();
    for number in 0..operations {
        let at = model.below(workers.len());
        let caller = workers[at].caller.clone();
        let Operation { call, op, paths } = model.draw(&caller);
        let context = format!("TENON_ACCESS_SEED={seed}, operation {number} by {caller:?}: {call}");
        let (found, expected) = (workers[at].run(&call), model.run(&caller, &op));
        assert_eq!(found, expected, "errno of {context}");
        *verdicts.entry(found).or_default() += 1;
        paths.iter().for_each(|path| assert_same_attributes(&home.mnt(), &model, path, &context));
    }
    drop(workers);
    home.ok(["umount", "mnt"]);
    eprintln!("verdicts by errno: {verdicts:?}");
    for errno in [0, libc::EACCES, libc::EPERM, libc::EEXIST] {
        assert!(verdicts.get(&errno).is_some_and(|count| *count > operations / 100), "{errno}: {verdicts:?}");
    }
}

/// Returns a number that differs from run to run.
fn time_seed() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64)
}

/// Returns a number from the environment, to repeat or to prolong a run.
#[expect(clippy::disallowed_methods, reason = "settings of this test only")]
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
