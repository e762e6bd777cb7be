//! JSON as text: where each value stands in its document, so that parts can be cut out while every
//! other byte stays, whichever program wrote it and however it writes numbers, escapes or line ends.

use std::fmt;
use std::ops::Range;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The text of a whole document's one value.
pub fn value(document: &str) -> serde_json::Result<&str> {
    serde_json::from_str::<&RawValue>(document).map(RawValue::get)
}

/// The texts of an array's values; `None` when `value` is no array.
pub fn items(value: &str) -> Option<Vec<&str>> {
    let items: Vec<&RawValue> = serde_json::from_str(value).ok()?;
    Some(items.into_iter().map(RawValue::get).collect())
}

/// What a JSON string says; `None` when `value` is no string, or one that no text can be.
pub fn text(value: &str) -> Option<String> {
    serde_json::from_str(value).ok()
}

/// An object whose members are still text.
pub struct Object<'a> {
    whole: &'a str,
    pub members: Vec<Member<'a>>,
}

/// One member of an object.
pub struct Member<'a> {
    pub name: String,
    pub value: &'a str,
    quoted_name: &'a str,
}

impl<'a> Object<'a> {
    /// `None` when `value` is no object, or one with names that no text can be.
    pub fn parse(value: &'a str) -> Option<Self> {
        let Members(members) = serde_json::from_str(value).ok()?;
        let members = members
            .into_iter()
            .map(|(name, value)| Some(Member { name: text(name.get())?, value: value.get(), quoted_name: name.get() }));
        Some(Self { whole: value, members: members.collect::<Option<_>>()? })
    }

    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.members.iter().find(|member| member.name == name).map(|member| member.value)
    }

    /// A name that stands there twice: readers do not agree on which of the values counts.
    pub fn repeated_name(&self) -> Option<&str> {
        let names = self.members.iter().enumerate();
        let earlier = |index: usize, name: &str| self.members[..index].iter().any(|member| member.name == name);
        names
            .map(|(index, member)| (index, member.name.as_str()))
            .find(|(index, name)| earlier(*index, name))
            .map(|(_, name)| name)
    }
}

struct Members<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry().map_err(de::Error::custom)? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

/// Changes to a document, none of which overlap.
pub struct Edits<'a> {
    document: &'a str,
    changes: Vec<(Range<usize>, &'static str)>,
}

impl<'a> Edits<'a> {
    pub fn of(document: &'a str) -> Self {
        Self { document, changes: Vec::new() }
    }

    /// Puts `replacement` in the place of `part`, which is a slice of the document.
    pub fn replace(&mut self, part: &'a str, replacement: &'static str) {
        self.changes.push((self.start(part)..self.end(part), replacement));
    }

    /// Takes out the members for which `removed` says so, each with the comma and the white space that
    /// belong to it.
    pub fn remove_members(&mut self, object: &Object<'a>, removed: impl Fn(&Member<'a>) -> bool) {
        let members = &object.members;
        if !members.is_empty() && members.iter().all(&removed) {
            return self.replace(object.whole, "{}");
        }
        let mut one_stays = false;
        for (index, member) in members.iter().enumerate() {
            if !removed(member) {
                one_stays = true;
            } else if one_stays {
                self.changes.push((self.end(members[index - 1].value)..self.end(member.value), ""));
            } else {
                self.changes.push((self.start(member.quoted_name)..self.start(members[index + 1].quoted_name), ""));
            }
        }
    }

    pub fn apply(mut self) -> String {
        self.changes.sort_by_key(|(range, _)| range.start);
        let mut edited = String::with_capacity(self.document.len());
        let mut copied = 0;
        for (range, replacement) in self.changes {
            edited += &self.document[copied..range.start];
            edited += replacement;
            copied = range.end;
        }
        edited + &self.document[copied..]
    }

    fn start(&self, part: &str) -> usize {
        part.as_ptr().addr() - self.document.as_ptr().addr()
    }

    fn end(&self, part: &str) -> usize {
        self.start(part) + part.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(document: &str, names: &[&str]) -> Option<String> {
        let object = Object::parse(value(document).ok()?)?;
        let mut edits = Edits::of(document);
        edits.remove_members(&object, |member| names.contains(&member.name.as_str()));
        Some(edits.apply())
    }

    #[test]
    fn members_go_with_their_comma_and_nothing_else_changes() {
        let document = " {\r\n \"a\": 1.50e+99,\r\n \"b\" : {\"x\": [1, {}]},\r\n \"\\u0063\": \"\\/\"\r\n}\n";
        let cases: [(&[&str], &str); 8] = [
            (&[], document),
            (&["a"], " {\r\n \"b\" : {\"x\": [1, {}]},\r\n \"\\u0063\": \"\\/\"\r\n}\n"),
            (&["b"], " {\r\n \"a\": 1.50e+99,\r\n \"\\u0063\": \"\\/\"\r\n}\n"),
            (&["c"], " {\r\n \"a\": 1.50e+99,\r\n \"b\" : {\"x\": [1, {}]}\r\n}\n"),
            (&["a", "b"], " {\r\n \"\\u0063\": \"\\/\"\r\n}\n"),
            (&["a", "c"], " {\r\n \"b\" : {\"x\": [1, {}]}\r\n}\n"),
            (&["b", "c"], " {\r\n \"a\": 1.50e+99\r\n}\n"),
            (&["a", "b", "c"], " {}\n"),
        ];
        for (names, expected) in cases {
            assert_eq!(without(document, names).as_deref(), Some(expected), "{names:?}");
        }
        assert_eq!(without("{ }", &["a"]).as_deref(), Some("{ }"));
    }

    #[test]
    fn a_repeated_name_is_found() {
        let repeated = |text| Object::parse(text).and_then(|object| object.repeated_name().map(str::to_owned));
        assert_eq!(repeated(r#"{"a": 1, "b": 2, "\u0061": 3}"#).as_deref(), Some("a"));
        assert_eq!(repeated(r#"{"a": {"b": 1}, "b": 2}"#), None);
    }

    #[test]
    fn only_whole_documents_and_real_objects_are_read() {
        for bad in ["", "{", "{} {}", "{\"a\": 01}", "{\"a\": 1,}", "{a: 1}", "NaN"] {
            assert!(value(bad).is_err(), "{bad}");
        }
        for other in ["[]", "1", "\"{}\"", "null", r#"{"\ud800": 1}"#] {
            assert!(Object::parse(other).is_none(), "{other}");
        }
    }
}
