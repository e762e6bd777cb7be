//! What has to be on the machine before anything is installed.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::workspace;

const RUSTC: (u32, u32) = (1, 95);
const PYTHON: (u32, u32) = (3, 10);

/// One error that names everything missing, so that a single visit to the package manager is enough.
pub fn check() -> Result<()> {
    let missing = missing(&workspace::search_path());
    if !missing.is_empty() {
        bail!("{}", missing.join("\n"));
    }
    Ok(())
}

/// Name of the first C++ compiler on `path`.
pub fn cxx_compiler(path: &OsStr) -> Option<&'static str> {
    ["c++", "g++", "clang++"].into_iter().find(|name| find(path, name).is_some())
}

/// Every prerequisite that the programs on `path` do not meet, one sentence each.
fn missing(path: &OsStr) -> Vec<String> {
    let mut missing = Vec::new();
    match version(path, "rustc") {
        Some(found) if found >= RUSTC => {}
        found => missing.push(format!(
            "Il faut rustc {} ou plus récent (le noyau Jupyter l'exige), {} : installez-le ou mettez-le à jour avec rustup.",
            dotted(RUSTC),
            described(found)
        )),
    }
    if version(path, "cargo").is_none() {
        missing.push("Il faut cargo, introuvable ou en panne : installez-le avec rustup.".to_owned());
    }
    match version(path, "python3") {
        Some(found) if found >= PYTHON => {
            if output(path, "python3", &["-c", "import venv, ensurepip"]).is_none() {
                missing.push(
                    "Il manque à python3 les modules venv et ensurepip : installez le paquet python3-venv.".to_owned(),
                );
            }
        }
        found => missing.push(format!(
            "Il faut python3 {} ou plus récent, {} : installez les paquets python3 et python3-venv.",
            dotted(PYTHON),
            described(found)
        )),
    }
    if cxx_compiler(path).is_none() {
        missing.push(
            "Il faut un compilateur C++ (c++, g++ ou clang++), introuvable : installez le paquet g++.".to_owned(),
        );
    }
    missing
}

fn dotted((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

fn described(found: Option<(u32, u32)>) -> String {
    found.map_or("introuvable ou en panne".to_owned(), |version| {
        format!("la version {} est trop ancienne", dotted(version))
    })
}

/// `rustc 1.95.0 (…)`, `Python 3.11.7`: the second word of what `--version` prints.
fn version(path: &OsStr, program: &str) -> Option<(u32, u32)> {
    let text = output(path, program, &["--version"])?;
    let mut numbers = text.split_whitespace().nth(1)?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn output(path: &OsStr, program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(find(path, program)?);
    command.args(arguments).env("PATH", path).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// The first program of this name on `path`.
pub fn find(path: &OsStr, program: &str) -> Option<PathBuf> {
    env::split_paths(path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLETE: [(&str, &str); 4] = [
        ("rustc", "echo 'rustc 1.95.0 (59807616e 2026-04-14)'"),
        ("cargo", "echo 'cargo 1.95.0'"),
        ("python3", "echo 'Python 3.10.2'"),
        ("c++", ""),
    ];

    /// What is missing on a PATH with these shell scripts and nothing else.
    fn missing_with(programs: &[(&str, &str)]) -> Result<Vec<String>> {
        let folder = tempfile::tempdir()?;
        for (name, script) in programs {
            workspace::write_program(&folder.path().join(name), script)?;
        }
        Ok(missing(folder.path().as_os_str()))
    }

    /// The complete machine with one program replaced, or taken away when `script` is `None`.
    fn missing_after(name: &str, script: Option<&str>) -> Result<Vec<String>> {
        let others = COMPLETE.into_iter().filter(|(other, _)| *other != name);
        let programs: Vec<_> = others.chain(script.map(|script| (name, script))).collect();
        missing_with(&programs)
    }

    #[test]
    fn a_complete_machine_lacks_nothing() -> Result<()> {
        assert_eq!(missing_with(&COMPLETE)?, Vec::<String>::new());
        Ok(())
    }

    #[test]
    fn any_of_three_compilers_will_do() -> Result<()> {
        let without: Vec<_> = COMPLETE.into_iter().filter(|(name, _)| *name != "c++").collect();
        for compiler in ["g++", "clang++"] {
            assert!(missing_with(&[without.as_slice(), &[(compiler, "")]].concat())?.is_empty(), "{compiler}");
        }
        Ok(())
    }

    #[test]
    fn each_fault_is_one_sentence_naming_what_to_install() -> Result<()> {
        let no_venv = "case $1 in -c) exit 1 ;; *) echo 'Python 3.12.1' ;; esac";
        for (name, script, sentence) in [
            ("rustc", None, "rustc 1.95"),
            ("rustc", Some("echo 'rustc 1.94.1 (abc)'"), "1.94 est trop ancienne"),
            ("rustc", Some("exit 1"), "rustup"),
            ("cargo", None, "cargo"),
            ("python3", None, "python3 3.10"),
            ("python3", Some("echo 'Python 3.9.18'"), "3.9 est trop ancienne"),
            ("python3", Some(no_venv), "python3-venv"),
            ("c++", None, "g++"),
        ] {
            let missing = missing_after(name, script)?;
            assert!(matches!(missing.as_slice(), [only] if only.contains(sentence)), "{name} {script:?}: {missing:?}");
        }
        Ok(())
    }

    #[test]
    fn an_empty_machine_is_told_everything_at_once() -> Result<()> {
        assert_eq!(missing_with(&[])?.len(), 4);
        Ok(())
    }
}
