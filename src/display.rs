//! What a notebook shows of an outcome: a title, tables, charts and the JSON, as HTML and as plain
//! text; an error as a short box. Nothing here computes a result.
//!
//! The HTML holds no script and loads nothing from elsewhere; it takes its text colour and its
//! background from the page, so that light and dark themes both work. Every text is escaped.

mod chart;
mod compare_views;
#[cfg(feature = "csv")]
mod csv_views;
#[cfg(feature = "explore")]
mod exploration_charts;
#[cfg(feature = "explore")]
mod exploration_views;
mod figures;
mod grid;
#[cfg(feature = "explore")]
mod page;
#[cfg(feature = "explore")]
mod plan_views;
mod rows;
mod simulation_views;
mod view;
mod views;

use std::fmt::Display;
use std::io::Write;

use crate::error::{LabError, harmless};

use view::View;

/// A result that a notebook can show.
pub trait Present: Display {
    /// What a person sees of it.
    #[doc(hidden)]
    fn view(&self) -> View;
}

/// Shows an outcome as the last expression of a notebook cell: the result when there is one, else
/// the reason, so that a missing GPU is something to read and not an error of the cell.
///
/// # Examples
/// ```
/// use iteragpu_lab::{estimate_weights, show};
///
/// let shown = show(&estimate_weights(7_000_000_000, 16, "4"));
/// assert!(shown.html().contains("13,03851604461669921875"));
/// assert!(shown.text().contains("\"theoretical_weight_bytes\": 14000000000"));
/// ```
pub fn show<T: Present>(outcome: &Result<T, LabError>) -> Shown {
    match outcome {
        Ok(result) => {
            let view = result.view();
            Shown { html: view.html(), text: view.text() }
        }
        Err(error) => {
            let explanation = error.explain();
            Shown { html: view::error_box(&explanation), text: view::error_text(&explanation) }
        }
    }
}

/// An outcome, ready to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    html: String,
    text: String,
}

impl Shown {
    /// An HTML fragment.
    pub fn html(&self) -> &str {
        &self.html
    }

    /// The same as plain text, for front ends without HTML.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Called by the evcxr kernel for the last expression of a cell: its way of showing rich content.
    pub fn evcxr_display(&self) {
        let mut out = std::io::stdout().lock();
        for (mime_type, content) in [("text/plain", &self.text), ("text/html", &self.html)] {
            // A kernel that is gone has nobody to tell.
            let _ = write!(out, "EVCXR_BEGIN_CONTENT {mime_type}\n{content}\nEVCXR_END_CONTENT\n");
        }
        let _ = out.flush();
    }
}

/// The text of an outcome: the result as JSON when there is one, else the reason in French.
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
