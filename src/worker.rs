//! Finds the worker, starts one fresh process a request, and turns whatever happens to it into an
//! answer or a reason. The process never outlives the call.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{LabError, shortened};
use crate::measure::{Digests, PhaseRow, SyntheticModel};
use crate::protocol::{DeviceObservations, Message, Request, VERSION, WorkerEnvironment};

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

/// Takes each row as it arrives; an error ends the worker.
pub(crate) type OnRow<'a> = &'a mut dyn FnMut(PhaseRow) -> Result<(), LabError>;

/// What a worker ended with.
#[derive(Debug)]
pub(crate) enum Answer {
    Environment(WorkerEnvironment),
    Measured {
        environment: WorkerEnvironment,
        synthetic_model: SyntheticModel,
        digests_sha256: Option<Digests>,
        device_time: Option<Box<DeviceObservations>>,
    },
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
            // Made absolute: a bare name would be checked here but started from PATH.
            let path = std::path::absolute(path).map_err(|_| LabError::WorkerVariable)?;
            return if is_program(&path) { Ok(Self::at(path)) } else { Err(LabError::WorkerVariable) };
        }
        let name = format!("{WORKER_NAME}{}", env::consts::EXE_SUFFIX);
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join("release");
        let beside = env::current_exe().ok().and_then(|program| program.parent().map(Path::to_path_buf));
        let on_path = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
        let mut folders = [built].into_iter().chain(beside).chain(on_path);
        folders
            .find_map(|folder| std::path::absolute(folder.join(&name)).ok().filter(|path| is_program(path)))
            .map(Self::at)
            .ok_or(LabError::WorkerMissing)
    }

    /// Runs one request in one fresh process and passes each row on as it arrives.
    pub(crate) fn ask(&self, request: &Request, on_row: OnRow<'_>) -> Result<Answer, LabError> {
        let mut process = WorkerProcess::start(&self.path, request)?;
        let answer = listen(request, &mut process, self.patience, on_row);
        if answer.is_ok() {
            process.wait_for_exit();
        }
        answer
    }
}

/// Where a worker's messages come from.
trait Messages {
    /// The next message, waited for no longer than `patience`; none waits for ever.
    fn next_message(&mut self, patience: Option<Duration>) -> Result<Message, LabError>;
}

/// Follows a worker from its greeting to its answer.
fn listen(
    request: &Request,
    messages: &mut impl Messages,
    given: Duration,
    on_row: OnRow<'_>,
) -> Result<Answer, LabError> {
    let hello = messages.next_message(Some(given))?;
    let Message::Hello { worker_version } = hello else {
        return Err(LabError::not_the_protocol("un premier message sans version"));
    };
    if worker_version != VERSION {
        return Err(LabError::WorkerVersion { found: shortened(&worker_version, 40), expected: VERSION.to_owned() });
    }
    let mut patience = Some(given);
    loop {
        match (messages.next_message(patience)?, request) {
            // Nobody can say beforehand how long a measurement takes.
            (Message::Ready, Request::Measure { .. }) => patience = None,
            (Message::Phase { row }, Request::Measure { .. }) => {
                patience = None;
                on_row(row)?;
            }
            (Message::Environment { environment }, Request::Environment { .. }) => {
                return Ok(Answer::Environment(environment));
            }
            (
                Message::Measured { environment, synthetic_model, digests_sha256, device_time },
                Request::Measure { .. },
            ) => {
                return Ok(Answer::Measured { environment, synthetic_model, digests_sha256, device_time });
            }
            (Message::Failed { failure }, _) => return Err(LabError::Unavailable(failure)),
            _ => return Err(LabError::not_the_protocol("un message qui n'a pas sa place ici")),
        }
    }
}

/// What a worker wrote, without the worker: it goes the way of a live one, so that any bytes at all
/// can be tried in great number.
#[doc(hidden)]
#[derive(Debug)]
pub struct Recorded<R> {
    output: BufReader<R>,
    last_words: String,
}

impl<R: Read> Recorded<R> {
    /// `output` stands for the standard output; `last_words`, for the end of the standard error.
    pub fn new(output: R, last_words: &[u8]) -> Self {
        Self { output: BufReader::new(output), last_words: String::from_utf8_lossy(last_words).into_owned() }
    }

    /// As [`WorkerProgram::ask`].
    pub(crate) fn ask(&mut self, request: &Request, on_row: OnRow<'_>) -> Result<Answer, LabError> {
        listen(request, self, Duration::ZERO, on_row)
    }
}

impl<R: Read> Messages for Recorded<R> {
    fn next_message(&mut self, _: Option<Duration>) -> Result<Message, LabError> {
        let Some(line) = next_line(&mut self.output) else {
            return Err(reason_of_end(0, &self.last_words, None));
        };
        message_in(&line).map_err(|found| match found {
            NoMessage::Whole(found) => LabError::NotTheProtocol { found },
            NoMessage::Cut(found) => reason_of_end(0, &self.last_words, Some(found)),
        })
    }
}

/// A running worker. Dropping it kills and reaps the process.
struct WorkerProcess {
    child: Child,
    lines: Receiver<Vec<u8>>,
    last_words: Arc<Mutex<Vec<u8>>>,
    /// Carries nothing; its other end goes with the reader of the last words.
    no_more_words: Receiver<()>,
}

/// How often a silent worker is looked at.
const GLANCE: Duration = Duration::from_millis(200);

impl WorkerProcess {
    fn start(path: &Path, request: &Request) -> Result<Self, LabError> {
        let line = serde_json::to_string(request).map_err(|error| LabError::WorkerStart(error.into()))?;
        let (Request::Environment { device_index } | Request::Measure { device_index, .. }) = request;
        let child = Command::new(path)
            // A hint: the worker starts this device while the loader is still busy with libtorch.
            .arg(format!("cuda:{device_index}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(LabError::WorkerStart)?;
        let (sender, lines) = mpsc::sync_channel(LINES_IN_FLIGHT);
        let (reading, no_more_words) = mpsc::channel();
        // From here on the process ends with this value, whatever else fails.
        let mut process = Self { child, lines, last_words: Arc::default(), no_more_words };
        if let Some(stdin) = process.child.stdin.as_mut() {
            // A worker that dies before reading is told apart by its exit, not by this write.
            let _ = stdin.write_all(format!("{line}\n").as_bytes());
        }
        if let Some(output) = process.child.stdout.take() {
            in_background(move || send_lines(output, &sender))?;
        }
        if let Some(output) = process.child.stderr.take() {
            let last_words = Arc::clone(&process.last_words);
            in_background(move || {
                keep_tail(output, &last_words);
                drop(reading);
            })?;
        }
        Ok(process)
    }

    fn wait_for_line(&mut self, patience: Option<Duration>) -> Result<Vec<u8>, RecvTimeoutError> {
        let start = Instant::now();
        loop {
            let left = patience.map_or(GLANCE, |patience| patience.saturating_sub(start.elapsed()));
            match self.lines.recv_timeout(left.min(GLANCE)) {
                // A dead worker's output can stay open in the hands of a process that it started.
                Err(RecvTimeoutError::Timeout) if matches!(self.child.try_wait(), Ok(Some(_))) => {
                    return self.lines.recv_timeout(GLANCE).map_err(|_| RecvTimeoutError::Disconnected);
                }
                Err(RecvTimeoutError::Timeout) if patience.is_none_or(|patience| start.elapsed() < patience) => {}
                line => return line,
            }
        }
    }

    fn why_it_ended(&mut self, cut_line: Option<String>) -> LabError {
        let Some(status) = self.wait_for_exit() else {
            let found = cut_line.unwrap_or_else(|| "une sortie fermée trop tôt".to_owned());
            return LabError::NotTheProtocol { found };
        };
        let code = match signal_of(status) {
            // A library that gives up says why, and its words are the reason.
            Some(ABORTED) => 128 + ABORTED,
            Some(signal) => return LabError::WorkerKilled { signal, hint: signal_hint(signal) },
            None => status.code().unwrap_or_default(),
        };
        reason_of_end(code, &self.last_words(), cut_line)
    }

    /// The end of what the worker wrote on its standard error; its reader may still be at work.
    fn last_words(&self) -> String {
        let _ = self.no_more_words.recv_timeout(GLANCE);
        self.last_words.lock().map(|tail| String::from_utf8_lossy(&tail).into_owned()).unwrap_or_default()
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

impl Messages for WorkerProcess {
    fn next_message(&mut self, patience: Option<Duration>) -> Result<Message, LabError> {
        match self.wait_for_line(patience) {
            Ok(line) => message_in(&line).map_err(|found| match found {
                NoMessage::Whole(found) => LabError::NotTheProtocol { found },
                NoMessage::Cut(found) => self.why_it_ended(Some(found)),
            }),
            Err(RecvTimeoutError::Timeout) => {
                Err(LabError::WorkerSilent { seconds: patience.unwrap_or_default().as_secs() })
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.why_it_ended(None)),
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Both are without effect on a process that has already been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A worker that floods its caller has to wait, instead of filling the caller's memory.
const LINES_IN_FLIGHT: usize = 1024;

fn in_background(task: impl FnOnce() + Send + 'static) -> Result<(), LabError> {
    thread::Builder::new().spawn(task).map(drop).map_err(LabError::WorkerStart)
}

/// Sends each line, until the end.
fn send_lines(output: impl Read, lines: &SyncSender<Vec<u8>>) {
    let mut output = BufReader::new(output);
    while let Some(line) = next_line(&mut output) {
        if lines.send(line).is_err() {
            return;
        }
    }
}

/// The next line with its newline, or the start of one that is too long; none at the end.
fn next_line(output: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let read = output.take(LONGEST_LINE).read_until(b'\n', &mut line);
    matches!(read, Ok(1..)).then_some(line)
}

/// A line that is no message, as it is quoted.
enum NoMessage {
    Whole(String),
    /// What a dying worker leaves: then its end is the reason, not the line.
    Cut(String),
}

fn message_in(line: &[u8]) -> Result<Message, NoMessage> {
    serde_json::from_slice(line).map_err(|_| {
        let found = without_paths(&shortened(String::from_utf8_lossy(line).trim_end(), 120));
        let is_whole = line.ends_with(b"\n") || line.len() as u64 == LONGEST_LINE;
        if is_whole { NoMessage::Whole(found) } else { NoMessage::Cut(found) }
    })
}

/// Why a worker that was not killed ended without an answer.
fn reason_of_end(code: i32, last_words: &str, cut_line: Option<String>) -> LabError {
    if let Some(error) = loader_error(last_words) {
        return error;
    }
    if let Some(found) = cut_line {
        return LabError::NotTheProtocol { found };
    }
    LabError::WorkerStopped { code, last_words: without_paths(&shortened(telling_line(last_words), 300)) }
}

/// The line that says why: what C++ calls the reason, which libtorch lets a list of frames follow, or else
/// the last one.
fn telling_line(last_words: &str) -> &str {
    let reason = last_words.lines().find_map(|line| line.trim().strip_prefix("what():"));
    let last = || last_words.lines().rev().find(|line| !line.trim().is_empty());
    reason.or_else(last).unwrap_or("aucun").trim()
}

/// Reads to the end and keeps the last few kilobytes, so that a talkative worker never blocks.
fn keep_tail(mut output: impl Read, kept: &Mutex<Vec<u8>>) {
    const KEPT: usize = 8192;
    let mut chunk = [0; KEPT];
    while let Ok(read @ 1..) = output.read(&mut chunk) {
        let Ok(mut tail) = kept.lock() else { return };
        tail.extend_from_slice(&chunk[..read]);
        let surplus = tail.len().saturating_sub(KEPT);
        tail.drain(..surplus);
    }
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    path.is_file()
}

/// A machine's paths say nothing to a reader, and more than they should to others: only their last
/// part is kept.
fn without_paths(text: &str) -> String {
    let shortened = |word: &str| match word.contains('/') {
        true => word.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned(),
        false => word.to_owned(),
    };
    text.split(' ').map(shortened).collect::<Vec<_>>().join(" ")
}

/// The dynamic loader's two complaints, as glibc words them.
fn loader_error(last_words: &str) -> Option<LabError> {
    let after = |marker: &str| last_words.split_once(marker).map(|(_, rest)| rest);
    if let Some(rest) = after("error while loading shared libraries: ") {
        let rest = rest.lines().next().unwrap_or(rest);
        let (library, words) = rest.split_once(": ").unwrap_or((rest, ""));
        let library = shortened(library.rsplit('/').next().unwrap_or(library), 80);
        // Found but damaged, or no memory left: then the library is not what is missing.
        return Some(match words.contains("No such file") {
            true => LabError::LibtorchNotLoaded { library },
            false => LabError::LibtorchUnusable { library, words: without_paths(&shortened(words, 160)) },
        });
    }
    // A library that looks a symbol up by itself words its complaint otherwise.
    let (_, rest) = after("symbol lookup error: ")?.split_once("undefined symbol: ")?;
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

/// What touching the missing part of a file ends with (SIGBUS, as Linux numbers it).
pub(crate) const BUS_ERROR: i32 = 7;

/// The signal by which a program ends itself (SIGABRT); a shell reports it as code 134.
const ABORTED: i32 = 6;

fn signal_hint(signal: i32) -> &'static str {
    match signal {
        2 => " (interruption demandée)",
        BUS_ERROR => " (un fichier chargé est incomplet : une bibliothèque tronquée, ou un disque plein ou défaillant)",
        9 => ", souvent envoyé quand la mémoire de la machine est épuisée",
        11 => " (erreur d'accès à la mémoire dans une bibliothèque)",
        15 => " (arrêt demandé)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Extras, MeasureConfig};

    /// Messages at hand, and how long each would have been waited for.
    struct Timed {
        messages: std::vec::IntoIter<Message>,
        waits: Vec<Option<Duration>>,
    }

    impl Messages for Timed {
        fn next_message(&mut self, patience: Option<Duration>) -> Result<Message, LabError> {
            self.waits.push(patience);
            self.messages.next().ok_or(LabError::WorkerMissing)
        }
    }

    #[test]
    fn a_measurement_that_has_begun_takes_its_time() {
        let messages = vec![Message::Hello { worker_version: VERSION.to_owned() }, Message::Ready];
        let mut timed = Timed { messages: messages.into_iter(), waits: Vec::new() };
        let request =
            Request::Measure { device_index: 0, configuration: MeasureConfig::default(), extras: Extras::default() };
        let given = Duration::from_secs(7);
        let ended = listen(&request, &mut timed, given, &mut |_| Ok(()));
        assert!(matches!(ended, Err(LabError::WorkerMissing)), "{ended:?}");
        assert_eq!(timed.waits, [Some(given), Some(given), None]);
    }

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
        assert!(loader_error("  what():  Error in dlopen or dlsym: libcuda.so.1: undefined symbol: cuInit").is_none());
    }

    #[test]
    fn a_library_that_is_there_is_not_called_missing() {
        let damaged = "w: error while loading shared libraries: /home/a b/libtorch_cpu.so: file too short\n";
        let error = loader_error(damaged).map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("libtorch_cpu.so") && error.contains("file too short"), "{error}");
        assert!(!error.contains("libtorch_cpu.so manque") && !error.contains("home"), "{error}");
    }

    #[test]
    fn only_the_line_of_a_dying_worker_is_cut() {
        assert!(matches!(message_in(b"text\n"), Err(NoMessage::Whole(found)) if found == "text"));
        assert!(matches!(message_in(b"te"), Err(NoMessage::Cut(found)) if found == "te"));
        let endless = vec![b'x'; 1 << 20];
        assert!(matches!(message_in(&endless), Err(NoMessage::Whole(_))));
    }

    #[test]
    fn a_signal_that_is_known_is_explained() {
        // SIGINT, SIGKILL, SIGSEGV, SIGTERM, SIGUSR1.
        let hints = [2, 9, 11, 15, 10].map(signal_hint);
        for (hint, expected) in hints.into_iter().zip(["interruption", "épuisée", "accès", "arrêt"]) {
            assert!(hint.contains(expected), "{hint}");
        }
        assert_eq!(hints[4], "");
    }

    #[cfg(unix)]
    #[test]
    fn a_program_is_a_file_that_somebody_may_run() -> Result<(), Box<dyn std::error::Error>> {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("worker");
        assert!(!is_program(&file) && !is_program(folder.path()));
        std::fs::write(&file, "")?;
        for (mode, expected) in [(0o644, false), (0o755, true), (0o641, true), (0o600, false)] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode))?;
            assert_eq!(is_program(&file), expected, "{mode:o}");
        }
        Ok(())
    }

    #[test]
    fn paths_are_reduced_to_their_last_part() {
        assert_eq!(without_paths("/a/b/worker: not found (in /lib/x.so.6)"), "worker: not found (in x.so.6)");
    }

    #[test]
    fn the_tail_of_a_long_error_output_is_kept() {
        let (long, kept) = ("x".repeat(100_000) + "end", Mutex::default());
        keep_tail(std::io::Cursor::new(long), &kept);
        let tail = kept.into_inner().unwrap_or_default();
        assert!(tail.len() <= 8192 && tail.ends_with(b"end"));
    }
}
