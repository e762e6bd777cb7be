//! Finds the worker, starts one fresh process a request, and turns whatever happens to it into an
//! answer or a reason. The process never outlives the call.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{LabError, shortened};
use crate::measure::{Digests, PhaseRow, SyntheticModel};
use crate::protocol::{Message, Request, VERSION, WorkerEnvironment};

/// File name of the worker.
pub const WORKER_NAME: &str = "iteragpu-worker";

/// Names a worker to use instead of the one that would be found.
const WORKER_VARIABLE: &str = "ITERAGPU_WORKER";

/// A line longer than this is no message of ours.
const LONGEST_LINE: u64 = 1 << 20;

/// A worker's program and how long it may stay silent.
#[derive(Clone, Debug)]
pub struct WorkerProgram {
    path: PathBuf,
    patience: Duration,
}

/// What a worker ended with.
#[derive(Debug)]
pub(crate) enum Answer {
    Environment(WorkerEnvironment),
    Measured { environment: WorkerEnvironment, synthetic_model: SyntheticModel, digests_sha256: Option<Digests> },
}

impl WorkerProgram {
    /// The worker at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        // Loading some gigabytes of libraries from a cold network disk takes a minute or more.
        Self { path: path.into(), patience: Duration::from_secs(180) }
    }

    /// Changes how long the worker may take to say hello, and to answer about the environment. A
    /// measurement takes as long as its configuration asks for; dropping it ends the worker.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Finds the worker: `ITERAGPU_WORKER` if set, else `target/release` below this crate's own
    /// folder, else beside the running executable, else on PATH.
    ///
    /// # Errors
    /// [`LabError::WorkerVariable`] or [`LabError::WorkerMissing`].
    pub fn locate() -> Result<Self, LabError> {
        if let Some(path) = env::var_os(WORKER_VARIABLE) {
            let path = PathBuf::from(path);
            return if path.is_file() { Ok(Self::at(path)) } else { Err(LabError::WorkerVariable) };
        }
        let name = format!("{WORKER_NAME}{}", env::consts::EXE_SUFFIX);
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join("release");
        let beside = env::current_exe().ok().and_then(|program| program.parent().map(Path::to_path_buf));
        let on_path = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
        let mut folders = [built].into_iter().chain(beside).chain(on_path);
        folders
            .find_map(|folder| Some(folder.join(&name)).filter(|path| path.is_file()))
            .map(Self::at)
            .ok_or(LabError::WorkerMissing)
    }

    /// Runs one request in one fresh process and passes each row on as it arrives.
    pub(crate) fn ask(&self, request: &Request, on_row: &mut dyn FnMut(PhaseRow)) -> Result<Answer, LabError> {
        let mut process = WorkerProcess::start(&self.path, request)?;
        let answer = self.listen(request, &mut process, on_row);
        if answer.is_ok() {
            process.wait_for_exit();
        }
        answer
    }

    fn listen(
        &self,
        request: &Request,
        process: &mut WorkerProcess,
        on_row: &mut dyn FnMut(PhaseRow),
    ) -> Result<Answer, LabError> {
        let hello = process.next_message(Some(self.patience))?;
        let Message::Hello { worker_version } = hello else {
            return Err(LabError::NotTheProtocol { found: "un premier message sans version".to_owned() });
        };
        if worker_version != VERSION {
            return Err(LabError::WorkerVersion {
                found: shortened(&worker_version, 40),
                expected: VERSION.to_owned(),
            });
        }
        // Nobody can say beforehand how long a measurement takes.
        let patience = matches!(request, Request::Environment { .. }).then_some(self.patience);
        loop {
            match process.next_message(patience)? {
                Message::Phase { row } => on_row(row),
                Message::Environment { environment } => return Ok(Answer::Environment(environment)),
                Message::Measured { environment, synthetic_model, digests_sha256 } => {
                    return Ok(Answer::Measured { environment, synthetic_model, digests_sha256 });
                }
                Message::Failed { failure } => return Err(LabError::Unavailable(failure)),
                Message::Hello { .. } => {
                    return Err(LabError::NotTheProtocol { found: "un second message de version".to_owned() });
                }
            }
        }
    }
}

/// A running worker. Dropping it kills and reaps the process.
struct WorkerProcess {
    child: Child,
    lines: Receiver<Vec<u8>>,
    last_words: Receiver<String>,
}

impl WorkerProcess {
    fn start(path: &Path, request: &Request) -> Result<Self, LabError> {
        let line = serde_json::to_string(request).map_err(|error| LabError::WorkerStart(error.into()))?;
        let (Request::Environment { device_index } | Request::Measure { device_index, .. }) = request;
        let mut child = Command::new(path)
            // A hint: the worker starts this device while the loader is still busy with libtorch.
            .arg(format!("cuda:{device_index}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(LabError::WorkerStart)?;
        if let Some(stdin) = child.stdin.as_mut() {
            // A worker that dies before reading is told apart by its exit, not by this write.
            let _ = stdin.write_all(format!("{line}\n").as_bytes());
        }
        let lines = child.stdout.take().map(read_lines);
        let last_words = child.stderr.take().map(read_tail);
        match (lines, last_words) {
            (Some(lines), Some(last_words)) => Ok(Self { child, lines, last_words }),
            _ => Err(LabError::WorkerStart(std::io::Error::other("sorties du programme non reliées"))),
        }
    }

    fn next_message(&mut self, patience: Option<Duration>) -> Result<Message, LabError> {
        let line = match patience {
            Some(patience) => self.lines.recv_timeout(patience),
            None => self.lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match line {
            Ok(line) => serde_json::from_slice(&line).map_err(|_| self.not_a_message(&line)),
            Err(RecvTimeoutError::Timeout) => {
                Err(LabError::WorkerSilent { seconds: patience.unwrap_or_default().as_secs() })
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.why_it_ended(None)),
        }
    }

    /// A cut line is what a dying worker leaves: then its end is the reason, not the line.
    fn not_a_message(&mut self, line: &[u8]) -> LabError {
        let found = shortened(&String::from_utf8_lossy(line), 120);
        let whole = line.ends_with(b"\n") || line.len() as u64 == LONGEST_LINE;
        if whole { LabError::NotTheProtocol { found } } else { self.why_it_ended(Some(found)) }
    }

    fn why_it_ended(&mut self, cut_line: Option<String>) -> LabError {
        let Some(status) = self.wait_for_exit() else {
            let found = cut_line.unwrap_or_else(|| "une sortie fermée trop tôt".to_owned());
            return LabError::NotTheProtocol { found };
        };
        if let Some(signal) = signal_of(status) {
            return LabError::WorkerKilled { signal, hint: signal_hint(signal) };
        }
        let last_words = self.last_words.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
        if let Some(error) = loader_error(&last_words) {
            return error;
        }
        if let Some(found) = cut_line {
            return LabError::NotTheProtocol { found };
        }
        let last_words = last_words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("aucun").to_owned();
        LabError::WorkerStopped { status: status.to_string(), last_words: shortened(&last_words, 300) }
    }

    /// Closes the worker's input, which tells it to leave, and waits a little for it to do so.
    fn wait_for_exit(&mut self) -> Option<ExitStatus> {
        drop(self.child.stdin.take());
        let start = Instant::now();
        let mut pause = Duration::from_micros(200);
        while start.elapsed() < Duration::from_secs(5) {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
        None
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Both are without effect on a process that has already been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends each line with its newline; the channel closes at the end or at a line that is too long.
fn read_lines(output: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        loop {
            let mut line = Vec::new();
            match output.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
                Ok(1..) if sender.send(line).is_ok() => {}
                _ => return,
            }
        }
    });
    receiver
}

/// Reads to the end and sends the last few kilobytes, so that a talkative worker never blocks.
fn read_tail(mut output: impl Read + Send + 'static) -> Receiver<String> {
    const KEPT: usize = 8192;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut tail = Vec::new();
        let mut chunk = [0; KEPT];
        while let Ok(read @ 1..) = output.read(&mut chunk) {
            tail.extend_from_slice(&chunk[..read]);
            tail.drain(..tail.len().saturating_sub(KEPT));
        }
        let _ = sender.send(String::from_utf8_lossy(&tail).into_owned());
    });
    receiver
}

/// The dynamic loader's two complaints, as glibc words them.
fn loader_error(last_words: &str) -> Option<LabError> {
    let after = |marker: &str| last_words.split_once(marker).map(|(_, rest)| rest);
    if let Some(rest) = after("error while loading shared libraries: ") {
        let library = rest.split(':').next().unwrap_or(rest);
        return Some(LabError::LibtorchNotLoaded { library: shortened(library, 80) });
    }
    let rest = after("undefined symbol: ")?;
    let symbol = rest.split([',', '\n']).next().unwrap_or(rest);
    Some(LabError::LibtorchMismatch { symbol: shortened(symbol, 80) })
}

#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal_of(_status: ExitStatus) -> Option<i32> {
    None
}

fn signal_hint(signal: i32) -> &'static str {
    match signal {
        2 => " (interruption demandée)",
        9 => ", souvent envoyé quand la mémoire de la machine est épuisée",
        11 => " (erreur d'accès à la mémoire dans une bibliothèque)",
        15 => " (arrêt demandé)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_complaints_name_library_and_symbol() {
        let missing = "iteragpu-worker: error while loading shared libraries: libtorch_cuda.so: cannot open shared object file: No such file or directory\n";
        assert!(
            matches!(loader_error(missing), Some(LabError::LibtorchNotLoaded { library }) if library == "libtorch_cuda.so")
        );
        let other =
            "iteragpu-worker: symbol lookup error: iteragpu-worker: undefined symbol: _ZN2at4_ops6linear4callE\n";
        assert!(
            matches!(loader_error(other), Some(LabError::LibtorchMismatch { symbol }) if symbol == "_ZN2at4_ops6linear4callE")
        );
        assert!(loader_error("terminate called after throwing an instance of 'c10::Error'").is_none());
    }

    #[test]
    fn the_tail_of_a_long_error_output_is_kept() {
        let long = "x".repeat(100_000) + "end";
        let tail = read_tail(std::io::Cursor::new(long)).recv().unwrap_or_default();
        assert!(tail.len() <= 8192 && tail.ends_with("end"));
    }
}
