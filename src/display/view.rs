//! One thing to show, in both its forms.

use super::grid::Grid;
use crate::error::{Explanation, harmless, shortened};

/// Longer JSON is not repeated below the tables: a browser would choke on it.
const MAX_JSON_CHARACTERS: usize = 200_000;

/// A title, then parts in order, then the JSON where there is one.
pub struct View {
    pub(super) title: String,
    pub(super) parts: Vec<Part>,
    json: Option<String>,
}

pub enum Part {
    /// Of level 2 or 3; the title is level 1.
    #[cfg(feature = "explore")]
    Heading(u8, String),
    Grid(Grid),
    /// An SVG picture; the plain text has the table that it draws.
    Picture(String),
    Note(String),
}

impl View {
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), parts: Vec::new(), json: None }
    }

    pub fn grid(mut self, grid: Grid) -> Self {
        self.parts.push(Part::Grid(grid));
        self
    }

    /// A heading of level 2 or 3.
    #[cfg(feature = "explore")]
    pub fn heading(mut self, level: u8, text: impl Into<String>) -> Self {
        self.parts.push(Part::Heading(level, text.into()));
        self
    }

    pub fn picture(mut self, svg: String) -> Self {
        self.parts.push(Part::Picture(svg));
        self
    }

    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.parts.push(Part::Note(note.into()));
        self
    }

    pub fn json(mut self, json: impl ToString) -> Self {
        self.json = Some(json.to_string());
        self
    }

    pub fn html(&self) -> String {
        let mut html = format!("<div><strong>{}</strong>\n", escaped(&one_line(&self.title)));
        for part in &self.parts {
            html += &match part {
                #[cfg(feature = "explore")]
                Part::Heading(_, text) => {
                    format!("<p style=\"margin:1.2em 0 0.4em\"><strong>{}</strong></p>", escaped(&one_line(text)))
                }
                Part::Grid(grid) => grid.html(),
                Part::Picture(svg) => svg.clone(),
                Part::Note(note) => {
                    format!("<p style=\"margin:0.4em 0;max-width:60em\">{}</p>", escaped(&one_line(note)))
                }
            };
            html.push('\n');
        }
        if let Some(json) = &self.json {
            html += &format!(
                "<details open><summary>JSON</summary><pre style=\"font-family:monospace;white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;max-height:26em;overflow:auto\">{}</pre></details>\n",
                escaped(&shown_json(json))
            );
        }
        html + "</div>"
    }

    pub fn text(&self) -> String {
        let mut text = one_line(&self.title) + "\n\n";
        for part in &self.parts {
            text += &match part {
                #[cfg(feature = "explore")]
                Part::Heading(level, text) => heading_text(*level, &one_line(text)),
                Part::Grid(grid) => grid.text() + "\n",
                Part::Picture(_) => String::new(),
                Part::Note(note) => one_line(note) + "\n\n",
            };
        }
        text + &self.json.as_deref().map(shown_json).unwrap_or_default()
    }
}

/// Underlined; the higher level stands apart from what precedes it.
#[cfg(feature = "explore")]
fn heading_text(level: u8, text: &str) -> String {
    let underline = |sign: &str| sign.repeat(text.chars().count());
    match level {
        2 => format!("\n{text}\n{}\n\n", underline("=")),
        _ => format!("{text}\n{}\n\n", underline("-")),
    }
}

fn shown_json(json: &str) -> String {
    match json.chars().nth(MAX_JSON_CHARACTERS) {
        None => json.to_owned(),
        Some(_) => format!(
            "({} octets de JSON : trop pour être montrés ici, complets dans le fichier enregistré.)",
            json.len()
        ),
    }
}

/// What was not done, what happened, what to do, on one line.
pub fn error_text(explanation: &Explanation) -> String {
    let advice = explanation.advice().map(|advice| format!(" {advice}")).unwrap_or_default();
    harmless(&format!("{} {}{advice}", explanation.not_done, explanation.sentence()))
}

/// The same as a box.
pub fn error_box(explanation: &Explanation) -> String {
    let advice = explanation.advice().map(|advice| format!("<br>{}", escaped(&harmless(&advice)))).unwrap_or_default();
    format!(
        "<div style=\"border:1px solid;border-left:0.4em solid #c2410c;padding:0.5em 0.9em;max-width:60em\">\
         <strong>{}</strong><br>{}{advice}</div>",
        escaped(explanation.not_done),
        escaped(&harmless(&explanation.sentence())),
    )
}

/// Text on one line; what steers a terminal, a page or the kernel is gone.
pub fn one_line(text: &str) -> String {
    shortened(text, 2_000)
}

/// Text as HTML shows it, in an element or a quoted attribute.
pub fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html += "&amp;",
            '<' => html += "&lt;",
            '>' => html += "&gt;",
            '"' => html += "&quot;",
            '\'' => html += "&#39;",
            _ => html.push(character),
        }
    }
    html
}
