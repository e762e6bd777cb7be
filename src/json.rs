//! The one way in which results become JSON text: two-space indent, UTF-8 unescaped, keys in the
//! order of the types.

use serde::Serialize;

use crate::error::steers;

/// `value` as indented JSON, without a final newline.
pub(crate) fn pretty<T: Serialize>(value: &T) -> String {
    // The crate's types hold no map with foreign keys and no failing `Serialize`; if that ever
    // changes, a reader must see the reason and not an empty result.
    let text = serde_json::to_string_pretty(value).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"));
    text.chars().fold(String::with_capacity(text.len()), escaped).replace("EVCXR_", "\\u0045VCXR_")
}

/// Only strings from outside hold such characters, or the words that the kernel of a notebook obeys
/// when they are printed; an escape means the same string, and does nothing.
fn escaped(mut text: String, character: char) -> String {
    if character == '\n' {
        text.push(character)
    } else {
        push_inert(&mut text, character)
    }
    text
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
        let text = pretty(&hostile);
        assert!(!text.contains("EVCXR_") && text.chars().all(|c| c == '\n' || !steers(c)), "{text}");
        assert_eq!(serde_json::from_str::<[String; 3]>(&text)?, hostile);
        Ok(())
    }
}
