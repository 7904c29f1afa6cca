//! Text with variables: `url=${endpoint},nomultipart`. `$$` stands for one `$`. A word that is only `${flags...}` becomes as many words as
//! the value has.

use std::collections::{BTreeMap, BTreeSet};

/// A parsed text with variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Segment>);

/// The end of the name of a variable that stands for any number of words.
const LIST: &str = "...";

/// Values of variables, by name.
pub type Variables = BTreeMap<String, String>;

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Variable(String),
}

/// Errors of a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A variable does not end, or a `$` does not begin one.
    #[error("'{0}': write a variable as ${{name}}, and one $ as $$")]
    Syntax(String),
    /// A variable has no value.
    #[error("there is no variable '{0}'")]
    Unknown(String),
}

impl Template {
    /// Parses a text.
    ///
    /// # Errors
    /// [`TemplateError::Syntax`].
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut segments = Vec::new();
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once('$') {
            segments.push(Segment::Literal(literal.to_owned()));
            rest = if let Some(after) = after.strip_prefix('$') {
                segments.push(Segment::Literal("$".to_owned()));
                after
            } else {
                let named = after.strip_prefix('{').and_then(|after| after.split_once('}'));
                let (name, after) = named.ok_or_else(|| TemplateError::Syntax(text.to_owned()))?;
                segments.push(Segment::Variable(name.to_owned()));
                after
            };
        }
        segments.push(Segment::Literal(rest.to_owned()));
        Ok(Self(segments))
    }

    /// Returns the names of its variables.
    pub fn variables(&self) -> BTreeSet<&str> {
        let names = self.0.iter().filter_map(|segment| match segment {
            Segment::Variable(name) => Some(name.trim_end_matches(LIST)),
            Segment::Literal(_) => None,
        });
        names.collect()
    }

    /// Returns the words that this text of a command stands for: one, or for `${name...}` those of the value.
    ///
    /// # Errors
    /// [`TemplateError::Unknown`] for a variable without a value.
    pub fn words(&self, values: &Variables) -> Result<Vec<String>, TemplateError> {
        let Some(name) = self.list_variable() else { return Ok(vec![self.fill(values)?]) };
        let value = values.get(name).ok_or_else(|| TemplateError::Unknown(name.to_owned()))?;
        Ok(value.split_whitespace().map(str::to_owned).collect())
    }

    /// Returns the variable, if the template is one list and nothing else.
    fn list_variable(&self) -> Option<&str> {
        let mut variables =
            self.0.iter().filter(|segment| !matches!(segment, Segment::Literal(text) if text.is_empty()));
        match (variables.next(), variables.next()) {
            (Some(Segment::Variable(name)), None) => name.strip_suffix(LIST),
            _ => None,
        }
    }

    /// Puts in the values of the variables.
    ///
    /// # Errors
    /// [`TemplateError::Unknown`] for a variable without a value.
    pub fn fill(&self, values: &Variables) -> Result<String, TemplateError> {
        let text = |segment: &Segment| match segment {
            Segment::Literal(text) => Ok(text.clone()),
            Segment::Variable(name) => {
                values.get(name).cloned().ok_or_else(|| TemplateError::Unknown(name.clone()))
            }
        };
        self.0.iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Variables {
        Variables::from([("endpoint".to_owned(), "http://e".to_owned())])
    }

    #[test]
    fn variables_are_replaced() {
        let template = Template::parse("url=${endpoint}/$$HOME,x").unwrap();
        assert_eq!(template.variables(), BTreeSet::from(["endpoint"]));
        assert_eq!(template.fill(&values()).unwrap(), "url=http://e/$HOME,x");
    }

    #[test]
    fn a_list_becomes_any_number_of_words() {
        let template = Template::parse("${flags...}").unwrap();
        assert_eq!(template.variables(), BTreeSet::from(["flags"]));
        let words = |value: &str| template.words(&Variables::from([("flags".to_owned(), value.to_owned())]));
        assert_eq!(words("").unwrap(), Vec::<String>::new());
        assert_eq!(words("-o  big").unwrap(), ["-o", "big"]);
        assert_eq!(Template::parse("x=${endpoint}").unwrap().words(&values()).unwrap(), ["x=http://e"]);
    }

    #[test]
    fn unknown_and_unfinished_variables_are_errors() {
        let unknown = Template::parse("${nothing}").unwrap().fill(&values());
        assert_eq!(unknown, Err(TemplateError::Unknown("nothing".to_owned())));
        for text in ["${endpoint", "$endpoint", "a$"] {
            assert_eq!(Template::parse(text), Err(TemplateError::Syntax(text.to_owned())));
        }
    }
}
