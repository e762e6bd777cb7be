//! The repository's `.venv`: pinned packages, installed once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::progress::LongStep;
use crate::workspace;

/// Packages with exact versions, installed together.
#[derive(Clone, Copy)]
pub struct Pins {
    name: &'static str,
    text: &'static str,
}

pub const JUPYTER: Pins = Pins { name: "jupyter", text: include_str!("../requirements.txt") };

/// Other programs that execute notebooks; only `cargo xtask test` needs them.
pub const FRONTENDS: Pins = Pins { name: "frontends", text: include_str!("../frontends-requirements.txt") };

/// Drives the browser of `cargo xtask browser`; it brings none of its own.
pub const PLAYWRIGHT: Pins = Pins { name: "browser", text: include_str!("../browser-requirements.txt") };

/// The version that tch 0.24 expects.
pub const TORCH: Pins = Pins { name: "torch", text: "torch==2.11.0\n" };

impl Pins {
    /// Whether `python` sees exactly these versions; a local part such as `+cu130` does not count.
    pub fn installed_for(self, python: &Path) -> bool {
        const PROGRAM: &str = "import sys, importlib.metadata as m\n\
            pins = (pin.split('==') for pin in sys.argv[1:])\n\
            sys.exit(any(m.version(name).split('+')[0] != version for name, version in pins))";
        let mut command = Command::new(python);
        command.args(["-c", PROGRAM]).args(self.text.lines());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// Written only after pip has succeeded: a half-finished installation has no stamp.
    fn stamp(self) -> PathBuf {
        venv().join(format!("{}-installed.txt", self.name))
    }

    pub fn ready(self) -> bool {
        fs::read_to_string(self.stamp()).is_ok_and(|text| text == self.text) && self.installed_for(&interpreter())
    }
}

pub fn venv() -> PathBuf {
    workspace::root().join(".venv")
}

pub fn interpreter() -> PathBuf {
    venv().join("bin/python")
}

/// A running pip.
pub struct Install {
    step: LongStep,
    pins: Vec<Pins>,
}

/// Starts the installation of those of `wanted` that are not there yet; `None` when all are.
/// One pip does it all, since two at once in the same environment break each other.
pub fn start_install(wanted: &[Pins]) -> Result<Option<Install>> {
    let pins: Vec<Pins> = wanted.iter().copied().filter(|pins| !pins.ready()).collect();
    if pins.is_empty() {
        return Ok(None);
    }
    ensure_venv()?;
    let temporary = workspace::target().join("tmp");
    fs::create_dir_all(&temporary)?;
    let mut command = Command::new(interpreter());
    // Neither pip's cache nor a small /tmp: everything stays below the repository.
    command.env("TMPDIR", temporary).args(["-m", "pip", "install", "--no-cache-dir", "--no-input"]);
    command.args(["--disable-pip-version-check", "--progress-bar=off"]);
    command.args(pins.iter().flat_map(|pins| pins.text.lines()));
    let summarize = |lines: &[String]| lines.last().cloned().unwrap_or_default();
    let step = LongStep::start("Paquets Python", command, summarize)?;
    Ok(Some(Install { step, pins }))
}

impl Install {
    pub fn finish(self) -> Result<()> {
        self.step.wait()?;
        for pins in self.pins {
            fs::write(pins.stamp(), pins.text).context("impossible de noter l'installation dans .venv")?;
        }
        Ok(())
    }
}

/// A `.venv` whose Python is gone, or that was left half-made, is made afresh.
fn ensure_venv() -> Result<()> {
    let mut probe = Command::new(interpreter());
    if workspace::output_of(probe.args(["-m", "pip", "--version"])).is_ok() {
        return Ok(());
    }
    let mut command = Command::new("python3");
    command.args(["-m", "venv", "--clear"]).arg(venv());
    workspace::output_of(&mut command).map(drop)
}
