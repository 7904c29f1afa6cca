//! Variables in the resources and conditions of policies (IAM User Guide, "IAM policy elements: Variables and tags").
//!
//! `${aws:username}` and `${aws:userid}` are the user's access key. A policy with any other variable is refused: taken
//! as plain text, it would make a Deny deny nothing.

use s3s::S3Result;
use std::borrow::Cow;

use crate::error::not_implemented;
use crate::policy::malformed;

const BEGIN: &str = "${";
const USER: [&str; 2] = ["aws:username", "aws:userid"];

/// Refuses a text with an unsupported variable, and any variable in a policy whose version has none.
pub(crate) fn check(text: &str, has_variables: bool) -> S3Result<()> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(BEGIN) {
        if !has_variables {
            return Err(malformed("A policy with variables must have the version 2012-10-17"));
        }
        let (name, after) = after.split_once('}').ok_or_else(|| malformed("A policy variable has no end"))?;
        if !is_user(name) {
            return Err(not_implemented(&format!("The policy variable ${{{name}}}")));
        }
        rest = after;
    }
    Ok(())
}

/// Replaces the variables in a text. `None` if a variable has no value in this request; such a text matches nothing.
pub(crate) fn expand<'t>(text: &'t str, user: Option<&str>) -> Option<Cow<'t, str>> {
    if !text.contains(BEGIN) {
        return Some(Cow::Borrowed(text));
    }
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once('}')?;
        expanded.push_str(before);
        expanded.push_str(user.filter(|_| is_user(name))?);
        rest = after;
    }
    expanded.push_str(rest);
    Some(Cow::Owned(expanded))
}

fn is_user(name: &str) -> bool {
    USER.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_variables_are_replaced() {
        let text = "b/${aws:username}/x/${aws:UserId}";
        assert_eq!(expand(text, Some("alice")).as_deref(), Some("b/alice/x/alice"));
        assert_eq!(expand(text, None), None);
        assert_eq!(expand("b/*", None).as_deref(), Some("b/*"));
        check(text, true).unwrap();
        for (text, has_variables) in
            [("${aws:sourceip}", true), ("${*}", true), ("${aws:username", true), (text, false)]
        {
            check(text, has_variables).unwrap_err();
        }
    }
}
