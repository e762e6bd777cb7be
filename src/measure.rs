//! Configuration, phase rows and [`Measurement`]; every trial runs in a fresh worker process.

#[cfg(any(feature = "csv", feature = "explore"))]
mod check;
mod device_time;
mod progress;

use std::fmt;
use std::str::FromStr;

use chrono::{SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

use crate::arguments::{MAX_SEED, parse_device};
use crate::environment::EnvironmentReport;
use crate::error::{LabError, shortened};
use crate::json;
use crate::protocol::Request;
use crate::simulation::Simulation;
use crate::worker::{Answer, OnRow, Recorded, WorkerProgram};

#[cfg(any(feature = "csv", feature = "explore"))]
pub(crate) use check::check;
pub(crate) use device_time::check_device_passes;
pub use device_time::{DeviceSeconds, DeviceTime, MAX_DEVICE_PASSES};

/// What is measured: `Linear(width, width) -> GELU -> Linear(width, width)` on inputs of shape
/// `[batch, context, width]`. The defaults are the original's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MeasureConfig {
    /// The one chosen GPU: `cuda:0`, `cuda:1`, …
    pub device: String,
    /// First dimension of the inputs, at least 1.
    pub batch: u64,
    /// Second dimension of the inputs, at least 1. No attention and no KV cache are involved.
    pub context: u64,
    /// Third dimension of the inputs and both dimensions of the weights, at least 1.
    pub width: u64,
    /// Number type of weights and inputs.
    pub dtype: Dtype,
    /// Passes of the warm-up phase, at least 1.
    pub warmup: u64,
    /// Timed passes after the warm-up, one row each, at least 1.
    pub repeats: u64,
    /// Seed of weights and inputs, from 0 to 2^63 - 1.
    pub seed: u64,
}

impl Default for MeasureConfig {
    fn default() -> Self {
        Self {
            device: "cuda:0".to_owned(),
            batch: 2,
            context: 128,
            width: 1024,
            dtype: Dtype::Float32,
            warmup: 3,
            repeats: 5,
            seed: 1729,
        }
    }
}

impl MeasureConfig {
    /// Checks every value and returns the index of the chosen GPU.
    ///
    /// # Errors
    /// [`LabError::InvalidArgument`] naming the first field that is not accepted.
    pub fn check(&self) -> Result<u32, LabError> {
        let index = parse_device("device", &self.device)?;
        let counts = [
            ("batch", self.batch),
            ("context", self.context),
            ("width", self.width),
            ("warmup", self.warmup),
            ("repeats", self.repeats),
        ];
        for (name, value) in counts {
            if value == 0 {
                return Err(LabError::invalid(name, "0", "un entier strictement positif"));
            }
        }
        if self.seed > MAX_SEED {
            return Err(LabError::invalid("seed", &self.seed.to_string(), format!("un entier de 0 à {MAX_SEED}")));
        }
        // libtorch counts bytes in signed 64 bits; beyond that its own arithmetic would wrap.
        let countable = |factors: &[u64]| {
            let bytes = factors.iter().try_fold(4u64, |product, factor| product.checked_mul(*factor));
            bytes.is_some_and(|bytes| i64::try_from(bytes).is_ok())
        };
        if !countable(&[2, self.width, self.width.saturating_add(1)]) {
            return Err(LabError::invalid(
                "width",
                &self.width.to_string(),
                "une largeur dont les poids tiennent en moins de 2^63 octets",
            ));
        }
        if !countable(&[self.batch, self.context, self.width]) {
            let found = format!("{} x {} x {}", self.batch, self.context, self.width);
            return Err(LabError::invalid("batch x context x width", &found, "des entrées de moins de 2^63 octets"));
        }
        Ok(index)
    }
}

/// Number type of weights and inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// IEEE single precision, 4 bytes.
    Float32,
    /// IEEE half precision, 2 bytes.
    Float16,
    /// Brain floating point, 2 bytes.
    Bfloat16,
}

impl Dtype {
    /// Bytes of one number.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Float32 => 4,
            Self::Float16 | Self::Bfloat16 => 2,
        }
    }

    /// Name as PyTorch writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
        }
    }
}

impl FromStr for Dtype {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        [Self::Float32, Self::Float16, Self::Bfloat16]
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| LabError::invalid("dtype", text, "float32, float16 ou bfloat16"))
    }
}

/// Counters of PyTorch's allocator around one phase, in bytes, and its time.
///
/// Peaks are absolute and counted from a reset at the start of the phase. `allocated` is part of
/// `reserved`: the two are never added, and their peaks may come from different instants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseRow {
    /// `model_load`, `inputs`, `cold_forward`, `warmup` or `warm_forward`.
    pub phase: String,
    /// 0, or the number of the repetition from 1 on.
    pub run_index: u64,
    /// The operation and its synchronisation, in seconds, on the host's monotonic clock.
    pub elapsed_seconds: f64,
    /// Allocated before the phase.
    pub baseline_allocated_bytes: u64,
    /// Reserved before the phase.
    pub baseline_reserved_bytes: u64,
    /// Allocated after the phase, its result still alive.
    pub end_allocated_bytes: u64,
    /// Reserved after the phase.
    pub end_reserved_bytes: u64,
    /// Maximum of allocated during the phase.
    pub peak_allocated_bytes: u64,
    /// Maximum of reserved during the phase.
    pub peak_reserved_bytes: u64,
    /// Passes of the warm-up; absent elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u64>,
}

/// What a measurement adds to its phases, after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extras {
    /// Whether to digest weights, inputs and the last output.
    pub digest: bool,
    /// Passes for the device's own time, from 1 to [`MAX_DEVICE_PASSES`]; none leaves it out.
    pub device_passes: Option<u64>,
}

/// The model that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyntheticModel {
    /// Its layers.
    pub definition: String,
    /// Number of parameters.
    pub parameter_count: u64,
    /// Bytes of its parameters in the chosen number type.
    pub parameter_bytes: u64,
}

impl SyntheticModel {
    /// The only model that is measured and simulated. `config` has been checked, so that its sizes can be counted.
    pub(crate) fn of(config: &MeasureConfig) -> Self {
        let parameter_count = 2 * config.width * (config.width + 1);
        Self {
            definition: "Linear(width,width), GELU, Linear(width,width)".to_owned(),
            parameter_count,
            parameter_bytes: parameter_count * config.dtype.bytes(),
        }
    }
}

/// SHA-256 of tensors' raw bytes (contiguous, little endian), in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digests {
    /// First weight matrix, on the GPU.
    pub w0: String,
    /// Second weight matrix, on the GPU.
    pub w2: String,
    /// Inputs.
    pub inputs: String,
    /// Output of the last warm forward.
    pub output: String,
}

/// One measured trial. `Display` prints it as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// 1.
    pub schema_version: u32,
    /// `iteragpu-lab-v1`.
    pub artifact: String,
    /// Always `allocator_measurement`: neither calculated nor simulated.
    pub kind: String,
    /// End of the measurement, UTC, RFC 3339 with microseconds.
    pub measured_at_utc: String,
    /// The environment that was measured in.
    pub environment: EnvironmentReport,
    /// What was asked for.
    pub configuration: RecordedConfiguration,
    /// The model that ran.
    pub synthetic_model: SyntheticModel,
    /// What the counters cover, in French.
    pub scope: String,
    /// How to read them, in French.
    pub interpretation: String,
    /// One row a phase, in the order in which they ran.
    pub phases: Vec<PhaseRow>,
    /// Digests of the tensors, when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digests_sha256: Option<Digests>,
    /// The device's own time of a pass, when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_time: Option<DeviceTime>,
    /// What was simulated for the same configuration, when asked for; it is no part of what was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulation: Option<Simulation>,
}

/// A configuration together with the settings that this project fixes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedConfiguration {
    /// What the caller chose.
    #[serde(flatten)]
    pub chosen: MeasureConfig,
    /// Always `highest`: float32 products are not shortened to TF32.
    pub float32_matmul_precision: String,
    /// Always false.
    pub autocast: bool,
    /// Always false.
    pub training: bool,
}

const SCOPE: &str = "Compteurs de l'allocateur PyTorch d'un seul processus, sur le seul GPU choisi. \
     Non compris : le reste de la mémoire de la machine, les autres processus, les allocations extérieures à PyTorch, le CPU. \
     cold_forward est le premier passage une fois le GPU et le modèle initialisés. \
     Le petit réseau synthétique ne mesure ni un LLM, ni un entraînement, ni une qualité métier.";
const INTERPRETATION: &str = "allocated est contenu dans reserved : ne les additionnez pas. \
     Les deux maxima peuvent dater d'instants différents : ne soustrayez pas un pic de l'autre. \
     Baselines, fins et pics sont des valeurs absolues, le cache de l'allocateur étant conservé d'une phase à l'autre. \
     Ce qui reste alloué après cold_forward comprend l'espace de travail de cuBLAS, conservé à dessein : ce n'est pas une fuite. \
     Aucun de ces compteurs n'est censé égaler ce qu'affiche l'outil du fournisseur.";

/// Measures `config` in a fresh worker process on the one chosen GPU.
///
/// # Errors
/// [`LabError::InvalidArgument`] for a configuration that is not accepted; otherwise the reason
/// why nothing was measured. There is no fall-back to a CPU, and no partial result.
///
/// # Examples
/// ```no_run
/// use iteragpu_lab::{MeasureConfig, measure};
///
/// let config = MeasureConfig { batch: 1, context: 16, width: 64, ..MeasureConfig::default() };
/// let measurement = measure(&config)?;
/// println!("{measurement}");
/// # Ok::<(), iteragpu_lab::LabError>(())
/// ```
pub fn measure(config: &MeasureConfig) -> Result<Measurement, LabError> {
    config.check()?;
    measure_with(&WorkerProgram::locate()?, config, Extras::default(), &mut |_| ())
}

/// The same, telling in French from time to time how far it is: after two seconds, then whenever the
/// time has doubled, so that hours take a few lines. `tell` is called from another thread.
///
/// # Errors
/// As [`measure`].
///
/// # Examples
/// ```no_run
/// use iteragpu_lab::{MeasureConfig, measure_with_progress};
///
/// let config = MeasureConfig { repeats: 100_000, ..MeasureConfig::default() };
/// let measurement = measure_with_progress(&config, |line| println!("{line}"));
/// ```
pub fn measure_with_progress(config: &MeasureConfig, tell: impl FnMut(&str) + Send) -> Result<Measurement, LabError> {
    config.check()?;
    let worker = WorkerProgram::locate()?;
    progress::told(config, tell, |on_phase| measure_with(&worker, config, Extras::default(), on_phase))
}

/// The same with a chosen worker, the extras asked for, and a function that is told of each row as it
/// arrives.
///
/// # Errors
/// As [`measure`]; [`LabError::InvalidArgument`] also for extras that are not accepted.
pub fn measure_with(
    worker: &WorkerProgram,
    config: &MeasureConfig,
    extras: Extras,
    on_phase: &mut dyn FnMut(&PhaseRow),
) -> Result<Measurement, LabError> {
    measure_by(|request, on_row| worker.ask(request, on_row), config, extras, on_phase)
}

/// The same from what a worker once wrote.
///
/// # Errors
/// As [`measure`].
#[doc(hidden)]
pub fn measure_recorded(
    mut worker: Recorded<impl std::io::Read>,
    config: &MeasureConfig,
    extras: Extras,
    on_phase: &mut dyn FnMut(&PhaseRow),
) -> Result<Measurement, LabError> {
    measure_by(|request, on_row| worker.ask(request, on_row), config, extras, on_phase)
}

fn measure_by(
    ask: impl FnOnce(&Request, OnRow<'_>) -> Result<Answer, LabError>,
    config: &MeasureConfig,
    extras: Extras,
    on_phase: &mut dyn FnMut(&PhaseRow),
) -> Result<Measurement, LabError> {
    let device_index = config.check()?;
    check_device_passes(extras.device_passes)?;
    let request = Request::Measure { device_index, configuration: config.clone(), extras };
    let mut phases = Vec::new();
    let answer = ask(&request, &mut |row| {
        check_row(config, phases.len() as u64, &row)?;
        on_phase(&row);
        phases.push(row);
        Ok(())
    })?;
    let Answer::Measured { environment, synthetic_model, digests_sha256, device_time } = answer else {
        return Err(LabError::not_the_protocol("un environnement au lieu d'une mesure"));
    };
    if !is_complete(config, &phases) {
        return Err(LabError::not_the_protocol(&format!("une mesure finie après {} phases", phases.len())));
    }
    let is_consistent = environment.is_consistent();
    let environment = EnvironmentReport::of_worker(&config.device, environment);
    if !is_consistent
        || !environment.selected_device_available
        || synthetic_model != SyntheticModel::of(config)
        || digests_sha256.is_some() != extras.digest
        || !device_time::answers(extras.device_passes, device_time.as_deref())
    {
        return Err(LabError::not_the_protocol("une mesure qui contredit sa demande"));
    }
    Ok(Measurement {
        schema_version: 1,
        artifact: "iteragpu-lab-v1".to_owned(),
        kind: "allocator_measurement".to_owned(),
        measured_at_utc: now(),
        environment,
        configuration: RecordedConfiguration {
            chosen: config.clone(),
            float32_matmul_precision: "highest".to_owned(),
            autocast: false,
            training: false,
        },
        synthetic_model,
        scope: SCOPE.to_owned(),
        interpretation: INTERPRETATION.to_owned(),
        phases,
        digests_sha256,
        device_time: device_time.map(|observed| DeviceTime::of(*observed)),
        simulation: None,
    })
}

/// UTC, RFC 3339 with microseconds.
pub(crate) fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Micros, false)
}

/// The phases in the order in which they run; the last one once for each repetition.
pub(crate) const PHASES: [&str; 5] = ["model_load", "inputs", "cold_forward", "warmup", "warm_forward"];

/// The last of them.
pub(crate) const WARM_FORWARD: &str = PHASES[PHASES.len() - 1];

/// Phase, number and passes of the row at `position`; none beyond the last repetition.
fn expected_row(config: &MeasureConfig, position: u64) -> Option<(&'static str, u64, Option<u64>)> {
    match position {
        0..3 => Some((PHASES[position as usize], 0, None)),
        3 => Some((PHASES[3], 0, Some(config.warmup))),
        _ => Some((PHASES[4], position - 3, None)).filter(|(_, run, _)| *run <= config.repeats),
    }
}

/// Whether all phases are there, once and in order.
pub(crate) fn is_complete(config: &MeasureConfig, phases: &[PhaseRow]) -> bool {
    let mut expected = (0..).map_while(|position| expected_row(config, position));
    let same = |row: &PhaseRow| expected.next() == Some((row.phase.as_str(), row.run_index, row.iterations));
    phases.len() as u64 == config.repeats.saturating_add(4) && phases.iter().all(same)
}

/// A row out of place, or one that contradicts itself, is not a result.
fn check_row(config: &MeasureConfig, position: u64, row: &PhaseRow) -> Result<(), LabError> {
    let placed = expected_row(config, position) == Some((row.phase.as_str(), row.run_index, row.iterations));
    if placed && row.is_consistent() {
        return Ok(());
    }
    let found = format!("une phase inattendue ou contradictoire, {} {}", row.phase, row.run_index);
    Err(LabError::not_the_protocol(&shortened(&found, 120)))
}

impl PhaseRow {
    /// The six, in the order of the fields.
    pub(crate) fn counters(&self) -> [u64; 6] {
        [
            self.baseline_allocated_bytes,
            self.baseline_reserved_bytes,
            self.end_allocated_bytes,
            self.end_reserved_bytes,
            self.peak_allocated_bytes,
            self.peak_reserved_bytes,
        ]
    }

    /// Whether counters and time can be those of one phase. Zeros, as an allocator without counters
    /// gives them, cannot.
    pub(crate) fn is_consistent(&self) -> bool {
        let allocated = [self.baseline_allocated_bytes, self.end_allocated_bytes, self.peak_allocated_bytes];
        let reserved = [self.baseline_reserved_bytes, self.end_reserved_bytes, self.peak_reserved_bytes];
        allocated.iter().zip(&reserved).all(|(allocated, reserved)| allocated <= reserved)
            && [allocated, reserved].iter().all(|[baseline, end, peak]| peak >= baseline && peak >= end)
            && self.end_allocated_bytes > 0
            && self.elapsed_seconds.is_finite()
            && self.elapsed_seconds.is_sign_positive()
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", json::Pretty(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut MeasureConfig);

    fn with(change: impl FnOnce(&mut MeasureConfig)) -> Result<u32, LabError> {
        let mut config = MeasureConfig::default();
        change(&mut config);
        config.check()
    }

    #[test]
    fn configurations_are_checked_by_name() {
        assert!(with(|_| ()).is_ok());
        let refused: [(&str, Change); 8] = [
            ("device", |config| config.device = "cuda:00".to_owned()),
            ("batch", |config| config.batch = 0),
            ("context", |config| config.context = 0),
            ("width", |config| config.width = 0),
            ("warmup", |config| config.warmup = 0),
            ("repeats", |config| config.repeats = 0),
            ("seed", |config| config.seed = 1 << 63),
            ("width", |config| config.width = u64::MAX - 1),
        ];
        for (name, change) in refused {
            let message = with(change).map_err(|error| error.to_string());
            assert!(message.as_ref().is_err_and(|text| text.starts_with(name)), "{name}: {message:?}");
        }
        assert!(with(|config| config.batch = u64::MAX).is_err());
    }

    #[test]
    fn the_configuration_is_recorded_flat_in_the_originals_order() -> Result<(), serde_json::Error> {
        let recorded = RecordedConfiguration {
            chosen: MeasureConfig::default(),
            float32_matmul_precision: "highest".to_owned(),
            autocast: false,
            training: false,
        };
        assert_eq!(
            serde_json::to_string(&recorded)?,
            r#"{"device":"cuda:0","batch":2,"context":128,"width":1024,"dtype":"float32","warmup":3,"repeats":5,"seed":1729,"float32_matmul_precision":"highest","autocast":false,"training":false}"#
        );
        Ok(())
    }
}
