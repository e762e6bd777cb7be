//! What the rows of a results file say, one group for every environment, configuration and phase.
//! A million rows are read in one go: a row of the same run as the one before costs no lookup.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use chrono::DateTime;
use serde::{Deserialize, Serialize};

use super::{
    BATCH, COLUMNS, CONTEXT, COUNTERS, CUDA_BUILD_VERSION, DEVICE, DEVICE_NAME, DEVICE_TOTAL_BYTES, DRIVER_VERSION,
    DTYPE, ELAPSED_SECONDS, ITERATIONS, LAB_VERSION, MEASURED_AT_UTC, PHASE, PLATFORM, REPEATS, RUN_ID, RUN_INDEX,
    RUNTIME_SETTINGS, SEED, TCH_VERSION, TORCH_VERSION, WARMUP, WIDTH,
};
use crate::arguments::parse_device;
use crate::error::LabError;
use crate::json;
use crate::measure::{Dtype, PHASES};
use crate::spread::{Spread, landmarks};
use crate::table::{Row, Table};

/// Summarizes a results file; the file is only read.
///
/// # Errors
/// [`LabError::Unreadable`]; [`LabError::InTable`] naming line and column of the first thing that
/// is not accepted, such as a missing counter, or the same pass of the same run on two lines.
///
/// # Examples
/// ```
/// use std::path::Path;
///
/// use iteragpu_lab::summarize;
///
/// // The blank grid that this project ships.
/// let summary = summarize(Path::new("resultats-bruts.csv"))?;
/// assert_eq!((summary.rows, summary.environments.len()), (0, 0));
/// # Ok::<(), iteragpu_lab::LabError>(())
/// ```
pub fn summarize(path: &Path) -> Result<Summary, LabError> {
    let name = path.to_string_lossy();
    let file = File::open(path).map_err(|error| LabError::unreadable(&name, error))?;
    let mut table = Table::open(&name, file, COLUMNS)?;
    let mut tally = Tally::default();
    while let Some(row) = table.next_row()? {
        tally.add(&row)?;
    }
    let runs = tally.check_runs(&name)?;
    Ok(tally.summary(runs))
}

/// The figures of a results file. `Display` prints them as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Always `allocator_measurement_summary`: figures of measurements, neither calculated nor simulated.
    pub kind: String,
    /// Number of rows.
    pub rows: u64,
    /// Number of different runs.
    pub runs: u64,
    /// Whether the environments can be compared, and if not, in which columns they differ, in French.
    pub comparability: String,
    /// One entry for every environment; they are never merged.
    pub environments: Vec<EnvironmentSummary>,
    /// How the figures were obtained, in French.
    pub scope: String,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", json::Pretty(self))
    }
}

/// The runs of one environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnvironmentSummary {
    /// What the runs have in common.
    #[serde(flatten)]
    pub environment: RowEnvironment,
    /// One entry for every configuration.
    pub configurations: Vec<ConfigurationSummary>,
}

/// The runs of one configuration in one environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigurationSummary {
    /// What the runs have in common.
    #[serde(flatten)]
    pub configuration: RowConfiguration,
    /// One entry for every phase that has rows, in the order in which phases run.
    pub phases: Vec<PhaseSummary>,
}

/// The rows of one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseSummary {
    /// Name of the phase.
    pub phase: String,
    /// Number of rows.
    pub count: u64,
    /// Times in seconds.
    pub elapsed_seconds: Spread<f64>,
    /// Allocated before the phase.
    pub baseline_allocated_bytes: Spread<u64>,
    /// Reserved before the phase.
    pub baseline_reserved_bytes: Spread<u64>,
    /// Allocated after the phase.
    pub end_allocated_bytes: Spread<u64>,
    /// Reserved after the phase.
    pub end_reserved_bytes: Spread<u64>,
    /// Maximum of allocated during the phase.
    pub peak_allocated_bytes: Spread<u64>,
    /// Maximum of reserved during the phase.
    pub peak_reserved_bytes: Spread<u64>,
}

/// Columns of a row that tell where it was measured; `null` is unknown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RowEnvironment {
    /// Operating system.
    pub platform: Option<String>,
    /// Version of this library.
    pub lab_version: Option<String>,
    /// Version of the Rust binding.
    pub tch_version: Option<String>,
    /// Version of libtorch.
    pub torch_version: Option<String>,
    /// CUDA version that libtorch was built for.
    pub cuda_build_version: Option<String>,
    /// Version of the vendor's driver.
    pub driver_version: Option<String>,
    /// Name of the GPU.
    pub device_name: Option<String>,
    /// Its memory in bytes.
    pub device_total_bytes: Option<u64>,
    /// Settings of libtorch: `default`, or what differs from it.
    pub runtime_settings: Option<String>,
}

impl RowEnvironment {
    fn of(row: &Row<'_>) -> Result<Self, LabError> {
        Ok(Self {
            platform: known(row, PLATFORM)?,
            lab_version: known(row, LAB_VERSION)?,
            tch_version: known(row, TCH_VERSION)?,
            torch_version: known(row, TORCH_VERSION)?,
            cuda_build_version: known(row, CUDA_BUILD_VERSION)?,
            driver_version: known(row, DRIVER_VERSION)?,
            device_name: known(row, DEVICE_NAME)?,
            device_total_bytes: match known(row, DEVICE_TOTAL_BYTES)? {
                Some(_) => Some(row.positive(DEVICE_TOTAL_BYTES)?),
                None => None,
            },
            runtime_settings: known(row, RUNTIME_SETTINGS)?,
        })
    }

    fn cells(&self) -> [(&'static str, Option<String>); 9] {
        [
            (COLUMNS[PLATFORM], self.platform.clone()),
            (COLUMNS[LAB_VERSION], self.lab_version.clone()),
            (COLUMNS[TCH_VERSION], self.tch_version.clone()),
            (COLUMNS[TORCH_VERSION], self.torch_version.clone()),
            (COLUMNS[CUDA_BUILD_VERSION], self.cuda_build_version.clone()),
            (COLUMNS[DRIVER_VERSION], self.driver_version.clone()),
            (COLUMNS[DEVICE_NAME], self.device_name.clone()),
            (COLUMNS[DEVICE_TOTAL_BYTES], self.device_total_bytes.map(|bytes| bytes.to_string())),
            (COLUMNS[RUNTIME_SETTINGS], self.runtime_settings.clone()),
        ]
    }
}

fn known(row: &Row<'_>, column: usize) -> Result<Option<String>, LabError> {
    let text = row.text(column)?;
    let text = text.trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// Columns of a row that tell what was measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RowConfiguration {
    /// First dimension of the inputs.
    pub batch: u64,
    /// Second dimension of the inputs.
    pub context: u64,
    /// Third dimension of the inputs.
    pub width: u64,
    /// Number type of weights and inputs.
    pub dtype: Dtype,
    /// Passes of the warm-up phase.
    pub warmup: u64,
    /// Seed of weights and inputs.
    pub seed: u64,
}

impl RowConfiguration {
    fn of(row: &Row<'_>) -> Result<Self, LabError> {
        let dtype = row.text(DTYPE)?.trim().parse();
        Ok(Self {
            batch: row.positive(BATCH)?,
            context: row.positive(CONTEXT)?,
            width: row.positive(WIDTH)?,
            dtype: dtype.map_err(|_| row.refused(DTYPE, "float32, float16 ou bfloat16"))?,
            warmup: row.positive(WARMUP)?,
            seed: row.whole(SEED)?,
        })
    }

    fn cells(&self) -> [(&'static str, String); 6] {
        [
            (COLUMNS[BATCH], self.batch.to_string()),
            (COLUMNS[CONTEXT], self.context.to_string()),
            (COLUMNS[WIDTH], self.width.to_string()),
            (COLUMNS[DTYPE], self.dtype.name().to_owned()),
            (COLUMNS[WARMUP], self.warmup.to_string()),
            (COLUMNS[SEED], self.seed.to_string()),
        ]
    }
}

/// Rows read so far. What is kept of a row has one size, whatever the rows hold.
#[derive(Default)]
pub(super) struct Tally {
    passes: Vec<Pass>,
    figures: Vec<Figures>,
    environments: HashMap<RowEnvironment, u32>,
    /// The same by the bytes of the columns, which need not be read twice.
    environments_by_bytes: HashMap<Vec<u8>, u32>,
    groups: HashMap<(u32, RowConfiguration), u32>,
    /// The row before: the bytes that all rows of a run share, and what they stand for.
    last_bytes: Vec<u8>,
    last_run: Option<Run>,
    bytes: Vec<u8>,
    keys: [RandomState; 2],
}

#[derive(Clone, Copy)]
struct Run {
    /// 128 bits of a keyed hash of `run_id`: two runs are never confused, and a million fit in memory.
    fingerprint: [u64; 2],
    group: u32,
}

/// What a row must not contradict in other rows. Sorted by run, then as in the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pass {
    run: [u64; 2],
    line: u32,
    place: Place,
    run_index: u64,
}

/// Group and phase.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place(u32);

impl Place {
    fn of(group: u32, phase: usize) -> Self {
        Self(group * PHASES.len() as u32 + phase as u32)
    }

    fn group(self) -> u32 {
        self.0 / PHASES.len() as u32
    }

    fn phase(self) -> &'static str {
        PHASES[self.0 as usize % PHASES.len()]
    }
}

/// The figures of one row.
struct Figures {
    place: Place,
    elapsed: f64,
    counters: [u64; 6],
}

impl Tally {
    /// Checks a row and counts it in.
    pub fn add(&mut self, row: &Row<'_>) -> Result<(), LabError> {
        if super::units::is_all_of(row) {
            // Work that was not measured here: there is nothing to summarise.
            return super::units::check(row);
        }
        let run = self.run_of(row)?;
        let (phase, run_index) = phase_of(row)?;
        let place = Place::of(run.group, phase);
        let mut figures = Figures { place, elapsed: row.decimal(ELAPSED_SECONDS)?, counters: [0; 6] };
        for (counter, column) in figures.counters.iter_mut().zip(COUNTERS) {
            *counter = row.whole(column)?;
        }
        // More lines than 32 bits count do not fit in memory.
        self.passes.push(Pass { run: run.fingerprint, line: row.line() as u32, place, run_index });
        self.figures.push(figures);
        Ok(())
    }

    fn run_of(&mut self, row: &Row<'_>) -> Result<Run, LabError> {
        join(row, RUN_ID..PHASE, &mut self.bytes);
        if let Some(run) = self.last_run.filter(|_| self.bytes == self.last_bytes) {
            return Ok(run);
        }
        let id = row.filled(RUN_ID)?;
        if DateTime::parse_from_rfc3339(row.text(MEASURED_AT_UTC)?.trim()).is_err() {
            return Err(row.refused(MEASURED_AT_UTC, "une date comme 2026-11-30T18:08:38.707151+00:00"));
        }
        if parse_device("device", row.text(DEVICE)?.trim()).is_err() {
            return Err(row.refused(DEVICE, "un seul GPU, écrit cuda:0, cuda:1, etc."));
        }
        row.positive(REPEATS)?;
        std::mem::swap(&mut self.bytes, &mut self.last_bytes);
        let fingerprint = self.keys.each_ref().map(|key| key.hash_one(&id));
        let run = Run { fingerprint, group: self.group_of(row)? };
        self.last_run = Some(run);
        Ok(run)
    }

    fn group_of(&mut self, row: &Row<'_>) -> Result<u32, LabError> {
        let key = (self.environment_of(row)?, RowConfiguration::of(row)?);
        let next = self.groups.len() as u32;
        Ok(*self.groups.entry(key).or_insert(next))
    }

    fn environment_of(&mut self, row: &Row<'_>) -> Result<u32, LabError> {
        join(row, (PLATFORM..DEVICE).chain(DEVICE_NAME..BATCH), &mut self.bytes);
        if let Some(environment) = self.environments_by_bytes.get(&self.bytes) {
            return Ok(*environment);
        }
        let next = self.environments.len() as u32;
        let environment = *self.environments.entry(RowEnvironment::of(row)?).or_insert(next);
        self.environments_by_bytes.insert(self.bytes.clone(), environment);
        Ok(environment)
    }

    /// Checks rows against each other, and returns the number of runs: a run has one environment and
    /// one configuration, and a pass with two rows would count twice.
    pub fn check_runs(&mut self, name: &str) -> Result<u64, LabError> {
        self.passes.sort_unstable();
        let mut runs = 0;
        let each_run = self.passes.chunk_by_mut(|one, other| one.run == other.run).inspect(|_| runs += 1);
        match each_run.filter_map(conflict).min_by_key(|(_, later)| later.line) {
            Some((earlier, later)) => Err(self.refused(name, &earlier, &later)),
            None => Ok(runs),
        }
    }

    fn refused(&self, name: &str, earlier: &Pass, later: &Pass) -> LabError {
        let (line, before) = (u64::from(later.line), earlier.line);
        if earlier.place == later.place {
            let found = format!("{} {}", later.place.phase(), later.run_index);
            let expected = format!("une seule ligne par passage d'un essai ; la ligne {before} a déjà celui-ci");
            return LabError::in_table(name, line, COLUMNS[RUN_INDEX], &found, expected);
        }
        let (here, there) = (self.cells_of(later.place.group()), self.cells_of(earlier.place.group()));
        let differing = here.into_iter().zip(there).find(|((_, here), (_, there))| here != there);
        let ((column, found), (_, there)) = differing.unwrap_or_default();
        let expected = format!(
            "« {there} », comme à la ligne {before} : un essai n'a qu'un environnement et qu'une configuration"
        );
        LabError::in_table(name, line, column, &found, expected)
    }

    /// Columns and cells of a group.
    fn cells_of(&self, group: u32) -> Vec<(&'static str, String)> {
        let key = self.groups.iter().find(|(_, number)| **number == group).map(|(key, _)| key);
        let Some((environment, configuration)) = key else { return Vec::new() };
        let environment = self.environments.iter().find(|(_, number)| *number == environment);
        let environment = environment.map(|(environment, _)| environment.cells());
        let environment = environment.into_iter().flatten().map(|(name, cell)| (name, cell.unwrap_or_default()));
        environment.chain(configuration.cells()).collect()
    }

    fn summary(mut self, runs: u64) -> Summary {
        // A million passes need not stay in memory any longer.
        self.passes = Vec::new();
        self.figures.sort_unstable_by_key(|figures| figures.place);
        let mut phases: HashMap<u32, Vec<PhaseSummary>> = HashMap::new();
        for figures in self.figures.chunk_by(|one, other| one.place == other.place) {
            phases.entry(figures[0].place.group()).or_default().extend(phase_summary(figures));
        }
        let mut environments: Vec<(RowEnvironment, u32)> = self.environments.into_iter().collect();
        environments.sort_unstable();
        let mut groups: Vec<((u32, RowConfiguration), u32)> = self.groups.into_iter().collect();
        groups.sort_unstable();
        let mut configurations: HashMap<u32, Vec<ConfigurationSummary>> = HashMap::new();
        for ((environment, configuration), group) in groups {
            let phases = phases.remove(&group).unwrap_or_default();
            configurations.entry(environment).or_default().push(ConfigurationSummary { configuration, phases });
        }
        let environments: Vec<EnvironmentSummary> = environments
            .into_iter()
            .map(|(environment, number)| {
                let configurations = configurations.remove(&number).unwrap_or_default();
                EnvironmentSummary { environment, configurations }
            })
            .collect();
        Summary {
            kind: "allocator_measurement_summary".to_owned(),
            rows: self.figures.len() as u64,
            runs,
            comparability: comparability(&environments),
            environments,
            scope: SCOPE.to_owned(),
        }
    }
}

/// Two rows of one run that contradict each other, the earlier one first.
fn conflict(run: &mut [Pass]) -> Option<(Pass, Pass)> {
    if let Some(other) = run.iter().position(|pass| pass.place.group() != run[0].place.group()) {
        return Some((run[0], run[other]));
    }
    run.sort_unstable_by_key(|pass| (pass.place, pass.run_index, pass.line));
    let same = |pair: &&[Pass]| (pair[0].place, pair[0].run_index) == (pair[1].place, pair[1].run_index);
    run.windows(2).filter(same).min_by_key(|pair| pair[1].line).map(|pair| (pair[0], pair[1]))
}

/// The bytes of some columns, each with its length in front, so that no two rows look alike.
fn join(row: &Row<'_>, columns: impl Iterator<Item = usize>, bytes: &mut Vec<u8>) {
    bytes.clear();
    for column in columns {
        let cell = row.bytes(column);
        bytes.extend_from_slice(&cell.len().to_le_bytes());
        bytes.extend_from_slice(cell);
    }
}

/// The phase, as its place in the order of phases, and the number of the repetition.
fn phase_of(row: &Row<'_>) -> Result<(usize, u64), LabError> {
    let name = row.bytes(PHASE).trim_ascii();
    let phase = PHASES.iter().position(|phase| phase.as_bytes() == name);
    let phase = phase.ok_or_else(|| row.refused(PHASE, &format!("une phase parmi {}", PHASES.join(", "))))?;
    let run_index = row.whole(RUN_INDEX)?;
    let is_repeated = phase == PHASES.len() - 1;
    if is_repeated != (run_index > 0) {
        return Err(row.refused(RUN_INDEX, "le numéro de la répétition, à partir de 1, pour warm_forward ; sinon 0"));
    }
    if !row.bytes(ITERATIONS).trim_ascii().is_empty() {
        row.positive(ITERATIONS)?;
    }
    Ok((phase, run_index))
}

/// Summarizes the rows of one phase in one group.
fn phase_summary(rows: &[Figures]) -> Option<PhaseSummary> {
    let counter = |place: usize| spread_of_counts(&mut rows.iter().map(|row| row.counters[place]).collect::<Vec<_>>());
    Some(PhaseSummary {
        phase: rows.first()?.place.phase().to_owned(),
        count: rows.len() as u64,
        elapsed_seconds: Spread::of_times(&mut rows.iter().map(|row| row.elapsed).collect::<Vec<_>>())?,
        baseline_allocated_bytes: counter(0)?,
        baseline_reserved_bytes: counter(1)?,
        end_allocated_bytes: counter(2)?,
        end_reserved_bytes: counter(3)?,
        peak_allocated_bytes: counter(4)?,
        peak_reserved_bytes: counter(5)?,
    })
}

fn spread_of_counts(counts: &mut [u64]) -> Option<Spread<u64>> {
    let (min, lower, upper, max) = landmarks(counts, u64::cmp)?;
    let is_whole = (upper - lower) % 2 == 0;
    Some(Spread { min, median: if is_whole { lower.midpoint(upper) } else { lower }, max })
}

const SCOPE: &str = "Chiffres des lignes du fichier, qui n'est pas modifié. Un groupe par environnement, configuration et phase ; \
     device (le numéro du GPU) n'en fait pas partie. \
     median : la valeur du milieu ; pour un nombre pair de lignes, la moyenne des deux valeurs du milieu. \
     Quand cette moyenne d'octets n'est pas un entier, la plus petite des deux valeurs du milieu est donnée. \
     warmup : elapsed_seconds couvre tous les passages de l'échauffement (colonne warmup). \
     allocated est contenu dans reserved : ne les additionnez pas.";

fn comparability(environments: &[EnvironmentSummary]) -> String {
    let mut values: BTreeMap<usize, BTreeSet<Option<String>>> = BTreeMap::new();
    for summary in environments {
        for (place, (_, cell)) in summary.environment.cells().into_iter().enumerate() {
            values.entry(place).or_default().insert(cell);
        }
    }
    let names = environments.first().map(|summary| summary.environment.cells().map(|(name, _)| name));
    let listed = |chosen: &dyn Fn(&BTreeSet<Option<String>>) -> bool| {
        let places = values.iter().filter(|(_, cells)| chosen(cells)).map(|(place, _)| *place);
        places.filter_map(|place| names.map(|names| names[place])).collect::<Vec<_>>().join(", ")
    };
    let verdict = match environments.len() {
        0 => "Aucune ligne : il n'y a rien à comparer.".to_owned(),
        1 => "Un seul environnement : ses essais se comparent, à configuration et phase égales.".to_owned(),
        count => format!(
            "{count} environnements, gardés à part : leurs chiffres ne sont pas comparables. Colonnes qui diffèrent : {}.",
            listed(&|cells| cells.len() > 1)
        ),
    };
    let unknown = listed(&|cells| cells.contains(&None));
    if unknown.is_empty() {
        return verdict;
    }
    format!(
        "{verdict} Colonnes vides par endroits : {unknown} ; des essais qui ne diffèrent que par là sont confondus."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_counts_are_exact_or_the_lower_middle() {
        let spread = |values: &[u64]| {
            spread_of_counts(&mut values.to_vec()).map(|spread| (spread.min, spread.median, spread.max))
        };
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[5]), Some((5, 5, 5)));
        assert_eq!(spread(&[5, 1, 3]), Some((1, 3, 5)));
        assert_eq!(spread(&[2, 4]), Some((2, 3, 4)));
        assert_eq!(spread(&[2, 5]), Some((2, 2, 5)));
        assert_eq!(spread(&[7, 7, 7, 9]), Some((7, 7, 9)));
        assert_eq!(spread(&[u64::MAX, u64::MAX - 2]), Some((u64::MAX - 2, u64::MAX - 1, u64::MAX)));
    }
}
