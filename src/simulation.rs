//! The allocator's counters before the run: a simulation, kept apart from what is calculated and from
//! what is measured.

mod allocator;
mod compare;
mod layers;
mod profile;

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use allocator::{BlockId, CachingAllocator, Counters};
pub use compare::{Comparison, RowComparison, compare_outcome, compare_with_simulation, simulation_of};
pub use profile::{AllocatorProfile, Evidence};

use self::layers::{Event, Program, Purpose, synthetic_model};
use crate::error::LabError;
use crate::json;
use crate::measure::{MeasureConfig, PHASES, SyntheticModel};

/// Rows for more repetitions than that would not be read by anybody.
const MAX_REPEATS: u64 = 1_000_000;

/// What the allocator would count. `Display` prints it as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Simulation {
    /// Always `allocator_simulation`: neither calculated weights alone nor measured.
    pub kind: String,
    /// Version of PyTorch whose rules are simulated.
    pub simulated_torch_version: String,
    /// What depends on the GPU, and how it is known.
    pub profile: AllocatorProfile,
    /// What was asked for.
    pub configuration: MeasureConfig,
    /// The model whose memory is simulated.
    pub synthetic_model: SyntheticModel,
    /// One row a phase, as in a measurement, without times.
    pub phases: Vec<SimulatedRow>,
    /// What fills the reserved memory at the moment when most is allocated.
    pub breakdown: Breakdown,
    /// Whether a given memory would hold it, when one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<GpuMemory>,
    /// Every allocation and release that was simulated one by one; what repeats is left out.
    pub timeline: Vec<TimelinePoint>,
    /// What the figures cover, in French.
    pub scope: String,
}

/// Simulated counters around one phase, in bytes; the keys are those of a measured row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimulatedRow {
    /// `model_load`, `inputs`, `cold_forward`, `warmup` or `warm_forward`.
    pub phase: String,
    /// 0, or the number of the repetition from 1 on.
    pub run_index: u64,
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

impl SimulatedRow {
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
}

/// Parts of the reserved memory in bytes; the first six add up to the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breakdown {
    /// Weights and biases.
    pub parameters_bytes: u64,
    /// Inputs of the model.
    pub inputs_bytes: u64,
    /// Outputs of layers that are alive at that moment.
    pub activations_bytes: u64,
    /// What cuBLAS and cuBLASLt keep.
    pub library_workspace_bytes: u64,
    /// Rounding of sizes, and rests of blocks too small to be split off.
    pub rounding_bytes: u64,
    /// Free rest of the segments.
    pub unused_segment_bytes: u64,
    /// Their sum: reserved at that moment.
    pub reserved_bytes: u64,
}

/// Simulated reserved memory beside a memory that somebody has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuMemory {
    /// The memory that was given.
    pub given_bytes: u64,
    /// The largest simulated reserve.
    pub peak_reserved_bytes: u64,
    /// Whether the reserve exceeds the memory.
    pub exceeded: bool,
    /// By how much; 0 when it does not.
    pub missing_bytes: u64,
    /// What this does not say, in French.
    pub scope: String,
}

/// The counters after one allocation or release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// Phase in which it happens; what is freed between two phases belongs to the earlier one.
    pub phase: String,
    /// `allocate` or `free`.
    pub event: String,
    /// What is allocated or freed, in French.
    pub name: String,
    /// Bytes asked for.
    pub bytes: u64,
    /// Allocated afterwards.
    pub allocated_bytes: u64,
    /// Reserved afterwards.
    pub reserved_bytes: u64,
}

const SCOPE: &str = "Simulation de l'allocateur avec cache de PyTorch 2.11 aux réglages par défaut, pour un seul processus et un seul flux. \
     Rien n'a été mesuré. Non compris : le contexte CUDA et tout ce qui n'est pas alloué par PyTorch, les autres processus, la fragmentation d'un long programme. \
     Le petit réseau synthétique ne dit pas si un vrai modèle tient sur un GPU.";
const MEMORY_SCOPE: &str = "Cette ligne compare la réserve simulée à la mémoire donnée, rien d'autre : le contexte CUDA (plusieurs centaines de Mio) et les autres processus n'y sont pas. \
     Quand la mémoire manque, PyTorch rend d'abord ses segments inutilisés, ce qui n'est pas simulé.";

/// Simulates what PyTorch's allocator would count for `config`; no GPU is needed.
///
/// # Errors
/// [`LabError::InvalidArgument`] for a configuration that a measurement would refuse, or for more
/// than a million repetitions.
///
/// # Examples
/// ```
/// use iteragpu_lab::simulation::{AllocatorProfile, simulate};
/// use iteragpu_lab::MeasureConfig;
///
/// let config = MeasureConfig { batch: 1, context: 16, width: 64, ..MeasureConfig::default() };
/// let simulation = simulate(&config, &AllocatorProfile::hopper())?;
/// // As measured on an H200: docs/mesures/h200-golden.json.
/// assert_eq!(simulation.phases[2].peak_allocated_bytes, 34_649_088);
/// # Ok::<(), iteragpu_lab::LabError>(())
/// ```
pub fn simulate(config: &MeasureConfig, profile: &AllocatorProfile) -> Result<Simulation, LabError> {
    config.check()?;
    if config.repeats > MAX_REPEATS {
        let expected = format!("un entier de 1 à {MAX_REPEATS} pour une simulation");
        return Err(LabError::invalid("repeats", &config.repeats.to_string(), expected));
    }
    let layers = synthetic_model(config.width);
    let workspaces = [profile.cublas_workspace_bytes, profile.cublaslt_workspace_bytes];
    let mut run = Run::default();
    let mut program = Program::new(&layers, config, workspaces);
    check_size(config, workspaces)?;

    let events = program.load();
    run.phase(PHASES[0], 0, None, |run| run.apply(PHASES[0], events));
    let events = program.inputs();
    run.phase(PHASES[1], 0, None, |run| run.apply(PHASES[1], events));
    let output = run.phase(PHASES[2], 0, None, |run| run.forward(PHASES[2], &mut program));
    run.free(PHASES[2], output);
    run.phase(PHASES[3], 0, Some(config.warmup), |run| run.warmup(config.warmup, &mut program));
    run.warm_forwards(config.repeats, &mut program);

    Ok(Simulation {
        kind: "allocator_simulation".to_owned(),
        simulated_torch_version: "2.11.0".to_owned(),
        profile: profile.clone(),
        configuration: config.clone(),
        synthetic_model: SyntheticModel::of(config),
        phases: run.rows,
        breakdown: run.highest,
        gpu_memory: None,
        timeline: run.timeline,
        scope: SCOPE.to_owned(),
    })
}

/// Everything that can be reserved has to be countable, roundings included.
fn check_size(config: &MeasureConfig, workspaces: [u64; 2]) -> Result<(), LabError> {
    let number = u128::from(config.dtype.bytes());
    let [batch, context, width] = [config.batch, config.context, config.width].map(u128::from);
    let tensors = (2 * width * (width + 1) + 4 * batch * context * width) * number;
    let rounding = 16 * (20 << 20);
    let total = tensors + rounding + workspaces.iter().map(|bytes| u128::from(*bytes)).sum::<u128>();
    if total < 1 << 64 {
        return Ok(());
    }
    let found = format!("{batch} x {context} x {width}");
    Err(LabError::invalid("batch x context x width", &found, "une configuration de moins de 2^64 octets en tout"))
}

impl Simulation {
    /// Adds whether `bytes` of GPU memory would hold the simulated reserve.
    pub fn beside_memory(mut self, bytes: u64) -> Self {
        let peak = self.phases.iter().map(|row| row.peak_reserved_bytes).max().unwrap_or_default();
        self.gpu_memory = Some(GpuMemory {
            given_bytes: bytes,
            peak_reserved_bytes: peak,
            exceeded: peak > bytes,
            missing_bytes: peak.saturating_sub(bytes),
            scope: MEMORY_SCOPE.to_owned(),
        });
        self
    }
}

impl fmt::Display for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", json::Pretty(self))
    }
}

/// A tensor that is alive.
struct Live {
    block: BlockId,
    purpose: Purpose,
    name: String,
    bytes: u64,
}

/// The state of a simulated process, and what is recorded of it.
#[derive(Default)]
struct Run {
    allocator: CachingAllocator,
    live: HashMap<usize, Live>,
    rows: Vec<SimulatedRow>,
    timeline: Vec<TimelinePoint>,
    highest: Breakdown,
    highest_allocated: u64,
}

impl Run {
    /// Runs one phase and records its row, as the measurement does: its result is still alive then.
    fn phase<T>(
        &mut self,
        phase: &str,
        run_index: u64,
        iterations: Option<u64>,
        operation: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.allocator.reset_peaks();
        let baseline = self.allocator.counters();
        let result = operation(self);
        let end = self.allocator.counters();
        self.rows.push(SimulatedRow {
            phase: phase.to_owned(),
            run_index,
            baseline_allocated_bytes: baseline.allocated,
            baseline_reserved_bytes: baseline.reserved,
            end_allocated_bytes: end.allocated,
            end_reserved_bytes: end.reserved,
            peak_allocated_bytes: end.peak_allocated,
            peak_reserved_bytes: end.peak_reserved,
            iterations,
        });
        result
    }

    /// One pass; returns the number of its output.
    fn forward(&mut self, phase: &str, program: &mut Program<'_>) -> usize {
        let (events, output) = program.forward();
        self.apply(phase, events);
        output
    }

    /// Passes whose outputs are freed at once, until one leaves everything as it was.
    fn warmup(&mut self, passes: u64, program: &mut Program<'_>) {
        for _ in 0..passes {
            let before = self.allocator.free_blocks();
            let output = self.forward(PHASES[3], program);
            self.free(PHASES[3], output);
            if self.allocator.free_blocks() == before {
                return;
            }
        }
    }

    /// Passes whose output lives until the next one's baseline. Once a pass starts from where the one
    /// before it started, all that follow are alike.
    fn warm_forwards(&mut self, repeats: u64, program: &mut Program<'_>) {
        let mut last_start = None;
        for run_index in 1..=repeats {
            let start = self.allocator.free_blocks();
            match self.rows.last() {
                Some(row) if last_start.as_ref() == Some(&start) => {
                    let row = row.clone();
                    let alike = (run_index..=repeats).map(|run_index| SimulatedRow { run_index, ..row.clone() });
                    self.rows.extend(alike);
                    return;
                }
                _ => {}
            }
            let output = self.phase(PHASES[4], run_index, None, |run| run.forward(PHASES[4], program));
            self.free(PHASES[4], output);
            last_start = Some(start);
        }
    }

    fn apply(&mut self, phase: &str, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Free { tensor } => self.free(phase, tensor),
                Event::Allocate { tensor, purpose, name, bytes } => {
                    let block = self.allocator.allocate(bytes);
                    self.point(phase, "allocate", &name, bytes);
                    self.live.insert(tensor, Live { block, purpose, name, bytes });
                    self.keep_highest();
                }
            }
        }
    }

    fn free(&mut self, phase: &str, tensor: usize) {
        if let Some(Live { block, name, bytes, .. }) = self.live.remove(&tensor) {
            self.allocator.free(block);
            self.point(phase, "free", &name, bytes);
        }
    }

    fn point(&mut self, phase: &str, event: &str, name: &str, bytes: u64) {
        let now = self.allocator.counters();
        self.timeline.push(TimelinePoint {
            phase: phase.to_owned(),
            event: event.to_owned(),
            name: name.to_owned(),
            bytes,
            allocated_bytes: now.allocated,
            reserved_bytes: now.reserved,
        });
    }

    /// The last of equally high moments: by then every segment is there.
    fn keep_highest(&mut self) {
        let now = self.allocator.counters();
        if now.allocated < self.highest_allocated {
            return;
        }
        let of = |purpose| self.live.values().filter(move |live| live.purpose == purpose).map(|live| live.bytes).sum();
        let requested: u64 = self.live.values().map(|live| live.bytes).sum();
        self.highest_allocated = now.allocated;
        self.highest = Breakdown {
            parameters_bytes: of(Purpose::Parameters),
            inputs_bytes: of(Purpose::Inputs),
            activations_bytes: of(Purpose::Activations),
            library_workspace_bytes: of(Purpose::LibraryWorkspace),
            rounding_bytes: now.allocated - requested,
            unused_segment_bytes: now.reserved - now.allocated,
            reserved_bytes: now.reserved,
        };
    }
}
