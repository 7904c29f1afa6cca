//! Sorted tables of bytes: written once in the order of their keys, read by key or in order.
//!
//! Refuses: to know what keys and values mean (a deletion's mark is a value like any other), to know where a table lies
//! (a sink takes its bytes, a source gives them), and to trust a byte that it reads.
