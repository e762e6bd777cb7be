//! What a notebook shows of an outcome.

use std::fmt::Display;

use crate::error::{LabError, harmless};

/// The text of an outcome: the result when there is one, else the reason in French. A notebook
/// prints it, so that a missing GPU is something to read and not an error of the cell.
///
/// # Examples
/// ```
/// use iteragpu_lab::{estimate_weights, outcome_text};
///
/// assert!(outcome_text(&estimate_weights(1, 4, "0")).contains("arithmetic_only"));
/// assert!(outcome_text(&estimate_weights(1, 5, "0")).contains("4, 8, 16 ou 32"));
/// ```
pub fn outcome_text<T: Display>(outcome: &Result<T, LabError>) -> String {
    match outcome {
        Ok(result) => result.to_string(),
        Err(error) => harmless(&error.to_string()),
    }
}
