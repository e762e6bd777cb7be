//! The GPU worker, built against PyTorch 2.11.0.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::python::{self, Pins, TORCH};
use crate::{prerequisites, workspace};

pub fn run() -> Result<ExitCode> {
    prerequisites::check()?;
    if let Some(install) = python::start_install(missing_packages())? {
        install.finish()?;
    }
    build()?;
    Ok(ExitCode::SUCCESS)
}

/// Whether an NVIDIA GPU seems to be there.
pub fn gpu_present() -> bool {
    let driver = ["/dev/nvidiactl", "/proc/driver/nvidia"].iter().any(|path| Path::new(path).exists());
    driver || workspace::output_of(Command::new("nvidia-smi").arg("-L")).is_ok()
}

/// What `.venv` needs for the worker.
pub fn missing_packages() -> &'static [Pins] {
    match PyTorch::choose() {
        PyTorch::Installed => &[TORCH],
        PyTorch::InActiveEnvironment(_) | PyTorch::OnPath => &[],
    }
}

/// Builds the worker. Needs PyTorch.
pub fn build() -> Result<()> {
    forget_moved_pytorch()?;
    workspace::succeed(&mut cargo(&["build", "--release", "--locked", "-p", "iteragpu-worker"])?)
}

/// Cargo, with around it what every build and test of the worker needs.
pub fn cargo(arguments: &[&str]) -> Result<Command> {
    let path = workspace::search_path();
    let mut command = workspace::cargo(arguments);
    command.env("LIBTORCH_USE_PYTORCH", "1");
    // torch-sys calls the C++ compiler `c++`, whatever the machine has.
    if let (None, Some(compiler)) = (env::var_os("CXX"), prerequisites::cxx_compiler(&path)) {
        command.env("CXX", compiler);
    }
    // torch-sys asks `python` where VIRTUAL_ENV is set, `python3` elsewhere, both from the PATH.
    match PyTorch::choose().environment() {
        None => command.env_remove("VIRTUAL_ENV"),
        Some(folder) => {
            let folders = [folder.join("bin")].into_iter().chain(env::split_paths(&path));
            let path = env::join_paths(folders).context("le nom d'un dossier de PATH ou du dépôt contient « : »")?;
            command.env("PATH", path).env("VIRTUAL_ENV", folder)
        }
    };
    Ok(command)
}

/// The PyTorch to build against. One that is there already spares 4.7 GB; a rented machine usually has it.
enum PyTorch {
    InActiveEnvironment(PathBuf),
    OnPath,
    /// In the repository's `.venv`, by this program.
    Installed,
}

impl PyTorch {
    fn choose() -> Self {
        let active = env::var_os("VIRTUAL_ENV").map(PathBuf::from);
        let active = active.filter(|folder| TORCH.installed_for(&folder.join("bin/python")));
        match active {
            Some(folder) if folder != python::venv() => Self::InActiveEnvironment(folder),
            None if TORCH.installed_for(Path::new("python3")) => Self::OnPath,
            _ => Self::Installed,
        }
    }

    fn environment(self) -> Option<PathBuf> {
        match self {
            Self::InActiveEnvironment(folder) => Some(folder),
            Self::OnPath => None,
            Self::Installed => Some(python::venv()),
        }
    }
}

/// The worker remembers the folder of its libtorch, and torch-sys does not notice that PyTorch moved:
/// without this, a worker that no longer starts would count as built.
fn forget_moved_pytorch() -> Result<()> {
    const LOCATE: &str = "import importlib.util as u; print(u.find_spec('torch').origin)";
    let python = PyTorch::choose().environment().map_or("python3".into(), |folder| folder.join("bin/python"));
    let location = workspace::output_of(Command::new(python).args(["-c", LOCATE]))?;
    let record = workspace::target().join("pytorch-used.txt");
    if fs::read_to_string(&record).is_ok_and(|used| used != location) {
        workspace::succeed(&mut workspace::cargo(&["clean", "--release", "--locked", "-p", "torch-sys"]))?;
    }
    fs::create_dir_all(workspace::target())?;
    fs::write(&record, location).with_context(|| format!("impossible d'écrire {}", record.display()))
}
