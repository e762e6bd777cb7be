//! Explorations: one dimension at a time around a base configuration, each point in fresh
//! processes, several times over in a drawn order, and nothing lost when it is interrupted.
//!
//! 1. [`plan`]: what varies, the points, the order of the runs;
//! 2. [`record`]: the lines of an exploration's file: its plan, then one line a run;
//! 3. [`run`]: one fresh process a run, each kept before the next;
//! 4. [`mod@merge`]: many such files become one;
//! 5. [`mod@report`]: what a file says, for tables, charts and a page.

pub mod merge;
pub mod plan;
pub mod record;
pub mod report;
pub mod run;

pub use merge::{Merged, merge};
pub use plan::{Dimension, Plan, PlanOptions, PlannedRun, Value, Variation};
pub use record::{PlanRecord, RunRecord};
pub use report::{Report, report};
pub use run::{Explored, Progress, explore};
