//! The query of a request, decoded once.
//!
//! Invariant: names are compared decoded, here and in `s3s`.

use http::Uri;

/// The decoded parameters of a query, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of(uri: &Uri) -> Self {
        Self::parse(uri.query().unwrap_or_default())
    }

    pub(crate) fn parse(text: &str) -> Self {
        Self(url::form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// Returns the value of a parameter, the first if there are several; `None` if there is none.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(parameter, _)| *parameter == name).map(|(_, value)| value)
    }

    /// Returns the value of a parameter, unless it is empty.
    pub(crate) fn non_empty(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_decoded() {
        let query = Query::of(&"/b/k?rename%4Fbject&a=&b=c%20d".parse().unwrap());
        assert!(query.has("renameObject") && !query.has("rename"));
        assert_eq!((query.get("a"), query.non_empty("a"), query.get("b")), (Some(""), None, Some("c d")));
    }
}
