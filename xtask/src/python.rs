//! Pinned Python packages, installed once: in the repository's `.venv`, or apart from it.

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

/// What `docs/flotte` is written for. Their dependencies need not get along with anything else's.
pub const SKYPILOT: Pins = Pins { name: "skypilot", text: include_str!("../skypilot-requirements.txt") };
pub const DSTACK: Pins = Pins { name: "dstack", text: include_str!("../dstack-requirements.txt") };

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
}

pub fn venv() -> PathBuf {
    workspace::root().join(".venv")
}

pub fn interpreter() -> PathBuf {
    venv().join("bin/python")
}

/// Installs into `.venv` what of `wanted` is not there yet.
pub fn start_install(wanted: &[Pins]) -> Result<Option<Install>> {
    Environment { folder: venv(), pip_options: &[] }.start_install("Paquets Python", wanted)
}

/// A virtual environment.
#[derive(Clone)]
pub struct Environment {
    folder: PathBuf,
    pip_options: &'static [&'static str],
}

impl Environment {
    /// One that holds nothing else. Little of it is ever loaded: Python compiles what is, pip would compile all.
    pub fn only_for(pins: Pins) -> Self {
        let folder = workspace::target().join("python").join(pins.name);
        Self { folder, pip_options: &["--no-compile"] }
    }

    pub fn interpreter(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    /// Written only after pip has succeeded: a half-finished installation has no stamp.
    fn stamp(&self, pins: Pins) -> PathBuf {
        self.folder.join(format!("{}-installed.txt", pins.name))
    }

    pub fn has(&self, pins: Pins) -> bool {
        let noted = fs::read_to_string(self.stamp(pins)).is_ok_and(|text| text == pins.text);
        noted && pins.installed_for(&self.interpreter())
    }

    /// Starts the installation of those of `wanted` that are not there yet; `None` when all are.
    /// One pip does it all, since two at once in the same environment break each other.
    pub fn start_install(&self, label: &'static str, wanted: &[Pins]) -> Result<Option<Install>> {
        let pins: Vec<Pins> = wanted.iter().copied().filter(|pins| !self.has(*pins)).collect();
        if pins.is_empty() {
            return Ok(None);
        }
        self.ensure()?;
        let temporary = workspace::target().join("tmp");
        fs::create_dir_all(&temporary)?;
        let mut command = Command::new(self.interpreter());
        // Neither pip's cache nor a small /tmp: everything stays below the repository.
        command.env("TMPDIR", temporary).args(["-m", "pip", "install", "--no-cache-dir", "--no-input"]);
        command.args(["--disable-pip-version-check", "--progress-bar=off"]);
        command.args(self.pip_options).args(pins.iter().flat_map(|pins| pins.text.lines()));
        let summarize = |lines: &[String]| lines.last().cloned().unwrap_or_default();
        let step = LongStep::start(label, command, summarize)?;
        Ok(Some(Install { step, environment: self.clone(), pins }))
    }

    /// One whose Python is gone, or that was left half-made, is made afresh.
    fn ensure(&self) -> Result<()> {
        let mut probe = Command::new(self.interpreter());
        if workspace::output_of(probe.args(["-m", "pip", "--version"])).is_ok() {
            return Ok(());
        }
        let mut command = Command::new("python3");
        command.args(["-m", "venv", "--clear"]).arg(&self.folder);
        workspace::output_of(&mut command).map(drop)
    }
}

/// A running pip.
pub struct Install {
    step: LongStep,
    environment: Environment,
    pins: Vec<Pins>,
}

impl Install {
    pub fn finish(self) -> Result<()> {
        self.step.wait()?;
        for pins in self.pins {
            fs::write(self.environment.stamp(pins), pins.text).context("impossible de noter l'installation")?;
        }
        Ok(())
    }
}
