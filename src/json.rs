//! The one way in which results become JSON text: two-space indent, UTF-8 unescaped, keys in the
//! order of the types.

use serde::Serialize;

/// `value` as indented JSON, without a final newline.
pub(crate) fn pretty<T: Serialize>(value: &T) -> String {
    // The crate's types hold no map with foreign keys and no failing `Serialize`; if that ever
    // changes, a reader must see the reason and not an empty result.
    serde_json::to_string_pretty(value).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
}
