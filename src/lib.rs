//! Honest numbers before a GPU is rented: how many bytes a model's weights take, what a GPU
//! environment really is, what PyTorch's allocator counts on one chosen GPU, and what a fixed-term
//! rental costs.
//!
//! The modules stand in the order of the data's way:
//!
//! 1. [`arguments`]: text that people enter, turned into checked values;
//! 2. [`estimate`]: parameters and bits to exact bytes and exact GiB, without a GPU;
//! 3. [`environment`] and [`settings`]: which GPU runtime can be reached, under which settings, and
//!    the reason when none can;
//! 4. [`simulation`]: the allocator's counters before the run, without a GPU;
//! 5. [`mod@measure`]: configuration, phase rows and the measurement; [`compare`]: two measurements;
//! 6. [`worker`] and [`protocol`]: one fresh process a trial, the only one that loads libtorch;
//! 7. [`export`]: a new file or nothing;
//! 8. [`pricing`]: a price list to the price of a fixed term;
//! 9. `explore`: many points, one dimension at a time;
//! 10. [`results`]: rows from measurements, their summary, accepted units;
//! 11. [`display`]: what a notebook shows, as HTML and as text; [`error`]: what can go wrong.
//!
//! Calculated, simulated and measured numbers are never mixed: each carries its `kind` and its scope.
//!
//! # Example
//! ```
//! use iteragpu_lab::{MeasureConfig, estimate_weights, measure, outcome_text};
//!
//! // Arithmetic: exact everywhere.
//! let estimate = estimate_weights(70_000_000_000, 16, "0")?;
//! assert_eq!(estimate.theoretical_weight_gib, "130.3851604461669921875");
//!
//! // Measurement: on the chosen GPU, or the reason why there is none.
//! let config = MeasureConfig { batch: 1, context: 16, width: 64, ..MeasureConfig::default() };
//! let measurement = measure(&config);
//! println!("{}", outcome_text(&measurement));
//! # Ok::<(), iteragpu_lab::LabError>(())
//! ```

pub mod arguments;
#[cfg(feature = "cli")]
pub mod cli;
pub mod compare;
pub mod display;
pub mod environment;
pub mod error;
pub mod estimate;
#[cfg(feature = "explore")]
pub mod explore;
pub mod export;
mod json;
pub mod measure;
#[cfg(feature = "csv")]
pub mod pricing;
pub mod protocol;
#[cfg(feature = "csv")]
pub mod results;
pub mod settings;
pub mod simulation;
mod spread;
#[cfg(feature = "csv")]
mod table;
#[doc(hidden)]
pub mod temporary;
pub mod worker;

pub use compare::{MeasurementComparison, compare_measurement_outcomes, compare_measurements};
pub use display::{Present, Shown, outcome_text, show};
pub use environment::{EnvironmentReport, environment_report};
pub use error::{Explanation, LabError};
pub use estimate::{Estimate, estimate_weights};
pub use export::{NewFile, Saved, save_new};
pub use measure::{Dtype, MeasureConfig, Measurement, PhaseRow, measure, measure_with_progress};
#[cfg(feature = "csv")]
pub use pricing::{Offer, PriceList, Quote};
#[cfg(feature = "csv")]
pub use results::{AcceptedUnits, Appended, Summary, accepted_units, append, summarize};
pub use simulation::{AllocatorProfile, Comparison, Simulation, compare_outcome, simulate};
