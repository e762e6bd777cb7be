//! What several test programs share; not each of them uses all of it.
#![allow(dead_code)]

pub mod program;

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

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
