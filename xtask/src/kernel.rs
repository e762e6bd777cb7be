//! The Rust kernel for Jupyter: built once by cargo, then registered with Jupyter.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::progress::LongStep;
use crate::{python, workspace};

pub const VERSION: &str = "0.22.0";

/// The name under which `evcxr_jupyter --install` registers itself.
const SPEC: &str = "rust";

/// A running build of the kernel.
pub struct Build {
    step: LongStep,
    target: PathBuf,
}

/// Starts building the kernel; `None` when it is installed and works.
pub fn start_build() -> Result<Option<Build>> {
    let home = cargo_home()?;
    if installed(&home) {
        return Ok(None);
    }
    // Below the repository instead of the system's temporary folder; an interrupted build goes on from here.
    let target = workspace::target().join("kernel");
    // Without --locked the build fails: a newer salsa is picked. --force replaces a broken program.
    let mut command = workspace::cargo(&["install", "evcxr_jupyter", "--version", VERSION, "--locked", "--force"]);
    command.arg("--root").arg(&home).arg("--target-dir").arg(&target);
    let summarize = |lines: &[String]| {
        let crates = lines.iter().filter(|line| line.starts_with("Compiling ")).count();
        format!("({crates} crates compilées)")
    };
    let step = LongStep::start("Noyau Jupyter", command, summarize)?;
    Ok(Some(Build { step, target }))
}

impl Build {
    pub fn finish(self) -> Result<()> {
        self.step.wait()?;
        fs::remove_dir_all(&self.target).with_context(|| format!("impossible de vider {}", self.target.display()))
    }
}

/// Tells Jupyter about the kernel, unless it already knows. Needs the packages of [`python::JUPYTER`].
pub fn register() -> Result<()> {
    let program = program(&cargo_home()?);
    if registered()?.as_deref() == Some(&program) {
        return Ok(());
    }
    // The kernel looks for Jupyter's folder by rules of its own, which ignore JUPYTER_DATA_DIR.
    let folder = workspace::output_of(&mut jupyter(&["--data-dir"]))?;
    let mut command = Command::new(&program);
    workspace::output_of(command.arg("--install").env("JUPYTER_PATH", folder.trim()))?;
    match registered()? {
        Some(found) if found == program => Ok(()),
        Some(found) => bail!(
            "Jupyter lance {} comme noyau « {SPEC} » au lieu de {} : retirez-le avec « .venv/bin/python -m jupyter kernelspec remove {SPEC} », puis recommencez.",
            found.display(),
            program.display()
        ),
        None => bail!("le noyau « {SPEC} » reste inconnu de Jupyter après son installation dans {}.", folder.trim()),
    }
}

fn cargo_home() -> Result<PathBuf> {
    let default = || env::home_dir().map(|home| home.join(".cargo"));
    env::var_os("CARGO_HOME").map(PathBuf::from).or_else(default).context("ni CARGO_HOME ni HOME n'est défini")
}

fn program(cargo_home: &Path) -> PathBuf {
    cargo_home.join("bin/evcxr_jupyter")
}

/// The program has no `--version`: cargo's records tell the version, a start tells that it works.
fn installed(cargo_home: &Path) -> bool {
    let list = workspace::output_of(workspace::cargo(&["install", "--list", "--root"]).arg(cargo_home));
    let wanted = format!("evcxr_jupyter v{VERSION}");
    let is_wanted = |line: &str| line.strip_prefix(&wanted).is_some_and(|rest| rest.starts_with([':', ' ']));
    let recorded = list.is_ok_and(|list| list.lines().any(is_wanted));
    recorded && workspace::output_of(Command::new(program(cargo_home)).arg("--help")).is_ok()
}

/// Whether Jupyter knows a kernel that exists.
pub fn is_registered() -> bool {
    registered().is_ok_and(|program| program.is_some())
}

/// The program that Jupyter would start, when it exists.
fn registered() -> Result<Option<PathBuf>> {
    let list = workspace::output_of(&mut jupyter(&["kernelspec", "list", "--json"]))?;
    let list: Value =
        serde_json::from_str(&list).context("« jupyter kernelspec list » a répondu autre chose que du JSON")?;
    let program = list["kernelspecs"][SPEC]["spec"]["argv"][0].as_str().map(PathBuf::from);
    Ok(program.filter(|program| program.is_file()))
}

fn jupyter(arguments: &[&str]) -> Command {
    let mut command = Command::new(python::interpreter());
    command.args(["-m", "jupyter"]).args(arguments);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cargo folder in which `version` is recorded as installed, with `script` as its program.
    fn home_with(version: &str, script: Option<&str>) -> Result<tempfile::TempDir> {
        let home = tempfile::tempdir()?;
        fs::create_dir(home.path().join("bin"))?;
        let records = format!("[v1]\n\"evcxr_jupyter {version} (path+file:///sources)\" = [\"evcxr_jupyter\"]\n");
        fs::write(home.path().join(".crates.toml"), records)?;
        if let Some(script) = script {
            workspace::write_program(&program(home.path()), script)?;
        }
        Ok(home)
    }

    #[test]
    fn installed_means_the_right_version_and_a_program_that_starts() -> Result<()> {
        assert!(installed(home_with(VERSION, Some("exit 0"))?.path()));
        assert!(!installed(home_with("0.21.1", Some("exit 0"))?.path()));
        assert!(!installed(home_with("0.22.01", Some("exit 0"))?.path()));
        assert!(!installed(home_with(VERSION, None)?.path()));
        assert!(!installed(home_with(VERSION, Some("exit 127"))?.path()));
        assert!(!installed(tempfile::tempdir()?.path()));
        Ok(())
    }
}
