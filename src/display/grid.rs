//! A table for people, as HTML and as aligned plain text.

use super::view::{escaped, one_line};

/// Columns with their titles, and rows of as many cells.
pub struct Grid {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

/// A column's title, with the unit, and what its cells hold: words stand to the left, numbers to the right.
#[derive(Clone)]
pub struct Column {
    title: String,
    is_number: bool,
}

pub fn words(title: &str) -> Column {
    Column { title: title.to_owned(), is_number: false }
}

pub fn numbers(title: &str) -> Column {
    Column { title: title.to_owned(), is_number: true }
}

/// A text and what stands beside it in smaller letters.
pub struct Cell {
    text: String,
    beside: Option<String>,
}

impl Cell {
    /// `beside` is a second reading of the same value, such as GiB for bytes.
    pub fn with(text: impl Into<String>, beside: impl Into<String>) -> Self {
        Self { text: text.into(), beside: Some(beside.into()) }
    }

    fn plain(&self) -> String {
        let text = one_line(&self.text);
        self.beside.as_ref().map_or(text.clone(), |beside| format!("{text} ({})", one_line(beside)))
    }

    fn html(&self) -> String {
        let text = escaped(&one_line(&self.text));
        match &self.beside {
            Some(beside) => {
                format!("{text}<br><span style=\"opacity:0.75;font-size:85%\">{}</span>", escaped(&one_line(beside)))
            }
            None => text,
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), beside: None }
    }
}

impl Grid {
    pub fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub fn row<const N: usize>(mut self, cells: [Cell; N]) -> Self {
        self.push(cells);
        self
    }

    pub fn push<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.into());
    }

    /// The same where the columns depend on the result.
    #[cfg(feature = "explore")]
    pub fn push_cells(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    pub fn html(&self) -> String {
        let header: String = self.columns.iter().map(header_cell).collect();
        let mut html = format!(
            "<table style=\"border-collapse:collapse;color:inherit;font-size:inherit;margin:0.4em 0;font-variant-numeric:tabular-nums\">\
             <thead><tr>{header}</tr></thead>\n<tbody>\n"
        );
        for row in &self.rows {
            let cells = self.columns.iter().zip(row);
            let cells: String = cells.map(|(column, cell)| body_cell(column, cell)).collect();
            html += &format!("<tr>{cells}</tr>\n");
        }
        html + "</tbody></table>"
    }

    /// One line a row.
    pub fn text(&self) -> String {
        let mut lines = vec![self.columns.iter().map(|column| column.title.clone()).collect::<Vec<_>>()];
        lines.extend(self.rows.iter().map(|row| row.iter().map(Cell::plain).collect()));
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for line in &lines {
            let mut aligned = String::new();
            for ((cell, width), column) in line.iter().zip(&widths).zip(&self.columns) {
                let padding = " ".repeat(width - cell.chars().count());
                aligned += &if column.is_number { format!("{padding}{cell}  ") } else { format!("{cell}{padding}  ") };
            }
            text += aligned.trim_end();
            text.push('\n');
        }
        text
    }
}

fn header_cell(column: &Column) -> String {
    let side = if column.is_number { "right" } else { "left" };
    let title = escaped(&one_line(&column.title));
    format!("<th scope=\"col\" style=\"text-align:{side};padding:0.25em 0.7em;vertical-align:bottom\">{title}</th>")
}

fn body_cell(column: &Column, cell: &Cell) -> String {
    let side = if column.is_number { "right;white-space:nowrap" } else { "left" };
    format!("<td style=\"text-align:{side};padding:0.25em 0.7em;vertical-align:top\">{}</td>", cell.html())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_align_words_left_and_numbers_right() {
        let grid = Grid::new(&[words("nom"), numbers("octets")])
            .row(["a".into(), Cell::with("12", "0 Gio")])
            .row(["long".into(), "7".into()]);
        assert_eq!(grid.text(), "nom       octets\na     12 (0 Gio)\nlong           7\n");
        let html = grid.html();
        assert_eq!((html.matches("text-align:right").count(), html.matches("text-align:left").count()), (3, 3));
    }

    #[test]
    fn text_from_outside_stays_text() {
        let grid = Grid::new(&[words("<nom>")]).row(["<script>alert(1)</script>\n\u{1b}[31m".into()]);
        assert!(!grid.html().contains("<script") && !grid.html().contains('\u{1b}'));
        assert_eq!(grid.text().lines().count(), 2);
    }
}
