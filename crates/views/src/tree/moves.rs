//! Moves of objects between the directories of a view.

use super::naming::DIRECTORY_PROPERTY;
use crate::{ObjectName, PackedObject};
use std::collections::{BTreeMap, HashMap};

/// A move of an object to another directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) object: ObjectName,
    /// The directories that the object's property may name for the move to be made; another one is newer than the
    /// move. `None` is the top directory.
    pub(super) from: Vec<Option<String>>,
    /// The new directory; `None` is the top directory.
    pub(super) to: Option<String>,
}

/// Moves that have not ended, the newest of each object.
pub(super) type Moves = BTreeMap<ObjectName, Move>;

/// How a move ended.
pub(super) enum MoveEnd {
    /// The object's property names a directory: the new one, or another one that another client set meanwhile.
    Placed(PackedObject),
    /// The object does not exist any more.
    Gone,
}

/// Adds a move. If the object has an earlier one, it may still be in any of that move's directories, so these are
/// added to `from`.
pub(super) fn merge(moves: &mut Moves, mut object_move: Move) {
    if let Some(before) = moves.remove(&object_move.object) {
        object_move.from.extend(before.from.into_iter().chain([before.to]));
        object_move.from.sort();
        object_move.from.dedup();
    }
    moves.insert(object_move.object.clone(), object_move);
}

/// Returns an object as the views show it: in the directory to which a move in `moving` takes it, unless its property
/// names a directory that the move does not expect.
pub(super) fn with_pending_move(moving: &HashMap<ObjectName, Move>, object: PackedObject) -> PackedObject {
    if moving.is_empty() {
        return object;
    }
    let Some(object_move) = moving.get(&object.name()) else { return object };
    let current = object.property(DIRECTORY_PROPERTY);
    if !object_move.from.iter().any(|from| from.as_deref() == current) {
        return object;
    }
    let mut shown = object.unpack();
    let mut properties = shown.properties.take().unwrap_or_default();
    match object_move.to.clone() {
        Some(to) => properties.insert(DIRECTORY_PROPERTY.to_owned(), to),
        None => properties.remove(DIRECTORY_PROPERTY),
    };
    shown.properties = Some(properties);
    PackedObject::from(shown)
}
