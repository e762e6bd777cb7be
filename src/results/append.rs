//! Adds the rows of a measurement to a results file: the old file or the new one, whatever happens
//! in between, and never the same measurement twice.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use csv::{Terminator, WriterBuilder};

use super::summary::Tally;
use super::{BLANK_GRID, COLUMNS, RUN_ID, units};
use crate::error::{LabError, shortened};
use crate::export::{NewFile, not_synced, not_writable};
use crate::json::push_inert;
use crate::measure::{Measurement, PhaseRow, check};
use crate::settings::RuntimeSettings;
use crate::table::{MAX_RECORD, Table};
use crate::temporary::{NotNamed, Temporary, is_same};

/// Adds one row for every pass of `measurement` to the results file `to`, which is created with
/// its header when nothing has that name.
///
/// What the file holds stays as it is, byte for byte. New rows take its separator, its order of
/// columns and its line ending. A link is followed, permissions are kept, and two calls at once
/// wait for each other.
///
/// # Errors
/// [`LabError::NotAMeasurement`] when phases are missing, figures impossible or texts endless;
/// [`LabError::InvalidArgument`] for the blank grid `resultats-bruts.csv` and for anything that is
/// no regular file; [`LabError::InTable`] when the existing file is broken;
/// [`LabError::RunAlreadyRecorded`] when it holds this measurement; [`LabError::NotWritable`]. The
/// file is untouched in each case. [`LabError::NotSynced`] when the rows are there and the disk did
/// not confirm it.
///
/// # Examples
/// ```no_run
/// use std::path::Path;
///
/// use iteragpu_lab::results::{append, read_measurement, summarize};
///
/// let results = Path::new("mes-resultats.csv");
/// println!("{}", append(&read_measurement(Path::new("mesures.json"))?, results)?);
/// println!("{}", summarize(results)?);
/// # Ok::<(), iteragpu_lab::LabError>(())
/// ```
pub fn append(measurement: &Measurement, to: &Path) -> Result<Appended, LabError> {
    check(measurement).map_err(|found| LabError::NotAMeasurement { found })?;
    let run = Run { id: run_id(measurement), measurement };
    if !run.reads_back() {
        let found = "ses textes ne tiendraient pas dans une ligne de 1 Mio".to_owned();
        return Err(LabError::NotAMeasurement { found });
    }
    let target = Target::of(to)?;
    loop {
        // Each turn lost means that another process has just created or replaced the file.
        let done = match target.open()? {
            Some(file) => target.lock(&file)? && target.replace(&file, &run).map(|()| true)?,
            None => target.create(&run)?,
        };
        if done {
            return Ok(Appended { path: to.to_owned(), rows: measurement.phases.len() as u64, run_id: run.id });
        }
    }
}

/// Rows that have been added. `Display` says so in French.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The file's name as given.
    pub path: PathBuf,
    /// The measurement's identifier.
    pub run_id: String,
    /// Number of rows added.
    pub rows: u64,
}

impl fmt::Display for Appended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = shortened(&self.path.to_string_lossy(), 120);
        write!(f, "{} lignes ajoutées à « {path} » : essai {}.", self.rows, self.run_id)
    }
}

/// Identifies a measurement: its time, and 64 bits computed from its JSON text (FNV-1a), without the
/// simulation: that can be added or left out, and what was measured stays the same.
///
/// An identifier, not a protection: it tells apart runs that end in the same microsecond on two
/// machines, and anybody can make up another run with the same one.
pub fn run_id(measurement: &Measurement) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let text = Measurement { simulation: None, ..measurement.clone() }.to_string();
    let hash = text.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    format!("{}-{hash:016x}", measurement.measured_at_utc)
}

/// Reads a measurement from the JSON file that this project writes.
///
/// # Errors
/// [`LabError::Unreadable`], or [`LabError::NotAMeasurement`] saying what the file holds instead.
pub fn read_measurement(path: &Path) -> Result<Measurement, LabError> {
    let name = shortened(&path.to_string_lossy(), 120);
    let file = File::open(path).map_err(|error| LabError::unreadable(&name, error))?;
    // Read no further than it is JSON: what has no end, such as a device, would fill the memory.
    let measurement: Measurement = serde_json::from_reader(BufReader::new(file)).map_err(|error| {
        if error.is_io() {
            return LabError::unreadable(&name, error.into());
        }
        LabError::NotAMeasurement { found: format!("« {name} » {}", in_place_of_one(&error)) }
    })?;
    // The file is named: where two are read, it is the one to look at.
    check(&measurement).map_err(|found| LabError::NotAMeasurement { found: format!("« {name} » : {found}") })?;
    Ok(measurement)
}

/// serde's own wording is English; its categories and places are not.
fn in_place_of_one(error: &serde_json::Error) -> String {
    let place = format!("ligne {}, colonne {}", error.line(), error.column());
    match error.classify() {
        serde_json::error::Category::Data => {
            format!("contient un autre JSON : une clé manque ou n'a pas la forme attendue ({place})")
        }
        serde_json::error::Category::Eof => format!("s'arrête avant la fin du JSON ({place})"),
        _ => format!("n'est pas du JSON ({place})"),
    }
}

/// A measurement on its way into a file.
struct Run<'a> {
    id: String,
    measurement: &'a Measurement,
}

impl Run<'_> {
    /// Whether a results file with its rows is still read: rows differ in short cells only.
    fn reads_back(&self) -> bool {
        // Quotes inside a cell are written twice, others around it, and a separator after it.
        let written = |cell: String| 2 * cell.len() as u64 + 3;
        let longest = self.measurement.phases.first().map(|row| self.cells(row).into_iter().map(written).sum());
        longest.is_none_or(|bytes: u64| bytes <= MAX_RECORD)
    }

    /// The rows as a file of this layout writes them.
    fn rows(&self, layout: &Layout) -> io::Result<Vec<u8>> {
        let mut writer = layout.writer();
        for row in &self.measurement.phases {
            let cells = self.cells(row);
            writer.write_record(layout.order.iter().map(|column| cells[*column].as_str()))?;
        }
        writer.into_inner().map_err(|failed| failed.into_error())
    }

    /// One cell a column; what only people can fill in stays empty.
    fn cells(&self, row: &PhaseRow) -> Vec<String> {
        let environment = &self.measurement.environment;
        let chosen = &self.measurement.configuration.chosen;
        let text = |text: &Option<String>| text.as_deref().map(not_a_formula).unwrap_or_default();
        let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
        let mut cells = vec![
            self.id.clone(),
            self.measurement.measured_at_utc.clone(),
            not_a_formula(&environment.platform),
            not_a_formula(&environment.lab_version),
            text(&environment.tch_version),
            text(&environment.torch_version),
            text(&environment.cuda_build_version),
            text(&environment.driver_version),
            chosen.device.clone(),
            text(&environment.selected_device_name),
            number(environment.selected_device_total_bytes),
            text(&environment.runtime_settings.as_ref().map(RuntimeSettings::to_string)),
            chosen.batch.to_string(),
            chosen.context.to_string(),
            chosen.width.to_string(),
            chosen.dtype.name().to_owned(),
            chosen.warmup.to_string(),
            chosen.repeats.to_string(),
            chosen.seed.to_string(),
            row.phase.clone(),
            row.run_index.to_string(),
            number(row.iterations),
            // The shortest text that reads back as the same number, never with an exponent.
            row.elapsed_seconds.to_string(),
            row.baseline_allocated_bytes.to_string(),
            row.baseline_reserved_bytes.to_string(),
            row.end_allocated_bytes.to_string(),
            row.end_reserved_bytes.to_string(),
            row.peak_allocated_bytes.to_string(),
            row.peak_reserved_bytes.to_string(),
        ];
        cells.resize(COLUMNS.len(), String::new());
        cells
    }
}

/// Text from outside that no spreadsheet takes for a formula: a leading apostrophe makes it text.
/// Control characters, which a results file refuses, and those that change the direction of text are
/// written as in JSON.
fn not_a_formula(text: &str) -> String {
    let mut inert = String::with_capacity(text.len());
    text.chars().for_each(|character| push_inert(&mut inert, character));
    let first = inert.trim_start().chars().next();
    if first.is_some_and(|first| "=+-@＝＋－＠".contains(first)) { format!("'{inert}") } else { inert }
}

/// How a file writes its rows.
struct Layout {
    delimiter: u8,
    line_ending: &'static str,
    order: Vec<usize>,
}

impl Layout {
    fn of_new_file() -> Self {
        Self { delimiter: b',', line_ending: "\n", order: (0..COLUMNS.len()).collect() }
    }

    fn writer(&self) -> csv::Writer<Vec<u8>> {
        let terminator = if self.line_ending == "\r\n" { Terminator::CRLF } else { Terminator::Any(b'\n') };
        WriterBuilder::new().delimiter(self.delimiter).terminator(terminator).from_writer(Vec::new())
    }
}

/// The file that takes the rows.
struct Target<'a> {
    /// Its name as given, for messages.
    given: &'a Path,
    /// The file itself when the name is a link to it.
    path: PathBuf,
}

impl<'a> Target<'a> {
    fn of(given: &'a Path) -> Result<Self, LabError> {
        let is_link = given.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        let path = if is_link { given.canonicalize() } else { Ok(given.to_owned()) };
        let target = Self { given, path: path.unwrap_or_default() };
        if is_link && target.path.as_os_str().is_empty() {
            return Err(target.refused("un nom de fichier, ou un lien vers un fichier qui existe"));
        }
        let is_grid = |path: &Path| path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(BLANK_GRID));
        if is_grid(given) || is_grid(&target.path) {
            return Err(target.refused(
                "un autre nom ; cette grille reste vierge, donnez à votre copie un nom à vous, par exemple mes-resultats.csv",
            ));
        }
        Ok(target)
    }

    /// The file, open for reading and writing, or none when nothing has its name.
    fn open(&self) -> Result<Option<File>, LabError> {
        let opened = fs::metadata(&self.path).and_then(|metadata| {
            // Opening something else, such as a pipe, might block or have effects.
            if metadata.is_file() {
                File::options().read(true).write(true).open(&self.path).map(Some)
            } else {
                Ok(None)
            }
        });
        match opened {
            Ok(None) => Err(self.refused("un fichier ordinaire")),
            Ok(file) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.not_writable(error)),
        }
    }

    /// Waits until this process alone holds the file; false when it has been replaced meanwhile.
    ///
    /// The lock is on the file itself: none is left behind, a file that must not be written is
    /// refused by the system, and network file systems, which lock no folders, take part.
    fn lock(&self, file: &File) -> Result<bool, LabError> {
        let locked = file.lock().and_then(|()| file.metadata());
        let locked = locked.map_err(|error| self.not_writable(error))?;
        Ok(fs::metadata(&self.path).is_ok_and(|current| is_same(&locked, &current)))
    }

    /// A new file with header and rows; false when the name was taken meanwhile.
    fn create(&self, run: &Run<'_>) -> Result<bool, LabError> {
        let layout = Layout::of_new_file();
        let mut contents = format!("{}\n", COLUMNS.join(",")).into_bytes();
        contents.extend(run.rows(&layout).map_err(|error| self.not_writable(error))?);
        match NewFile::check(&self.path).and_then(|file| file.write(&contents)) {
            Ok(()) => Ok(true),
            Err(LabError::FileExists { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Puts a copy with the new rows in the place of the locked file.
    fn replace(&self, file: &File, run: &Run<'_>) -> Result<(), LabError> {
        let layout = self.validated(file, &run.id)?;
        let copy = self.copy(file, run, &layout).map_err(|error| self.not_writable(error))?;
        copy.replace(&self.path).map_err(|failed| match failed {
            NotNamed::NotWritten(error) => self.not_writable(error),
            NotNamed::NotSynced(error) => not_synced(self.given, error),
        })
    }

    /// Reads the whole file: nothing is added to a broken one, nor a second time.
    fn validated(&self, file: &File, run_id: &str) -> Result<Layout, LabError> {
        let name = self.shown();
        let mut table = Table::open(&name, file, COLUMNS)?;
        let layout = Layout { delimiter: table.delimiter(), line_ending: table.line_ending(), order: table.order() };
        let (mut tally, mut recorded) = (Tally::default(), None);
        while let Some(row) = table.next_row()? {
            tally.add(&row)?;
            units::check(&row)?;
            if row.text(RUN_ID)?.trim() == run_id {
                recorded.get_or_insert(row.line());
            }
        }
        tally.check_runs(&name)?;
        match recorded {
            Some(line) => Err(LabError::RunAlreadyRecorded { path: name, run_id: run_id.to_owned(), line }),
            None => Ok(layout),
        }
    }

    /// The old bytes, then the new rows.
    fn copy(&self, mut file: &File, run: &Run<'_>, layout: &Layout) -> io::Result<Temporary> {
        let mut copy = Temporary::beside(&self.path)?;
        file.rewind()?;
        io::copy(&mut file, &mut copy.as_file())?;
        if last_byte(file)? != b'\n' {
            copy.write_all(layout.line_ending.as_bytes())?;
        }
        copy.write_all(&run.rows(layout)?)?;
        copy.keep_owner_and_permissions(file)?;
        Ok(copy)
    }

    fn refused(&self, expected: &str) -> LabError {
        LabError::invalid("to", &self.shown(), expected)
    }

    fn not_writable(&self, error: io::Error) -> LabError {
        not_writable(self.given, error)
    }

    fn shown(&self) -> String {
        shortened(&self.given.to_string_lossy(), 120)
    }
}

/// The header has been read, so that the file is not empty.
fn last_byte(mut file: &File) -> io::Result<u8> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_never_a_formula() {
        let cases = [
            ("NVIDIA H200", "NVIDIA H200"),
            ("", ""),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            (" =1", "' =1"),
            ("\t=1", r"\u0009=1"),
            ("\rx", r"\u000dx"),
            ("a\nb=1", r"a\u000ab=1"),
            ("\u{202e}=1", r"\u202e=1"),
            ("\u{a0}=1", "'\u{a0}=1"),
            ("＝1", "'＝1"),
        ];
        for (text, written) in cases {
            assert_eq!(not_a_formula(text), written, "{text:?}");
        }
    }
}
