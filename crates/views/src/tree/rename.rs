//! Renames directories, and moves files between directories, within a view.

use super::Tree;
use super::moves::Move;
use super::naming::{self, DIRECTORY_PROPERTY, EntryName};
use super::path_index::{Entry, PathIndex};
use super::tree_error::TreeError;
use crate::PackedObject;

impl Tree {
    /// Moves a directory, or a file to another directory, within a view. Users of this tree see it as one step. The
    /// objects' own metadata is rewritten soon after, by the next process if this one ends before and there is a
    /// journal.
    ///
    /// # Errors
    /// [`TreeError::Elsewhere`] if only a copy can do it: from view to view, to another name of a file, or in place
    /// of a file. [`TreeError::NotFound`], [`TreeError::NotDirectory`], [`TreeError::IsDirectory`] and
    /// [`TreeError::NotEmpty`] for the paths; [`TreeError::Invalid`] for a directory into itself;
    /// [`TreeError::Fixed`] for a view; [`TreeError::State`] if the journal cannot be written.
    pub async fn rename(&self, from: &[&[u8]], to: &[&[u8]]) -> Result<(), TreeError> {
        let ([view, from @ ..], [to_view, to @ ..]) = (from, to) else { return Err(TreeError::Fixed) };
        if from.is_empty() || to.is_empty() {
            return Err(TreeError::Fixed);
        }
        if view != to_view {
            return Err(TreeError::Elsewhere);
        }
        let branch = self.branches.get(*view).ok_or(TreeError::NotFound)?;
        branch.refresh().await?;
        if from == to {
            return branch.find(from).map(|_| ()).ok_or(TreeError::NotFound);
        }
        let _turn = self.renaming.lock(&()).await;
        let moves = branch.with_index(|index| match index.find(from) {
            None => Err(TreeError::NotFound),
            Some(Entry::File(shown)) => file_moves(index, &shown, from, to),
            Some(Entry::Directory) => directory_moves(index, from, to),
        })?;
        let moves = self.move_worker.begin(moves).await.map_err(TreeError::State)?;
        for other in self.branches.values() {
            let made = std::ptr::eq(other, branch).then_some([from, to]);
            other.begin_moves(&moves, made);
        }
        Ok(())
    }
}

/// Returns the move of a file, after checking that it can be moved.
fn file_moves(
    index: &PathIndex,
    object: &PackedObject,
    from: &[&[u8]],
    to: &[&[u8]],
) -> Result<Vec<Move>, TreeError> {
    let (Some(name), Some((to_name, above))) = (from.last(), to.split_last()) else {
        return Err(TreeError::Fixed);
    };
    match (index.find(above), index.find(to)) {
        (None, _) => return Err(TreeError::NotFound),
        (Some(Entry::File(_)), _) => return Err(TreeError::NotDirectory),
        (_, Some(Entry::Directory)) => return Err(TreeError::IsDirectory),
        (_, Some(Entry::File(_))) => return Err(TreeError::Elsewhere),
        (Some(Entry::Directory), None) => {}
    }
    let is_plain = naming::plain_name(object.key()).is_some_and(|plain| *plain == **to_name);
    if name != to_name && !is_plain {
        return Err(TreeError::Elsewhere);
    }
    Ok(vec![move_to(object, above)])
}

/// Returns the moves of all objects in and below a directory, after checking that it can be moved.
fn directory_moves(index: &PathIndex, from: &[&[u8]], to: &[&[u8]]) -> Result<Vec<Move>, TreeError> {
    if to.starts_with(from) {
        return Err(TreeError::Invalid("a directory cannot be moved into itself".to_owned()));
    }
    match index.find(to) {
        None => index.expect_vacant(to)?,
        Some(Entry::File(_)) => return Err(TreeError::NotDirectory),
        Some(Entry::Directory) => index.expect_empty(to)?,
    }
    let moves = index.objects_below(from).into_iter().map(|(rest, shown)| {
        let path: Vec<EntryName> = to.iter().map(|name| (*name).into()).chain(rest).collect();
        move_to(&shown, &path)
    });
    Ok(moves.collect())
}

/// Returns the move of an object from the directory that it names now to the directory `to`.
fn move_to(object: &PackedObject, to: &[impl AsRef<[u8]>]) -> Move {
    let current = object.property(DIRECTORY_PROPERTY).map(str::to_owned);
    Move { object: object.name(), from: vec![current], to: naming::encode_directory(to) }
}
