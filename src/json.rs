//! The one way in which results become JSON text: two-space indent, UTF-8 unescaped, keys in the
//! order of the types.

use std::fmt;
use std::io;

use serde::Serialize;

use crate::error::steers;

/// `Display` writes a value as indented JSON, without a final newline. It does so piece by piece: a million
/// rows are not held in memory a second time.
pub(crate) struct Pretty<'a, T>(pub &'a T);

impl<T: Serialize> fmt::Display for Pretty<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut inert = Inert { to: f, is_full: false };
        match serde_json::to_writer_pretty(&mut inert, self.0) {
            Ok(()) => Ok(()),
            Err(_) if inert.is_full => Err(fmt::Error),
            // The crate's types hold no map with foreign keys and no failing `Serialize`; if that ever
            // changes, a reader must see the reason and not an empty result.
            Err(error) => write!(f, "{{\"error\": \"{error}\"}}"),
        }
    }
}

/// Passes JSON text on. Only strings from outside hold characters that steer, or the words that the kernel
/// of a notebook obeys when they are printed; an escape means the same string, and does nothing.
struct Inert<'a, 'f> {
    to: &'a mut fmt::Formatter<'f>,
    is_full: bool,
}

impl io::Write for Inert<'_, '_> {
    /// All of `bytes`: serde_json writes what stands between two escapes of a string at once.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        let is_inert = !text.contains(|c| c != '\n' && steers(c)) && !text.contains(KERNEL);
        let written = if is_inert { self.to.write_str(text) } else { self.to.write_str(&escaped(text)) };
        self.is_full = written.is_err();
        written.map(|()| bytes.len()).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const KERNEL: &str = "EVCXR_";

fn escaped(text: &str) -> String {
    let mut inert = String::with_capacity(text.len());
    for character in text.chars() {
        if character == '\n' { inert.push(character) } else { push_inert(&mut inert, character) }
    }
    inert.replace(KERNEL, "\\u0045VCXR_")
}

/// Adds `character`, as an escape when it steers a terminal or the direction of text.
pub(crate) fn push_inert(text: &mut String, character: char) {
    if steers(character) { *text += &format!("\\u{:04x}", u32::from(character)) } else { text.push(character) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_cannot_speak_to_the_kernel_or_the_terminal() -> Result<(), serde_json::Error> {
        let hostile = ["EVCXR_BEGIN_CONTENT text/html", "\\EVCXR_END_CONTENT", "\u{1b}\u{9b}\u{7f}\u{202e}"];
        let text = Pretty(&hostile).to_string();
        assert!(!text.contains("EVCXR_") && text.chars().all(|c| c == '\n' || !steers(c)), "{text}");
        assert_eq!(serde_json::from_str::<[String; 3]>(&text)?, hostile);
        Ok(())
    }

    /// What takes no more ends the writing, with neither a panic nor a text in the place of the result.
    #[test]
    fn a_full_writer_ends_it() {
        struct Full(String);
        impl fmt::Write for Full {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                if self.0.len() + text.len() > 8 {
                    return Err(fmt::Error);
                }
                self.0 += text;
                Ok(())
            }
        }
        let mut full = Full(String::new());
        assert!(fmt::write(&mut full, format_args!("{}", Pretty(&["a", "b", "c"]))).is_err());
        assert_eq!(full.0, "[\n  \"a\"");
    }
}
