//! Walks all nodes below a directory, as `find` and `cat` do.

use super::fs_model::NodeKind;
use super::oracle::{ObservedNode, ObservedTree};
use bytes::Bytes;
use vfs::{Attr, DirectoryEntry, Filesystem, Handle, Ino, Result};

/// Entries per page: fewer than a directory may have, so that several pages are read.
const ENTRIES: usize = 3;
/// Bytes per read.
const READ_BYTES: usize = 128 << 10;

/// Observes the tree below a directory of the root; empty if the directory does not exist.
pub(super) async fn walk_tree(fs: &Filesystem, root: &str) -> Result<ObservedTree> {
    let mut tree = ObservedTree::new();
    let root_attr = match fs.lookup(Ino::ROOT, root.as_bytes()).await {
        Err(error) if error.errno() == libc::ENOENT => return Ok(tree),
        root_attr => root_attr?,
    };
    let mut waiting = vec![(String::new(), root_attr.ino)];
    while let Some((dir, ino)) = waiting.pop() {
        for name in list_names(fs, ino).await? {
            let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
            let attr = fs.lookup(ino, name.as_bytes()).await?;
            if attr.kind == vfs::Kind::Directory {
                waiting.push((path.clone(), attr.ino));
            }
            tree.insert(path, observe(fs, &attr).await?);
        }
    }
    Ok(tree)
}

pub(crate) async fn list_names(fs: &Filesystem, dir: Ino) -> Result<Vec<String>> {
    let handle = fs.opendir(dir).await?;
    let listed = list(fs, handle).await;
    fs.releasedir(handle);
    let list_names = listed?.into_iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned());
    Ok(list_names.filter(|name| name != "." && name != "..").collect())
}

async fn list(fs: &Filesystem, handle: Handle) -> Result<Vec<DirectoryEntry>> {
    let mut listed = Vec::<DirectoryEntry>::new();
    loop {
        let cookie = listed.last().map_or(0, |entry| entry.cookie);
        let page = fs.readdir(handle, cookie, ENTRIES, true).await?;
        if page.is_empty() {
            return Ok(listed);
        }
        listed.extend(page);
    }
}

async fn observe(fs: &Filesystem, attr: &Attr) -> Result<ObservedNode> {
    let (kind, content) = match attr.kind {
        vfs::Kind::Directory => (NodeKind::Directory, Bytes::new()),
        vfs::Kind::Symlink => (NodeKind::Link(fs.readlink(attr.ino).await?), Bytes::new()),
        _ => {
            let handle = fs.open(attr.ino, libc::O_RDONLY).await?.handle;
            let content = read_all(fs, handle).await;
            fs.release(handle).await?;
            (NodeKind::File, content?)
        }
    };
    Ok(ObservedNode { ino: attr.ino, kind, mode: attr.mode, nlink: attr.nlink, content })
}

/// Reads a file sequentially to its end.
pub(crate) async fn read_all(fs: &Filesystem, handle: Handle) -> Result<Bytes> {
    let mut content = Vec::new();
    loop {
        let piece = fs.read(handle, content.len() as u64, READ_BYTES).await?;
        if piece.is_empty() {
            return Ok(content.into());
        }
        content.extend_from_slice(&piece);
    }
}
