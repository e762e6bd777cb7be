//! CSV files as people really save them: UTF-8 with or without mark, Latin-1, comma or semicolon,
//! any line ending. What is not understood is refused with its line and column, never guessed.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Chain, Read, Take};

use csv::{ByteRecord, Reader, ReaderBuilder, Terminator};

use crate::arguments::is_digits;
use crate::error::LabError;

/// A CSV file whose header has been checked against the columns that it must have.
pub(crate) struct Table<R> {
    name: String,
    columns: &'static [&'static str],
    /// Where each expected column stands in the file.
    positions: Vec<usize>,
    delimiter: u8,
    line_ending: &'static str,
    reader: Reader<Take<Chain<R, &'static [u8]>>>,
    record: ByteRecord,
    /// Line of the last row that was read.
    line: u64,
}

/// Read after the file as a line of its own; when it never arrives, quotes that nothing closes
/// have swallowed it, and rows before it.
const END: &[u8] = b"\n\0\n";

/// Bytes of a record, the blank lines before it included. A file without an end, such as a device, has
/// no longer one in memory.
pub(crate) const MAX_RECORD: u64 = 1 << 20;
/// Bytes read at once.
const BUFFER: usize = 1 << 16;

/// One row of a [`Table`], which knows its line.
pub(crate) struct Row<'a> {
    name: &'a str,
    columns: &'static [&'static str],
    positions: &'a [usize],
    delimiter: u8,
    record: &'a ByteRecord,
}

impl<R: Read> Table<BufReader<R>> {
    /// Reads the header. `name` is the file's name, for messages.
    pub fn open(name: &str, input: R, columns: &'static [&'static str]) -> Result<Self, LabError> {
        let mut input = BufReader::with_capacity(BUFFER, input);
        let start = input.fill_buf().map_err(|error| LabError::unreadable(name, error))?;
        if start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff") {
            let expected = "un fichier UTF-8 ou Latin-1 ; enregistrez-le en « CSV UTF-8 »".to_owned();
            return Err(LabError::in_table(name, 1, "toutes", "UTF-16", expected));
        }
        let mark = if start.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let header = start[mark..].split(|byte| *byte == b'\n').next().unwrap_or_default();
        // A semicolon inside a quoted column name would be one of none of our columns.
        let delimiter = if header.contains(&b';') { b';' } else { b',' };
        let line_ending = if header.ends_with(b"\r") { "\r\n" } else { "\n" };
        input.consume(mark);
        // Lines end at line feeds alone: with csv's own rule for CRLF, its line numbers lag behind.
        let line_feed = Terminator::Any(b'\n');
        let mut reader = ReaderBuilder::new();
        reader.delimiter(delimiter).flexible(true).has_headers(false).terminator(line_feed).buffer_capacity(BUFFER);
        let reader = reader.from_reader(input.chain(END).take(MAX_RECORD));
        let (name, positions, record) = (name.to_owned(), Vec::new(), ByteRecord::new());
        let mut table = Self { name, columns, positions, delimiter, line_ending, reader, record, line: 1 };
        table.read_header()?;
        Ok(table)
    }

    fn read_header(&mut self) -> Result<(), LabError> {
        let found = self.read_record()?;
        let names: Vec<String> = self.record.iter().map(|field| decoded(field).trim().to_owned()).collect();
        let expected =
            format!("les colonnes {}, séparées par des virgules ou par des points-virgules", self.columns.join(", "));
        if !found {
            return Err(LabError::in_table(&self.name, 1, "en-tête", "", expected));
        }
        for (position, name) in names.iter().enumerate() {
            if !self.columns.contains(&name.as_str()) {
                return Err(LabError::in_table(&self.name, 1, "en-tête", name, expected));
            }
            if names[..position].contains(name) {
                let once = format!("la colonne {name} une seule fois");
                return Err(LabError::in_table(&self.name, 1, "en-tête", name, once));
            }
        }
        for column in self.columns {
            let position = names.iter().position(|name| name == column);
            let missing = || {
                LabError::in_table(&self.name, 1, "en-tête", &names.join(", "), format!("aussi la colonne {column}"))
            };
            self.positions.push(position.ok_or_else(missing)?);
        }
        Ok(())
    }

    /// The next row that holds anything, or none at the end of the file.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, LabError> {
        if !self.read_record()? {
            return Ok(None);
        }
        let (positions, delimiter) = (&self.positions, self.delimiter);
        let row = Row { name: &self.name, columns: self.columns, positions, delimiter, record: &self.record };
        if self.record.iter().all(|field| field.trim_ascii().is_empty()) {
            let expected = "une ligne remplie, ou supprimée ; celle-ci n'a que des séparateurs".to_owned();
            return Err(LabError::in_table(&self.name, row.line(), "toutes", "", expected));
        }
        if self.record.len() != self.columns.len() {
            let delimiter = char::from(delimiter);
            let expected = format!("{} colonnes séparées par « {delimiter} », comme l'en-tête", self.columns.len());
            return Err(LabError::in_table(
                &self.name,
                row.line(),
                "toutes",
                &format!("{} colonnes", self.record.len()),
                expected,
            ));
        }
        Ok(Some(row))
    }

    /// The separator that the file uses.
    pub fn delimiter(&self) -> u8 {
        self.delimiter
    }

    /// How the file ends its lines.
    pub fn line_ending(&self) -> &'static str {
        self.line_ending
    }

    /// For each place in a row of the file, the index of its column in the expected columns.
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.columns.len()).collect();
        order.sort_by_key(|column| self.positions[*column]);
        order
    }

    /// Skips lines of white space; a line of bare separators is a row of empty fields.
    fn read_record(&mut self) -> Result<bool, LabError> {
        // The last of its bytes may come with as many of the next record as are read at once.
        self.reader.get_mut().set_limit(MAX_RECORD + BUFFER as u64);
        while self.read_any()? {
            self.line = line_of(&self.record);
            if self.record.len() > 1 {
                return Ok(true);
            }
            match self.record.get(0).unwrap_or_default().trim_ascii() {
                b"" => (),
                b"\0" => {
                    return if self.read_any()? {
                        Err(self.broken("\0", "un texte sans octet nul"))
                    } else {
                        Ok(false)
                    };
                }
                _ => return Ok(true),
            }
        }
        Err(self.broken("\"", "des guillemets fermés ; ceux qui s'ouvrent sur cette ligne ne le sont pas"))
    }

    /// A refusal of a whole line.
    fn broken(&self, found: &str, expected: &str) -> LabError {
        LabError::in_table(&self.name, self.line, "toutes", found, expected.to_owned())
    }

    fn read_any(&mut self) -> Result<bool, LabError> {
        let read = self.reader.read_byte_record(&mut self.record);
        let read = read.map_err(|error| LabError::unreadable(&self.name, error.into()))?;
        if self.reader.get_ref().limit() == 0 {
            self.line = line_of(&self.record);
            return Err(self.broken("plus de 1 Mio", "une ligne d'au plus 1 Mio"));
        }
        Ok(read)
    }
}

impl Row<'_> {
    /// Line in the file, from 1 on.
    pub fn line(&self) -> u64 {
        line_of(self.record)
    }

    /// The bytes of a column given by its index in the expected columns.
    pub fn bytes(&self, column: usize) -> &[u8] {
        let bytes = &self.record[self.positions[column]];
        bytes.strip_suffix(b"\r").unwrap_or(bytes)
    }

    /// The text of a column.
    ///
    /// Bytes that are not UTF-8 are read as Latin-1, which gives a character to all but the
    /// control bytes that other encodings use for quotes and dashes; those are refused.
    pub fn text(&self, column: usize) -> Result<Cow<'_, str>, LabError> {
        let text = decoded(self.bytes(column));
        if text.chars().any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) {
            return Err(self.refused(column, "un texte UTF-8 ou Latin-1 ; enregistrez le fichier en « CSV UTF-8 »"));
        }
        Ok(text)
    }

    /// A text that must not be empty.
    pub fn filled(&self, column: usize) -> Result<String, LabError> {
        let text = self.text(column)?;
        let text = text.trim();
        if text.is_empty() { Err(self.refused(column, "un texte non vide")) } else { Ok(text.to_owned()) }
    }

    /// A whole number of at least 1; spaces may separate groups of three digits.
    pub fn positive(&self, column: usize) -> Result<u64, LabError> {
        let number = self.whole(column)?;
        if number == 0 { Err(self.refused(column, EXPECTED_POSITIVE)) } else { Ok(number) }
    }

    /// A whole number of at least 0; spaces may separate groups of three digits.
    pub fn whole(&self, column: usize) -> Result<u64, LabError> {
        let bytes = self.bytes(column);
        if (1..=19).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_digit) {
            // Nineteen digits always fit.
            return Ok(bytes.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')));
        }
        grouped_number(&self.text(column)?).ok_or_else(|| self.refused(column, EXPECTED_POSITIVE))
    }

    /// A decimal of at least 0, with a point or a comma. A comma that may separate thousands as
    /// well as decimals is refused; where semicolons separate the columns, it is a decimal comma.
    pub fn decimal(&self, column: usize) -> Result<f64, LabError> {
        let text = self.text(column)?;
        let text = text.trim();
        let (whole, fraction) = text.split_once(['.', ',']).unwrap_or((text, "0"));
        if !is_digits(fraction) || whole.ends_with(GROUP_SPACES) {
            return Err(self.refused(column, EXPECTED_DECIMAL));
        }
        if self.delimiter == b',' && text.contains(',') && fraction.len() == 3 && whole != "0" {
            return Err(self.refused(column, "un point décimal : ici, la virgule peut aussi séparer des milliers"));
        }
        let number: Option<f64> = if is_digits(whole) && !text.contains(',') {
            text.parse().ok()
        } else {
            grouped_number(whole).and_then(|whole| format!("{whole}.{fraction}").parse().ok())
        };
        number.filter(|number| number.is_finite()).ok_or_else(|| self.refused(column, EXPECTED_DECIMAL))
    }

    /// A refusal of what this column holds.
    pub fn refused(&self, column: usize, expected: &str) -> LabError {
        let found = decoded(self.bytes(column));
        LabError::in_table(self.name, self.line(), self.columns[column], &found, expected.to_owned())
    }
}

const EXPECTED_DECIMAL: &str = "un nombre décimal positif ou nul, sans exposant, par exemple 0.021 ou 0,021";
const EXPECTED_POSITIVE: &str = "un nombre entier positif, sans décimales, d'au plus 18446744073709551615";

/// Spaces that French typography and spreadsheets put between groups of three digits.
const GROUP_SPACES: [char; 4] = [' ', '\u{a0}', '\u{202f}', '\u{2009}'];

/// Reads `1049` and `1 049`; anything else, a stray space included, is no number.
fn grouped_number(text: &str) -> Option<u64> {
    let text = text.trim();
    let groups: Vec<&str> = text.split(GROUP_SPACES).collect();
    let shaped = groups.len() == 1 || (groups[0].len() <= 3 && groups[1..].iter().all(|group| group.len() == 3));
    if !shaped || !groups.iter().all(|group| is_digits(group)) {
        return None;
    }
    groups.concat().parse().ok()
}

/// Line on which a record starts.
fn line_of(record: &ByteRecord) -> u64 {
    record.position().map_or(0, csv::Position::line)
}

fn decoded(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[&str] = &["gpu", "cents"];

    fn read(bytes: &[u8]) -> Result<Vec<(u64, String, u64)>, LabError> {
        let mut table = Table::open("t.csv", bytes, COLUMNS)?;
        let mut rows = Vec::new();
        while let Some(row) = table.next_row()? {
            rows.push((row.line(), row.filled(0)?, row.positive(1)?));
        }
        Ok(rows)
    }

    #[test]
    fn files_as_people_save_them() {
        let plain = vec![(2, "é".to_owned(), 1049), (3, "b".to_owned(), 7)];
        let good: [&[u8]; 8] = [
            "gpu,cents\né,1049\nb,7\n".as_bytes(),
            "\u{feff}gpu,cents\né,1049\nb,7".as_bytes(),
            "gpu,cents\r\né,1049\r\nb,7\r\n\r\n \r\n".as_bytes(),
            "gpu;cents\né;1 049\nb;7\n".as_bytes(),
            "gpu;cents\né;1\u{202f}049\nb;7\n".as_bytes(),
            b"gpu;cents\r\n\xe9;1\xa0049\r\nb;7\r\n",
            "cents,gpu\n1049,é\n7,b\n".as_bytes(),
            "\"gpu\",\"cents\"\n\"é\",\"1049\"\n b ,7\n".as_bytes(),
        ];
        for bytes in good {
            assert_eq!(read(bytes).ok(), Some(plain.clone()), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn decimals_with_a_point_or_a_comma() -> Result<(), LabError> {
        let decimal = |delimiter: char, text: &str| {
            let file = format!("gpu{delimiter}cents\na{delimiter}\"{text}\"\n");
            let mut table = Table::open("t.csv", file.as_bytes(), COLUMNS)?;
            let row = table.next_row()?.ok_or_else(|| LabError::invalid("row", "", "one"))?;
            row.decimal(1)
        };
        for delimiter in [',', ';'] {
            let good =
                [("0", 0.0), ("12", 12.0), ("0.021", 0.021), ("0,021", 0.021), ("1 049,99", 1049.99), ("1.049", 1.049)];
            for (text, value) in good {
                assert_eq!(decimal(delimiter, text)?, value, "{text}");
            }
            assert_eq!(decimal(delimiter, "1\u{202f}049,5")?, 1049.5);
            let long = "9".repeat(400);
            for bad in [
                "", ".5", "5.", "1e3", "-1", "+5", "NaN", "inf", "1.049,99", "1,049.99", "1 04,5", "1 ,5", "1, 5",
                &long,
            ] {
                assert!(decimal(delimiter, bad).is_err(), "{bad}");
            }
        }
        // A French file writes 1,049 for a little more than one; elsewhere it may be a thousand.
        assert_eq!(decimal(';', "1,049")?, 1.049);
        assert!(decimal(',', "1,049").is_err());
        Ok(())
    }

    #[test]
    fn refusals_name_line_column_and_what_is_expected() {
        let bad: [(&[u8], &str); 28] = [
            (b"\xff\xfeg\0p\0u\0", "UTF-16"),
            (b"\xfe\xff\0g\0p\0u", "UTF-16"),
            (b"", "ligne 1"),
            (b"\n\n", "ligne 1"),
            (b"gpu,cents,colour\na,1,x\n", "colour"),
            (b"gpu\na\n", "colonne cents"),
            (b"gpu,cents,gpu\na,1,b\n", "une seule fois"),
            (b"gpu\tcents\na\t1\n", "par des points-virgules"),
            (b"gpu,cents\na,1\nb,-2\n", "ligne 3, colonne cents : \u{ab} -2"),
            (b"gpu,cents\na,0\n", "ligne 2, colonne cents"),
            (b"gpu,cents\na,12.5\n", "ligne 2, colonne cents"),
            (b"gpu;cents\na;1 049,99\n", "ligne 2, colonne cents"),
            (b"gpu,cents\na,1 04\n", "ligne 2, colonne cents"),
            (b"gpu,cents\na,1049 999\n", "ligne 2, colonne cents"),
            (b"gpu,cents\na,\"1,049\"\n", "ligne 2, colonne cents"),
            (b"gpu,cents\na,1e3\n", "ligne 2, colonne cents"),
            (b"gpu,cents\na,+5\n", "ligne 2, colonne cents"),
            (b"gpu,cents\na,18446744073709551616\n", "ligne 2, colonne cents"),
            (b"gpu,cents\n,\n", "que des s"),
            (b"gpu,cents\na,1,2\n", "ligne 2, colonne toutes : \u{ab} 3 colonnes"),
            (b"gpu,cents\na\n", "2 colonnes s\u{e9}par\u{e9}es par \u{ab} , \u{bb}"),
            (b"gpu;cents\na,1\n", "2 colonnes s\u{e9}par\u{e9}es par \u{ab} ; \u{bb}"),
            (b"gpu,cents\nl\x92a,1\n", "ligne 2, colonne gpu"),
            (b"gpu,cents\na,\"1\nb,2\nc,3\n", "ligne 2"),
            (b"gpu,cents\na,1\nb,\"2", "ligne 3"),
            (b"gpu,cents\n\"a\nb,2\nc,3\n", "ligne 2"),
            (b"\"gpu,cents\na,1\n", "ligne 1"),
            (b"gpu,cents\na,1\n\0\nb,2\n", "ligne 3"),
        ];
        for (bytes, expected) in bad {
            let message = read(bytes).map_err(|error| error.to_string());
            let shown = String::from_utf8_lossy(bytes).into_owned();
            assert!(message.as_ref().is_err_and(|text| text.contains(expected)), "{shown}: {message:?}");
        }
    }
}
