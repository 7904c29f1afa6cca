//! Targets of the crate `fuzz`: whatever the bytes are, nothing panics, and a value that was read is written as text or bytes
//! that read as the same value.

pub use crate::handler::fuzz_state as handler_state;
pub use crate::remote::fuzz_messages as remote_messages;
pub use crate::tree::fuzz_moves as directory_moves;

/// A file of rulesets.
pub fn rulesets(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(read) = crate::read(text) else { return };
    let written = crate::write(&read);
    match crate::read(&written) {
        Ok(again) => assert_eq!(crate::write(&again), written),
        Err(problems) => panic!("{problems:?} in what was written:\n{written}"),
    }
}
