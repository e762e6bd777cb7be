//! What several test programs share; not each of them uses all of it.
#![allow(dead_code)]

pub mod exploration;
pub mod inert;
pub mod program;

use std::path::PathBuf;
use std::process::Command;

use iteragpu_lab::Measurement;
use iteragpu_lab::explore::{Plan, PlanRecord};
use tempfile::TempDir;

/// Ten measurements of an H200 whose counters are those of the original.
pub fn measurements() -> Result<Vec<Measurement>, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/mesures/h200-golden.json"))?;
    let mut kept: serde_json::Value = serde_json::from_str(&text)?;
    Ok(serde_json::from_value(kept["measurements"].take())?)
}

/// The first line of a made-up exploration, in the environment of `measurement`. An even `id` and the one
/// after it began in the same second, one second before the two below.
pub fn plan_record(id: u64, measurement: &Measurement, plan: Plan) -> PlanRecord {
    PlanRecord {
        schema_version: 1,
        artifact: "iteragpu-lab-v1".to_owned(),
        kind: "exploration_plan".to_owned(),
        exploration_id: format!("{id:016x}"),
        started_at_utc: format!("2026-12-01T00:00:{:02}.000000+00:00", 59 - id / 2 % 60),
        environment: measurement.environment.clone(),
        plan,
    }
}

/// The stand-in worker under the name of a behaviour, in a folder of its own.
pub struct StandIn {
    folder: TempDir,
    behaviour: String,
}

impl StandIn {
    pub fn new(behaviour: &str) -> std::io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand-in-worker.sh");
        std::os::unix::fs::symlink(script, folder.path().join(behaviour))?;
        Ok(Self { folder, behaviour: behaviour.to_owned() })
    }

    pub fn program(&self) -> PathBuf {
        self.folder.path().join(&self.behaviour)
    }

    /// A path beside the stand-in.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// `program` with 100 MiB to live in: more is refused by the system, and ends it.
pub fn in_little_memory(program: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 102400; exec \"$@\"", "sh", program]);
    command
}
