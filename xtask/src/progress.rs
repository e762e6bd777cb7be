//! Commands that take minutes: they run in the background, and their output is shown only when they fail.

use std::io::{self, BufRead, BufReader, IsTerminal};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;

use crate::workspace;

const LOOK_EVERY: Duration = Duration::from_millis(200);
const PLAIN_LINE_EVERY: Duration = Duration::from_secs(30);
const PLAIN_LINE_WIDTH: usize = 100;
const LINES_SHOWN_ON_FAILURE: usize = 60;

/// A running command. Dropping it before [`LongStep::wait`] has returned kills it.
pub struct LongStep {
    label: &'static str,
    shown: String,
    summarize: fn(&[String]) -> String,
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    started: Instant,
}

impl LongStep {
    /// `summarize` says in a few words how far a command is that has printed these lines.
    pub fn start(label: &'static str, mut command: Command, summarize: fn(&[String]) -> String) -> Result<Self> {
        let shown = workspace::shown(&command);
        let (reader, writer) = io::pipe()?;
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn().with_context(|| format!("impossible de lancer {shown}"))?;
        let lines = Arc::default();
        keep_lines(BufReader::new(reader), Arc::clone(&lines));
        Ok(Self { label, shown, summarize, child, lines, started: Instant::now() })
    }

    /// Waits for the end, showing progress: a spinner on a terminal, a line now and then elsewhere.
    pub fn wait(mut self) -> Result<()> {
        let spinner = ProgressBar::new_spinner();
        let mut next_line = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            spinner.set_message(self.progress());
            spinner.tick();
            if !io::stderr().is_terminal() && Instant::now() >= next_line {
                eprintln!("{}", console::truncate_str(&self.progress(), PLAIN_LINE_WIDTH, "…"));
                next_line += PLAIN_LINE_EVERY;
            }
            thread::sleep(LOOK_EVERY);
        };
        spinner.finish_and_clear();
        self.conclude(status)
    }

    fn conclude(&self, status: ExitStatus) -> Result<()> {
        if !status.success() {
            let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            let first = lines.len().saturating_sub(LINES_SHOWN_ON_FAILURE);
            bail!("{}\n{} a échoué ({status})", lines[first..].join("\n"), self.shown);
        }
        eprintln!("{} : fait en {}", self.label, elapsed(self.started));
        Ok(())
    }

    fn progress(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        format!("{} : {} {}", self.label, elapsed(self.started), (self.summarize)(&lines))
    }
}

impl Drop for LongStep {
    fn drop(&mut self) {
        // Both fail only when the command has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A pipe that nobody reads would stop the command once full.
fn keep_lines(reader: impl BufRead + Send + 'static, kept: Arc<Mutex<Vec<String>>>) {
    thread::spawn(move || {
        for line in reader.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    });
}

/// Time since `start`, as a person says it.
pub fn elapsed(start: Instant) -> String {
    let seconds = start.elapsed().as_secs();
    if seconds < 60 {
        return format!("{:.1} s", start.elapsed().as_secs_f64());
    }
    format!("{} min {:02} s", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<LongStep> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        LongStep::start("essai", command, |lines| lines.len().to_string())
    }

    #[test]
    fn success_is_success() -> Result<()> {
        shell("echo out; echo err >&2")?.wait()
    }

    #[test]
    fn failure_shows_the_last_lines_of_both_streams() -> Result<()> {
        let error = shell("seq 1000; echo parce que >&2; exit 3")?.wait().map_err(|error| error.to_string());
        let text = error.err().unwrap_or_default();
        assert!(text.contains("\n1000\nparce que\n") && text.contains('3'), "{text}");
        assert!(!text.contains("\n900\n"), "{text}");
        Ok(())
    }

    #[test]
    fn dropping_kills() -> Result<()> {
        let started = Instant::now();
        drop(shell("exec sleep 60")?);
        assert!(started.elapsed() < Duration::from_secs(10));
        Ok(())
    }
}
