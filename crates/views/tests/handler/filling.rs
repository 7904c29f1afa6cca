//! Containers are listed once, and only those that somebody names.

use super::world::{Client, World, map, ruleset, tell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::{Buckets, ListPage, ListRequest, ObjectStore, Result};
use views::Views;

