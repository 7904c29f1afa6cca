//! Targets of the crate `fuzz`. They check that no input causes a panic, and that a value that was read is written as
//! text or bytes that read as the same value.

pub use crate::handler::fuzz_state as handler_state;
pub use crate::remote::fuzz_messages as remote_messages;
pub use crate::tree::fuzz_moves as directory_moves;

/// Reads the bytes as a file of rulesets, and writes the rulesets again.
pub fn rulesets(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(read) = crate::read(text) else { return };
    let written = crate::write(&read);
    match crate::read(&written) {
        Ok(again) => assert_eq!(crate::write(&again), written),
        Err(problems) => panic!("rulesets that were written cannot be read: {problems:?}\n{written}"),
    }
}
