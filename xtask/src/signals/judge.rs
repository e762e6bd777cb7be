//! What may be left after a signal, and what may not.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Result;
use iteragpu_lab::results::read_measurement;
use nix::sys::signal::Signal;

/// What one trial showed.
#[derive(Debug, Default)]
pub struct Verdict {
    /// What was promised and not kept.
    pub faults: Vec<String>,
    /// Whether the signal came before the end.
    pub in_time: bool,
    /// Whether a temporary file was left, as SIGKILL may.
    pub leftover: bool,
    /// Until no process of the trial was left.
    pub gone_after: Duration,
}

/// Which processes the signal went to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Hit {
    Command,
    Worker,
    /// As Ctrl-C in a terminal.
    Both,
}

/// How a command ended.
pub struct End {
    pub status: ExitStatus,
    pub words: String,
}

/// How `measure --output` may end.
pub fn measuring(end: &End, hit: Hit, signal: Signal, has_file: bool, verdict: &mut Verdict) {
    let killed = end.status.signal() == Some(signal as i32);
    let is_fine = match end.status.code() {
        None => killed && hit != Hit::Worker,
        Some(0) => has_file,
        // Without a file, and with the reason: a worker that was killed, or no GPU.
        Some(2) => !has_file && end.words.starts_with("Aucune mesure : "),
        Some(_) => false,
    };
    verdict.in_time = killed || end.words.contains("a été interrompu par le signal");
    if !is_fine {
        let file = if has_file { "un fichier" } else { "aucun fichier" };
        verdict.faults.push(format!("{}, {file}, « {} »", end.status, end.words.trim()));
    }
}

/// How `results append` may end: with the old file or the new one.
pub fn appending(end: &End, signal: Signal, contents: &[u8], old: &[u8], new: &[u8], verdict: &mut Verdict) {
    let killed = end.status.signal() == Some(signal as i32);
    verdict.in_time = killed;
    if !killed && !end.status.success() {
        verdict.faults.push(format!("{}, « {} »", end.status, end.words.trim()));
    }
    if contents != new && (contents != old || end.status.success()) {
        verdict.faults.push(format!("{} octets : ni l'ancien fichier ni le nouveau", contents.len()));
    }
}

/// Looks at everything in `folder`: whether `expected` is there. What else is there is a fault, except a
/// temporary file after a SIGKILL to its command.
pub fn files(folder: &Path, expected: &str, may_leave: bool, verdict: &mut Verdict) -> Result<bool> {
    let mut is_there = false;
    for entry in fs::read_dir(folder)? {
        match entry?.file_name().to_string_lossy() {
            name if name == expected => is_there = true,
            name if may_leave && is_temporary(&name) => verdict.leftover = true,
            name => verdict.faults.push(format!("{name} est resté")),
        }
    }
    Ok(is_there)
}

pub fn is_temporary(name: &str) -> bool {
    name.starts_with(".iteragpu-lab-incomplete-") && name.ends_with(".tmp")
}

/// A measurement's file is whole.
pub fn complete(file: &Path, verdict: &mut Verdict) -> Result<()> {
    let whole = fs::read(file)?.ends_with(b"}\n");
    match read_measurement(file) {
        Ok(_) if whole => {}
        Ok(_) => verdict.faults.push("fichier sans sa fin".to_owned()),
        Err(error) => verdict.faults.push(format!("fichier incomplet : {error}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(raw: i32, words: &str) -> End {
        End { status: ExitStatus::from_raw(raw), words: words.to_owned() }
    }

    #[test]
    fn a_half_file_and_a_forgotten_one_are_found() -> Result<()> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("m.json"), "{\"schema_version\":1,")?;
        fs::write(folder.path().join(".iteragpu-lab-incomplete-aB3xY9.tmp"), "")?;
        let mut verdict = Verdict::default();
        assert!(files(folder.path(), "m.json", true, &mut verdict)? && verdict.leftover);
        assert!(verdict.faults.is_empty());
        complete(&folder.path().join("m.json"), &mut verdict)?;
        assert_eq!(verdict.faults.len(), 1);
        assert!(!files(folder.path(), "other.json", false, &mut verdict)?);
        assert_eq!(verdict.faults.len(), 3, "{verdict:?}");
        Ok(())
    }

    #[test]
    fn ends_that_say_something_wrong_are_found() {
        let faults = |end: End, hit, has_file| {
            let mut verdict = Verdict::default();
            measuring(&end, hit, Signal::SIGTERM, has_file, &mut verdict);
            verdict.faults.len()
        };
        let (done, unmeasured, failed, terminated, aborted) = (0, 2 << 8, 1 << 8, 15, 6);
        let reason = "Aucune mesure : le programme de mesure a été interrompu par le signal 15.";
        assert_eq!(faults(end(terminated, ""), Hit::Command, true), 0);
        assert_eq!(faults(end(done, ""), Hit::Command, true), 0);
        assert_eq!(faults(end(unmeasured, reason), Hit::Worker, false), 0);
        assert_eq!(faults(end(done, ""), Hit::Command, false), 1);
        assert_eq!(faults(end(unmeasured, reason), Hit::Worker, true), 1);
        assert_eq!(faults(end(unmeasured, ""), Hit::Worker, false), 1);
        assert_eq!(faults(end(failed, reason), Hit::Worker, false), 1);
        assert_eq!(faults(end(terminated, ""), Hit::Worker, false), 1);
        assert_eq!(faults(end(aborted, ""), Hit::Command, false), 1);
    }

    #[test]
    fn a_results_file_that_is_neither_old_nor_new_is_found() {
        let faults = |end: End, contents: &[u8]| {
            let mut verdict = Verdict::default();
            appending(&end, Signal::SIGKILL, contents, b"old", b"old+new", &mut verdict);
            verdict.faults.len()
        };
        assert_eq!(faults(end(9, ""), b"old"), 0);
        assert_eq!(faults(end(9, ""), b"old+new"), 0);
        assert_eq!(faults(end(9, ""), b"old+n"), 1);
        assert_eq!(faults(end(9, ""), b""), 1);
        assert_eq!(faults(end(0, ""), b"old"), 1);
        assert_eq!(faults(end(1 << 8, ""), b"old"), 1);
    }
}
