//! Generated blocks of documents, between two marker lines.

use anyhow::{Context, Result};

/// Replaces the content of a block. The marker lines and the rest of the document stay.
pub(super) fn with_block(text: &str, name: &str, content: &str) -> Result<String> {
    let (begin, end) =
        (format!("<!-- begin {name}: made by `cargo xtask tables` -->"), format!("<!-- end {name} -->"));
    let missing = || format!("the document has no block '{name}'");
    let (before, rest) = text.split_once(&begin).with_context(missing)?;
    let (_, after) = rest.split_once(&end).with_context(missing)?;
    Ok(format!("{before}{begin}\n\n{}\n\n{end}{after}", content.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_replaced_and_the_rest_stays() {
        let text = "# A\n\n<!-- begin x: made by `cargo xtask tables` -->\nold\n<!-- end x -->\n\nB\n";
        let updated = with_block(text, "x", "| new |\n").unwrap();
        assert_eq!(
            updated,
            "# A\n\n<!-- begin x: made by `cargo xtask tables` -->\n\n| new |\n\n<!-- end x -->\n\nB\n"
        );
        assert_eq!(with_block(&updated, "x", "| new |").unwrap(), updated);
        assert!(with_block(text, "y", "").is_err());
    }
}
