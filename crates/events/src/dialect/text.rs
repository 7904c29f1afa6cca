//! Values in messages, which are borrowed where they stand there as they are.

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use store::Timestamp;

/// A text; a number is taken for its digits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl Text<'_> {
    /// A moment as ISO 8601 has it.
    pub(super) fn timestamp(&self) -> Option<Timestamp> {
        crate::aws::time(self)
    }
}

impl<'a> Text<'a> {
    /// The text, unless it is empty.
    pub(super) fn filled(self) -> Option<Cow<'a, str>> {
        Some(self.0).filter(|text| !text.is_empty())
    }

    /// Its bytes.
    pub(super) fn bytes(self) -> Cow<'a, [u8]> {
        match self.0 {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }
}

impl Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(number.to_string())))
    }

    fn visit_unit<E: Error>(self) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }
}

/// A whole number, in digits or in a text of digits; anything else is not said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Whole(pub(super) Option<u64>);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeVisitor)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
        Ok(Whole(Some(number)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Whole, E> {
        Ok(Whole(u64::try_from(number).ok()))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Whole, E> {
        Ok(Whole(None))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Whole, E> {
        Ok(Whole(text.parse().ok()))
    }

    fn visit_unit<E: Error>(self) -> Result<Whole, E> {
        Ok(Whole(None))
    }
}

/// Names and values: an object, or a list of objects with `key` and `val` or `value`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pairs<'a>(pub(super) Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PairsVisitor)
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("names and values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
        let mut pairs = Vec::new();
        while let Some((name, value)) = map.next_entry::<Text<'de>, Text<'de>>()? {
            pairs.push((name.0, value.0));
        }
        Ok(Pairs(pairs))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Pairs<'de>, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = list.next_element::<Pair<'de>>()? {
            pairs.push((pair.key.0, pair.value.0));
        }
        Ok(Pairs(pairs))
    }

    fn visit_unit<E: Error>(self) -> Result<Pairs<'de>, E> {
        Ok(Pairs::default())
    }
}

#[derive(serde::Deserialize)]
struct Pair<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow, alias = "val", default)]
    value: Text<'a>,
}

/// The elements of a list; most have one, which then needs no room of its own.
#[derive(Debug)]
pub(super) struct Few<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;
    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FewVisitor(std::marker::PhantomData))
    }
}

struct FewVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for FewVisitor<T> {
    type Value = Few<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Few<T>, A::Error> {
        let first = list.next_element()?;
        let mut rest = Vec::new();
        while let Some(next) = list.next_element()? {
            rest.push(next);
        }
        Ok(Few { first, rest })
    }
}

/// Folds a list into a value without keeping its elements; what is no list is passed over.
pub(super) struct FoldVisitor<T, V>(pub(super) T, pub(super) fn(&mut T, V));

impl<'de, T, V: Deserialize<'de>> Visitor<'de> for FoldVisitor<T, V> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<T, A::Error> {
        while let Some(next) = list.next_element()? {
            self.1(&mut self.0, next);
        }
        Ok(self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self.0)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<T, E> {
        Ok(self.0)
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        Ok(self.0)
    }
}
