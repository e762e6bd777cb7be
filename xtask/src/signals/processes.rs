//! The processes of a trial: all those that it started, whoever their parent is by now.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The variable that each process of a trial inherits; its value is the trial's folder.
pub const MARK: &str = "ITERAGPU_TRIAL";

const GLANCE: Duration = Duration::from_millis(5);

/// One bit a signal, the lowest for signal 1.
pub fn ignored_signals() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    Ok(u64::from_str_radix(ignored.context("/proc/self/status ne nomme pas les signaux ignorés")?.trim(), 16)?)
}

/// Those that carry the mark and still run. One that has ended and waits for its parent has no environment.
pub fn marked(mark: &str) -> Vec<Pid> {
    let wanted = format!("{MARK}={mark}").into_bytes();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let carries = |process: &i32| {
        fs::read(format!("/proc/{process}/environ"))
            .is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == wanted))
    };
    processes.filter(carries).map(Pid::from_raw).collect()
}

/// The first process that `parent` has started with this mark.
pub fn child_of(parent: Pid, mark: &str) -> Option<Pid> {
    marked(mark).into_iter().find(|process| *process != parent && parent_of(*process) == Some(parent))
}

/// The words after the program's name, which is in brackets and may hold anything: state, parent.
fn parent_of(process: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok().map(Pid::from_raw)
}

/// How long it took until no process of the trial was left; those that stayed beyond `patience`.
pub fn wait_until_gone(mark: &str, patience: Duration) -> (Duration, Vec<Pid>) {
    let start = Instant::now();
    loop {
        let left = marked(mark);
        if left.is_empty() || start.elapsed() > patience {
            return (start.elapsed(), left);
        }
        thread::sleep(GLANCE);
    }
}

/// Ends what a trial left behind.
pub fn end(left: &[Pid]) {
    for process in left {
        // One that has gone meanwhile is what is wanted.
        let _ = kill(*process, Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_signal_that_is_ignored_is_known() -> Result<()> {
        // Rust's own programs ignore the signal of a broken pipe.
        assert_ne!(ignored_signals()? & (1 << (Signal::SIGPIPE as u64 - 1)), 0);
        assert_eq!(ignored_signals()? & (1 << (Signal::SIGTERM as u64 - 1)), 0);
        Ok(())
    }

    #[test]
    fn what_a_trial_started_is_found_until_it_ends() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mark = folder.path().display().to_string();
        // A shell that waits: its own child is found as well.
        let mut shell = Command::new("sh").args(["-c", "sleep 60; :"]).env(MARK, &mark).spawn()?;
        let start = Instant::now();
        while marked(&mark).len() < 2 && start.elapsed() < Duration::from_secs(60) {
            thread::sleep(GLANCE);
        }
        let (_, left) = wait_until_gone(&mark, Duration::ZERO);
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(child_of(Pid::from_raw(shell.id().try_into()?), &mark).is_some());
        end(&left);
        shell.wait()?;
        assert_eq!(wait_until_gone(&mark, Duration::from_secs(60)).1, []);
        Ok(())
    }
}
