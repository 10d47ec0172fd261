//! Lists in messages that say how long they may be, so that a long one is refused before there is room for it.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// Reads a list of at most `MAX` elements.
pub(crate) fn list<'de, const MAX: usize, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_seq(List::<MAX, T>(PhantomData))
}

struct List<const MAX: usize, T>(PhantomData<T>);

impl<'de, const MAX: usize, T: Deserialize<'de>> Visitor<'de> for List<MAX, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        // Without a hint it grows as its elements come in.
        let count = list.size_hint().unwrap_or_default();
        if count > MAX {
            return Err(A::Error::invalid_length(count, &self));
        }
        let mut elements = Vec::with_capacity(count);
        while let Some(element) = list.next_element()? {
            if elements.len() == MAX {
                return Err(A::Error::invalid_length(MAX + 1, &self));
            }
            elements.push(element);
        }
        Ok(elements)
    }
}
