//! Tests of backups and dumps.
