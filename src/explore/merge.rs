//! Many files of explorations become one: each exploration, which is of one machine, stays apart, its
//! plan before its runs, and lines that are the same are there once.
//!
//! A first reading checks every line and keeps where it is; a second one copies, byte for byte. What a
//! line holds is never kept: 40 bytes are, however long it is.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use super::record::{NextLine, PlanRecord, Record, RunRecord, TOO_LONG, next_line, number_of};
use crate::error::{LabError, shortened};
use crate::export::NewFile;

/// Merges the files `inputs`, a folder standing for every `.jsonl` file in it, into the new file `output`.
///
/// The order of `inputs` changes nothing: explorations are in the order of their start, runs in that of
/// the plan. A merged file can be merged again, and a file may be named twice. A last line that its
/// writer did not complete is left out.
///
/// # Errors
/// [`LabError::ExplorationRefused`] with the line when a file holds anything else than explorations, or
/// when two lines say different things of the same run or the same exploration; when a file changes
/// meanwhile. [`LabError::Unreadable`]; [`LabError::InvalidArgument`] when there is no exploration; else as
/// [`NewFile`]. In each case nothing is written.
///
/// # Examples
/// ```no_run
/// use std::path::Path;
///
/// use iteragpu_lab::explore::merge;
///
/// println!("{}", merge(&["h200.jsonl".into(), "b200.jsonl".into()], Path::new("tout.jsonl"))?);
/// # Ok::<(), iteragpu_lab::LabError>(())
/// ```
pub fn merge(inputs: &[PathBuf], output: &Path) -> Result<Merged, LabError> {
    let output = NewFile::check(output)?;
    let files = files(inputs)?;
    let mut reading = Reading::of(&files);
    for (number, path) in (0..).zip(&files) {
        reading.read(number, path)?;
    }
    if reading.explorations.is_empty() {
        let named = inputs.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(", ");
        return Err(LabError::invalid("merge", &named, "au moins un fichier qui contient une exploration"));
    }
    let duplicates = reading.keep_each_once()?;
    let Reading { explorations, lines, mut copies, cut_lines, .. } = reading;
    output.write_parts(lines.iter().map(|line| copies.of(&line.place)))?;
    let explorations = explorations.len() as u64;
    let runs = lines.len() as u64 - explorations;
    Ok(Merged { path: output.path().to_owned(), explorations, runs, duplicates, cut_lines })
}

/// What a merged file holds, and what was left out. `Display` says so in French.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The new file's name as given.
    pub path: PathBuf,
    /// Number of explorations.
    pub explorations: u64,
    /// Number of runs.
    pub runs: u64,
    /// Lines left out because the same one is there.
    pub duplicates: u64,
    /// Last lines left out because their writer did not complete them.
    pub cut_lines: u64,
}

impl fmt::Display for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, explorations, runs, duplicates, cut_lines } = self;
        let path = shown(path);
        write!(
            f,
            "Nouveau fichier « {path} » : explorations : {explorations} ; mesures : {runs} ; \
             doublons retirés : {duplicates} ; dernières lignes coupées, laissées de côté : {cut_lines}."
        )
    }
}

/// Every file that `inputs` name.
fn files(inputs: &[PathBuf]) -> Result<Vec<PathBuf>, LabError> {
    let mut files = Vec::new();
    for input in inputs {
        if input.is_dir() {
            let inside = jsonl_files_in(input).map_err(|error| unreadable(input, error))?;
            files.extend(inside);
        } else {
            files.push(input.clone());
        }
    }
    Ok(files)
}

fn jsonl_files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort_unstable();
    Ok(paths)
}

/// Where a line is, and what tells whether another is the same.
#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    /// From 1 on.
    line: u64,
    /// Of its bytes, with keys drawn for this process.
    fingerprint: u64,
    file: u32,
}

/// A line that has been checked.
struct Line {
    exploration: u32,
    /// As in its record; 0 for the plan.
    run_index: u32,
    place: Place,
}

impl Line {
    /// What there is one line of.
    fn subject(&self) -> (u32, u32) {
        (self.exploration, self.run_index)
    }
}

struct Exploration {
    id: u64,
    started_at_utc: String,
    plan: Place,
    /// The last file that holds its plan.
    read_in: u32,
}

/// The first reading, and what it keeps.
struct Reading<'a> {
    files: &'a [PathBuf],
    copies: Copies<'a>,
    explorations: Vec<Exploration>,
    /// Positions in `explorations`.
    of_id: HashMap<u64, u32>,
    /// The plan that runs are checked against; plans may be large.
    at_hand: Option<(u32, Box<PlanRecord>)>,
    lines: Vec<Line>,
    cut_lines: u64,
}

impl<'a> Reading<'a> {
    fn of(files: &'a [PathBuf]) -> Self {
        Self {
            files,
            copies: Copies { files, fingerprints: RandomState::new(), open: None },
            explorations: Vec::new(),
            of_id: HashMap::new(),
            at_hand: None,
            lines: Vec::new(),
            cut_lines: 0,
        }
    }

    fn read(&mut self, file: u32, path: &Path) -> Result<(), LabError> {
        let mut source = Source::open(path)?;
        for line in 1.. {
            let offset = source.offset;
            let refused = |reason: &str| refused(path, line, reason);
            let bytes = match source.next()? {
                NextLine::Whole(bytes) => bytes,
                NextLine::TooLong => return Err(refused(TOO_LONG)),
                NextLine::Cut => {
                    self.cut_lines += 1;
                    break;
                }
                NextLine::End => break,
            };
            let place = Place { offset, line, fingerprint: self.copies.fingerprints.hash_one(&bytes), file };
            match Record::of(&bytes).map_err(refused)? {
                Record::Plan(plan) => self.add_plan(plan, place)?,
                Record::Run(run) => self.add_run(&run, place)?,
            }
        }
        Ok(())
    }

    fn add_plan(&mut self, plan: Box<PlanRecord>, place: Place) -> Result<(), LabError> {
        let id = number_of(&plan.exploration_id)
            .ok_or_else(|| self.refused(&place, "n'a pas d'identifiant d'exploration"))?;
        let exploration = match self.of_id.get(&id) {
            Some(known) => *known,
            None => {
                let (number, started_at_utc) = (self.explorations.len() as u32, plan.started_at_utc.clone());
                self.explorations.push(Exploration { id, started_at_utc, plan: place, read_in: place.file });
                self.of_id.insert(id, number);
                number
            }
        };
        let known = &mut self.explorations[exploration as usize];
        known.read_in = place.file;
        let first = known.plan;
        let line = Line { exploration, run_index: 0, place };
        // Not left for later: the runs that follow are this plan's.
        self.check_same(&Line { place: first, ..line }, &line)?;
        self.lines.push(line);
        self.at_hand = Some((exploration, plan));
        Ok(())
    }

    fn add_run(&mut self, run: &RunRecord, place: Place) -> Result<(), LabError> {
        let number = number_of(&run.exploration_id).and_then(|id| self.of_id.get(&id)).copied();
        let planned = number.filter(|number| self.explorations[*number as usize].read_in == place.file);
        let Some(exploration) = planned else {
            return Err(self.refused(&place, "n'est pas précédée, dans ce fichier, du plan de son exploration"));
        };
        if !self.plan(exploration)?.holds(run) {
            return Err(self.refused(&place, "ne suit pas le plan de son exploration"));
        }
        // Which a plan limits to far less.
        self.lines.push(Line { exploration, run_index: run.run_index as u32, place });
        Ok(())
    }

    /// The plan of an exploration, read anew when another's is at hand.
    fn plan(&mut self, exploration: u32) -> Result<&PlanRecord, LabError> {
        let plan = match self.at_hand.take() {
            Some((number, plan)) if number == exploration => plan,
            _ => {
                let place = self.explorations[exploration as usize].plan;
                match Record::of(&self.copies.of(&place)?) {
                    Ok(Record::Plan(plan)) => plan,
                    _ => return Err(self.refused(&place, CHANGED)),
                }
            }
        };
        Ok(&self.at_hand.insert((exploration, plan)).1)
    }

    /// Sorts the lines and keeps the first of those that are the same. Returns the number of the others.
    fn keep_each_once(&mut self) -> Result<u64, LabError> {
        let mut order: Vec<(u32, &Exploration)> = (0..).zip(&self.explorations).collect();
        order.sort_unstable_by(|(_, one), (_, other)| {
            (&one.started_at_utc, one.id).cmp(&(&other.started_at_utc, other.id))
        });
        let mut rank = vec![0u32; order.len()];
        (0..).zip(order).for_each(|(position, (number, _))| rank[number as usize] = position);
        self.lines.sort_unstable_by_key(|line| {
            (rank[line.exploration as usize], line.run_index, line.place.file, line.place.offset)
        });
        self.lines.windows(2).try_for_each(|pair| self.check_same(&pair[0], &pair[1]))?;
        let all = self.lines.len();
        self.lines.dedup_by_key(|line| line.subject());
        Ok((all - self.lines.len()) as u64)
    }

    /// Two lines of the same subject say the same.
    fn check_same(&self, first: &Line, other: &Line) -> Result<(), LabError> {
        if first.subject() != other.subject() || first.place.fingerprint == other.place.fingerprint {
            return Ok(());
        }
        let id = self.explorations[first.exploration as usize].id;
        let subject = match first.run_index {
            0 => "le plan".to_owned(),
            index => format!("la mesure {index}"),
        };
        let (path, line) = (shown(&self.files[first.place.file as usize]), first.place.line);
        let reason = format!("contredit la ligne {line} de « {path} » sur {subject} de l'exploration {id:016x}");
        Err(self.refused(&other.place, &reason))
    }

    fn refused(&self, place: &Place, reason: &str) -> LabError {
        refused(&self.files[place.file as usize], place.line, reason)
    }
}

const CHANGED: &str = "a changé pendant la lecture";

/// Lines that have been read, once more. One file is open at a time, whatever their number.
struct Copies<'a> {
    files: &'a [PathBuf],
    fingerprints: RandomState,
    open: Option<(u32, Source<'a>)>,
}

impl Copies<'_> {
    fn of(&mut self, place: &Place) -> Result<Vec<u8>, LabError> {
        let path = &self.files[place.file as usize];
        let source = match self.open.take() {
            Some((file, source)) if file == place.file => source,
            _ => Source::open(path)?,
        };
        let source = &mut self.open.insert((place.file, source)).1;
        source.go_to(place.offset)?;
        match source.next()? {
            NextLine::Whole(bytes) if self.fingerprints.hash_one(&bytes) == place.fingerprint => Ok(bytes),
            _ => Err(refused(path, place.line, CHANGED)),
        }
    }
}

/// A file, and how far it has been read.
pub(super) struct Source<'a> {
    path: &'a Path,
    input: BufReader<File>,
    offset: u64,
}

impl<'a> Source<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Self, LabError> {
        let metadata = path.metadata().map_err(|error| unreadable(path, error))?;
        // Opening something else, such as a pipe, might block or have effects.
        if !metadata.is_file() {
            let reason = "ce n'est pas un fichier ordinaire".to_owned();
            return Err(LabError::ExplorationRefused { path: shown(path), reason });
        }
        let input = File::open(path).map_err(|error| unreadable(path, error))?;
        Ok(Self { path, input: BufReader::new(input), offset: 0 })
    }

    pub(super) fn next(&mut self) -> Result<NextLine, LabError> {
        let line = next_line(&mut self.input).map_err(|error| unreadable(self.path, error))?;
        if let NextLine::Whole(bytes) = &line {
            self.offset += bytes.len() as u64;
        }
        Ok(line)
    }

    /// Keeps what has been read ahead, where it can.
    fn go_to(&mut self, offset: u64) -> Result<(), LabError> {
        let step = offset.wrapping_sub(self.offset).cast_signed();
        self.input.seek_relative(step).map_err(|error| unreadable(self.path, error))?;
        self.offset = offset;
        Ok(())
    }
}

pub(super) fn refused(path: &Path, line: u64, reason: &str) -> LabError {
    LabError::ExplorationRefused { path: shown(path), reason: format!("la ligne {line} {reason}") }
}

fn unreadable(path: &Path, error: io::Error) -> LabError {
    LabError::unreadable(&path.to_string_lossy(), error)
}

fn shown(path: &Path) -> String {
    shortened(&path.to_string_lossy(), 120)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::EnvironmentReport;
    use crate::explore::{Plan, PlanOptions};
    use crate::measure::MeasureConfig;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    fn plan_line(environment: &serde_json::Value) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let environment: EnvironmentReport = serde_json::from_value(environment.clone())?;
        let plan = Plan::new(MeasureConfig::default(), &["width=64"], &PlanOptions::default())?;
        let mut line = serde_json::to_vec(&PlanRecord::new(plan, environment))?;
        line.push(b'\n');
        Ok(line)
    }

    #[test]
    fn a_file_that_changes_between_the_readings_is_refused() -> Outcome {
        let text = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/mesures/h200-golden.json"))?;
        let kept: serde_json::Value = serde_json::from_slice(&text)?;
        let environment = &kept["measurements"][0]["environment"];
        let line = plan_line(environment)?;
        let folder = tempfile::tempdir()?;
        let files = [folder.path().join("a.jsonl")];
        let place_of = |contents: &[u8]| {
            fs::write(&files[0], contents)?;
            let mut reading = Reading::of(&files);
            reading.read(0, &files[0])?;
            let place = reading.lines[0].place;
            Ok::<_, Box<dyn std::error::Error>>((reading.copies, place))
        };
        let same = |copies: &mut Copies<'_>, place: &Place| copies.of(place).map_err(|error| error.to_string());

        let (mut copies, place) = place_of(&line)?;
        assert_eq!(same(&mut copies, &place).as_ref(), Ok(&line));
        // What is added after the reading is no change of what was read.
        fs::write(&files[0], [line.as_slice(), b"more"].concat())?;
        assert_eq!(same(&mut copies, &place).as_ref(), Ok(&line));
        let mut other = line.clone();
        other[line.len() / 2] ^= 1;
        for changed in [other.as_slice(), &line[..line.len() - 1], &[b" ", line.as_slice()].concat(), b""] {
            let (mut copies, place) = place_of(&line)?;
            fs::write(&files[0], changed)?;
            let refused = same(&mut copies, &place);
            assert!(refused.is_err_and(|said| said.contains("la ligne 1 a changé pendant la lecture")));
        }
        let (mut copies, place) = place_of(&line)?;
        fs::remove_file(&files[0])?;
        assert!(matches!(copies.of(&place), Err(LabError::Unreadable { .. })));
        Ok(())
    }

    #[test]
    fn forty_bytes_are_kept_of_a_line() {
        assert!(size_of::<Line>() <= 40);
    }
}
