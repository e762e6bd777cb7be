//! Where the commands write: whatever has the name, whatever the name is, whatever the disk does, and
//! whoever else is writing, a file is there completely or not at all, and the answer says which.
#![cfg(target_os = "linux")]

mod common;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{StandIn, plan_record};
use iteragpu_lab::explore::{Plan, PlanOptions};
use iteragpu_lab::results::read_measurement;
use iteragpu_lab::{LabError, MeasureConfig, NewFile, summarize};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const COMMAND: &str = env!("CARGO_BIN_EXE_mesure-memoire");

/// A measurement as small as can be; the stand-in answers with two repetitions.
const MEASURE: [&str; 9] = ["measure", "--batch", "1", "--context", "1", "--width", "1", "--repeats", "2"];

/// A folder to write in, a worker, and beside it a measurement that can be added to a results file.
struct Place {
    folder: tempfile::TempDir,
    worker: StandIn,
    measurement: PathBuf,
}

impl Place {
    fn new() -> Outcome<Self> {
        let worker = StandIn::new("good")?;
        let measurement = worker.beside("m.json");
        let place = Self { folder: tempfile::tempdir()?, worker, measurement };
        let written = finish(&mut place.measure(&place.measurement))?;
        assert!(written.status.success(), "{}", stderr(&written));
        Ok(place)
    }

    fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    fn measure(&self, output: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(COMMAND);
        command.args(MEASURE).arg("--output").arg(output).env("ITERAGPU_WORKER", self.worker.program());
        command
    }

    fn append(&self, to: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(COMMAND);
        command.args(["results", "append", "--from"]).arg(&self.measurement).arg("--to").arg(to);
        command
    }

    /// Merges explorations of some 80 KiB, more than what is ever written at once; beside the place.
    fn merge(&self, output: impl AsRef<OsStr>) -> Outcome<Command> {
        let input = self.worker.beside("in.jsonl");
        let measurement = common::measurements()?.swap_remove(0);
        let plan = Plan::new(MeasureConfig::default(), &["width=64"], &PlanOptions::default())?;
        let line = |id| serde_json::to_string(&plan_record(id, &measurement, plan.clone())).map(|line| line + "\n");
        fs::write(&input, (0..40).map(line).collect::<Result<String, _>>()?)?;
        let mut command = Command::new(COMMAND);
        command.args(["explore", "merge", "--output"]).arg(output).arg(input);
        Ok(command)
    }

    fn names(&self) -> std::io::Result<Vec<OsString>> {
        fs::read_dir(self.folder.path())?.map(|entry| Ok(entry?.file_name())).collect()
    }
}

/// Waits, but not for ever: a command that opens a pipe nobody writes to would.
fn finish(command: &mut Command) -> Outcome<Output> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed() > Duration::from_secs(120) {
            child.kill()?;
            return Err(format!("{command:?} does not end").into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(child.wait_with_output()?)
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The measurement is on standard output, since it could not be saved.
fn is_measurement(text: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(text).is_ok_and(|value| value["artifact"] == "iteragpu-lab-v1")
}

fn skipped(reason: &str) -> Outcome {
    // Not `eprintln!`, which the harness hides when a test passes.
    Ok(writeln!(std::io::stderr(), "tests/files.rs, skipped: {reason}")?)
}

// What has the name.

/// Everything that a name can lead to.
fn obstacles(place: &Place) -> Outcome<Vec<PathBuf>> {
    let at = |name: &str| place.at(name);
    fs::write(at("file"), "kept")?;
    fs::create_dir(at("folder"))?;
    assert!(Command::new("mkfifo").arg(at("pipe")).status()?.success());
    // The name of the socket stays when its listener goes.
    drop(UnixListener::bind(at("socket"))?);
    for (link, target) in [("dangling", "nowhere"), ("linked", "file"), ("loop", "loop"), ("to-pipe", "pipe")] {
        symlink(target, at(link))?;
    }
    symlink("/dev/null", at("to-device"))?;
    let mut all: Vec<PathBuf> = place.names()?.into_iter().map(at_in(place)).collect();
    all.extend(["/dev/full", "/dev/null"].map(PathBuf::from));
    Ok(all)
}

fn at_in(place: &Place) -> impl Fn(OsString) -> PathBuf {
    |name| place.at(name)
}

/// What a name is, so that any change shows.
fn state(path: &Path) -> std::io::Result<(u64, u32, u64, i64, i64)> {
    let metadata = path.symlink_metadata()?;
    Ok((metadata.ino(), metadata.mode(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

#[test]
fn a_new_file_never_takes_a_name_that_leads_to_something() -> Outcome {
    // Were it started, this worker would keep its command waiting.
    let endless = StandIn::new("endless")?;
    let place = Place::new()?;
    let obstacles = obstacles(&place)?;
    assert_eq!(obstacles.len(), 11);
    for path in obstacles {
        let before = (state(&path)?, place.names()?.len());
        let refused = finish(place.measure(&path).env("ITERAGPU_WORKER", endless.program()))?;
        assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(2), ""), "{}", path.display());
        assert!(stderr(&refused).contains("existe déjà. Rien n'a été écrit"), "{}", stderr(&refused));
        assert_eq!((state(&path)?, place.names()?.len()), before, "{}", path.display());
    }
    Ok(())
}

#[test]
fn rows_are_added_to_nothing_but_a_results_file() -> Outcome {
    let place = Place::new()?;
    for path in obstacles(&place)? {
        let before = (state(&path)?, place.names()?.len());
        let refused = finish(&mut place.append(&path))?;
        assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(2), ""), "{}", path.display());
        assert!(stderr(&refused).contains(" refusé. "), "{}", stderr(&refused));
        assert_eq!((state(&path)?, place.names()?.len()), before, "{}", path.display());
    }
    assert_eq!(fs::read(place.at("file"))?, b"kept");
    Ok(())
}

/// Leftovers of killed processes are removed; a person's file has another name, whatever it looks like.
#[test]
fn a_persons_own_file_is_no_leftover() -> Outcome {
    let place = Place::new()?;
    let own = [".iteragpu-backup.tmp", ".iteragpu-aB3xY9.tmp"];
    for name in own {
        fs::write(place.at(name), "mine")?;
    }
    let to = place.at("r.csv");
    assert!(finish(&mut place.append(&to))?.status.success());
    // Rows are added to a copy, and with it leftovers go.
    fs::remove_file(&place.measurement)?;
    assert!(finish(&mut place.measure(&place.measurement))?.status.success());
    assert!(finish(&mut place.append(&to))?.status.success());
    for name in own {
        assert_eq!(fs::read(place.at(name))?, b"mine", "{name}");
    }
    Ok(())
}

#[test]
fn a_folder_that_cannot_be_reached_is_named_with_its_reason() -> Outcome {
    let place = Place::new()?;
    obstacles(&place)?;
    let cases = [
        ("loop/m", "les liens tournent en rond"),
        ("file/m", "un élément du chemin n'est pas un dossier"),
        ("nowhere/m", "fichier ou dossier introuvable"),
    ];
    for (name, reason) in cases {
        for (mut command, code) in [(place.measure(place.at(name)), 2), (place.append(place.at(name)), 1)] {
            let refused = finish(&mut command)?;
            assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(code), ""), "{name}");
            assert!(stderr(&refused).contains(reason), "{name}: {}", stderr(&refused));
        }
    }
    Ok(())
}

// What the name is.

#[test]
fn a_name_may_be_as_long_as_the_system_allows() -> Outcome {
    let place = Place::new()?;
    let longest = "n".repeat(255);
    for mut command in [place.measure(place.at(&longest)), place.append(place.at("m".repeat(255)))] {
        let written = finish(&mut command)?;
        assert!(written.status.success(), "{}", stderr(&written));
    }
    // The results file a second time, through its copy.
    let other = place.worker.beside("other.json");
    assert!(finish(&mut place.measure(&other))?.status.success());
    let mut again = Command::new(COMMAND);
    again.args(["results", "append", "--from"]).arg(other).arg("--to").arg(place.at("m".repeat(255)));
    assert!(finish(&mut again)?.status.success());
    assert_eq!((summarize(&place.at("m".repeat(255)))?.runs, place.names()?.len()), (2, 2));

    let too_deep = PathBuf::from("d/".repeat(2100)).join("m");
    for path in [place.at("n".repeat(256)), place.at(too_deep)] {
        for (mut command, code) in [(place.measure(&path), 2), (place.append(&path), 1)] {
            let refused = finish(&mut command)?;
            assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(code), ""));
            let said = stderr(&refused);
            assert!(said.contains("impossible ou trop long") && said.len() < 1000, "{said}");
        }
    }
    assert_eq!(place.names()?.len(), 2);
    Ok(())
}

#[test]
fn a_name_may_be_any_bytes_and_what_is_said_of_it_is_inert() -> Outcome {
    let names: [&[u8]; 6] = [
        b"not-utf8-\xff\xfe",
        b"escape-\x1b[31m\x07",
        b"line\nEVCXR_BEGIN_CONTENT text",
        "bidi-\u{202e}vsc.\u{2066}".as_bytes(),
        b"tab\tand\rreturn",
        b" ",
    ];
    for name in names {
        let place = Place::new()?;
        let (json, csv) = (OsString::from_vec(name.to_vec()), OsString::from_vec([name, b".csv"].concat()));
        let runs = [place.measure(place.at(&json)), place.measure(place.at(&json)), place.append(place.at(&csv))];
        for (mut command, code) in runs.into_iter().zip([0, 2, 0]) {
            let output = finish(&mut command)?;
            assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
            let said = String::from_utf8(output.stderr)?;
            let line = said.strip_suffix('\n').ok_or("no line")?;
            let steers = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) || c == '\u{2066}';
            assert!(!line.contains(steers) && !line.contains("EVCXR_"), "{line:?}");
        }
        read_measurement(&place.at(&json))?;
        assert_eq!((summarize(&place.at(&csv))?.runs, place.names()?.len()), (1, 2));
    }
    Ok(())
}

// What the disk does.

/// Runs `script` as the root of a namespace of its own, where it may mount; `$0` is the place, `$1` the
/// folder to mount on, and the command follows. None where the system does not allow it.
fn with_mounts(place: &Place, script: &str, command: &Command) -> Outcome<Option<Output>> {
    let mut unshare = Command::new("unshare");
    let tried = unshare.args(["--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs none \"$0\""]);
    let tried = tried.arg(place.folder.path()).output();
    if !tried.as_ref().is_ok_and(|output| output.status.success()) {
        skipped(&format!("this user may not mount anything ({tried:?})"))?;
        return Ok(None);
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--map-root-user", "--mount", "sh", "-c", script]).arg(place.folder.path());
    unshare.arg(command.get_program()).args(command.get_args());
    unshare.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    finish(&mut unshare).map(Some)
}

/// A disk of 64 KiB, filled up around what it holds; what it holds after the command follows its words.
const FULL: &str = "mount -t tmpfs -o size=64k none \"$0\" && cd \"$0\" || exit 99\n\
     printf kept > r.csv\n\
     dd if=/dev/zero of=fill bs=1k count=128 2> /dev/null\n\
     \"$@\"; code=$?\n\
     ls -A >&2; exit $code";

#[test]
fn a_full_disk_takes_no_file_and_the_measurement_is_printed() -> Outcome {
    let place = Place::new()?;
    let Some(output) = with_mounts(&place, FULL, &place.measure(place.at("m.json")))? else { return Ok(()) };
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("(disque plein, erreur 28)") && said.ends_with("\nfill\nr.csv\n"), "{said}");
    assert!(is_measurement(&stdout(&output)), "the GPU time must not be lost");
    Ok(())
}

#[test]
fn a_full_disk_takes_no_merged_file() -> Outcome {
    let place = Place::new()?;
    let output = with_mounts(&place, FULL, &place.merge(place.at("all.jsonl"))?)?;
    let Some(output) = output else { return Ok(()) };
    let said = stderr(&output);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{said}");
    assert!(said.contains("(disque plein, erreur 28)") && said.ends_with("\nfill\nr.csv\n"), "{said}");
    Ok(())
}

#[test]
fn a_full_disk_keeps_the_results_file_as_it_was() -> Outcome {
    let place = Place::new()?;
    let results = place.worker.beside("r.csv");
    assert!(finish(&mut place.append(&results))?.status.success());
    let other = place.worker.beside("other.json");
    assert!(finish(&mut place.measure(&other))?.status.success());
    let mut command = Command::new(COMMAND);
    command.args(["results", "append", "--from"]).arg(&other).arg("--to").arg(place.at("r.csv"));
    let script = FULL.replace("printf kept > r.csv", &format!("cp '{}' r.csv", results.display()));
    let script = script.replace("ls -A >&2", &format!("cmp '{}' r.csv && ls -A >&2", results.display()));
    let Some(output) = with_mounts(&place, &script, &command)? else { return Ok(()) };
    let said = stderr(&output);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{said}");
    assert!(said.contains("(disque plein, erreur 28)") && said.ends_with("\nfill\nr.csv\n"), "{said}");
    Ok(())
}

/// A file without a name gets one through /proc; where that is hidden, a temporary file serves.
#[test]
fn without_proc_a_file_is_written_all_the_same() -> Outcome {
    let place = Place::new()?;
    let script = "mount -t tmpfs none /proc && test ! -e /proc/self && exec \"$@\"";
    let Some(output) = with_mounts(&place, script, &place.measure(place.at("m.json")))? else { return Ok(()) };
    assert!(output.status.success(), "{}", stderr(&output));
    read_measurement(&place.at("m.json"))?;
    assert_eq!(place.names()?.len(), 1);
    Ok(())
}

#[test]
fn a_read_only_disk_is_refused_before_anything_is_measured() -> Outcome {
    let endless = StandIn::new("endless")?;
    let place = Place::new()?;
    let script = "mount -t tmpfs -o ro none \"$0\" && exec \"$@\"";
    let mut command = place.measure(place.at("m.json"));
    command.env("ITERAGPU_WORKER", endless.program());
    let Some(output) = with_mounts(&place, script, &command)? else { return Ok(()) };
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
    assert!(stderr(&output).contains("(système de fichiers en lecture seule)"), "{}", stderr(&output));
    Ok(())
}

/// Root may write anywhere: the command is then run by somebody else.
#[test]
fn a_folder_of_others_is_refused_before_anything_is_measured() -> Outcome {
    let place = Place::new()?;
    let program = place.at("mesure-memoire");
    // By another process, for the reason given in `common::program`.
    assert!(Command::new("cp").arg(COMMAND).arg(&program).status()?.success());
    let folder = place.at("d");
    fs::create_dir(&folder)?;
    for (path, mode) in [(folder.as_path(), 0o555), (place.folder.path(), 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    let mut command = Command::new(program);
    command.args(MEASURE).arg("--output").arg(folder.join("m.json"));
    if folder.metadata()?.uid() == 0 {
        command.uid(65534).gid(65534);
    }
    let refused = finish(&mut command)?;
    assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(2), ""));
    assert!(stderr(&refused).contains("(droits insuffisants)"), "{}", stderr(&refused));
    assert_eq!(fs::read_dir(folder)?.count(), 0);
    Ok(())
}

/// The limit on the size of files stops a write half-way, and no signal ends the command.
#[test]
fn a_limit_on_sizes_takes_no_file_and_the_measurement_is_printed() -> Outcome {
    for blocks in [0, 1, 2] {
        let place = Place::new()?;
        let measure = place.measure(place.at("m.json"));
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -f {blocks}; exec \"$@\""), "sh"]);
        limited.arg(measure.get_program()).args(measure.get_args()).env("ITERAGPU_WORKER", place.worker.program());
        let output = finish(&mut limited)?;
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains("limite de taille des fichiers atteinte"), "{}", stderr(&output));
        assert!(is_measurement(&stdout(&output)) && place.names()?.is_empty());
    }
    Ok(())
}

/// Stopped before anything is written, after some of it, and not at all.
#[test]
fn a_limit_on_sizes_takes_no_merged_file() -> Outcome {
    let place = Place::new()?;
    let merge = place.merge(place.at("all.jsonl"))?;
    for (blocks, code) in [(0, 1), (60, 1), (100_000, 0)] {
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -f {blocks}; exec \"$@\""), "sh"]);
        limited.arg(merge.get_program()).args(merge.get_args());
        let output = finish(&mut limited)?;
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert_eq!(stderr(&output).contains("limite de taille des fichiers atteinte"), code == 1);
        assert_eq!(place.names()?.len(), usize::from(code == 0));
    }
    Ok(())
}

#[test]
fn a_full_standard_output_is_told_by_every_command() -> Outcome {
    let place = Place::new()?;
    assert!(finish(&mut place.append(place.at("r.csv")))?.status.success());
    let results = place.at("r.csv").display().to_string();
    let prices = env!("CARGO_BIN_EXE_calcul-forfaits");
    let lines: [(&str, &[&str]); 7] = [
        (COMMAND, &["estimate", "--parameters", "7", "--bits", "16"]),
        (COMMAND, &["environment"]),
        (COMMAND, &MEASURE),
        (COMMAND, &["results", "summary", &results]),
        (COMMAND, &["--help"]),
        (prices, &["--liste"]),
        (prices, &["--gpu", "v100", "--days", "7"]),
    ];
    for (program, arguments) in lines {
        let full = fs::OpenOptions::new().write(true).open("/dev/full")?;
        let mut command = Command::new(program);
        command.args(arguments).env("ITERAGPU_WORKER", place.worker.program()).stdin(Stdio::null()).stdout(full);
        let output = command.output()?;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = stderr(&output);
        assert!(said.contains("n'a pas pu être écrit sur la sortie standard (disque plein"), "{arguments:?}: {said}");
    }
    Ok(())
}

// Who else is writing.

const AT_ONCE: usize = 50;

#[test]
fn of_many_exports_to_one_name_exactly_one_wins() -> Outcome {
    let place = Place::new()?;
    let file = place.at("m.json");
    let start = || place.measure(&file).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let children = (0..AT_ONCE).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
    let mut winners = 0;
    for child in children {
        let output = child.wait_with_output()?;
        match output.status.code() {
            Some(0) => winners += 1,
            // Refused at the end, or at the beginning.
            Some(1) => assert!(is_measurement(&stdout(&output)) && stderr(&output).contains("existe déjà")),
            Some(2) => assert!(stderr(&output).contains("existe déjà")),
            other => return Err(format!("{other:?}: {}", stderr(&output)).into()),
        }
    }
    assert_eq!((winners, place.names()?), (1, vec![OsString::from("m.json")]));
    assert!(fs::read(&file)?.ends_with(b"}\n"));
    read_measurement(&file)?;
    Ok(())
}

#[test]
fn of_many_threads_exactly_one_writes_all_that_it_has() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("m.json");
    let write = |number: usize| {
        let contents = format!("{number} ").repeat(10_000);
        NewFile::check(&path).and_then(|file| file.write(contents.as_bytes())).map(|()| contents)
    };
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|number| scope.spawn(move || write(number))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    assert_eq!(outcomes.len(), AT_ONCE);
    let (won, lost): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert!(lost.iter().all(|outcome| matches!(outcome, Err(LabError::FileExists { .. }))));
    let won = won.into_iter().collect::<Result<Vec<_>, _>>()?;
    assert_eq!((won, fs::read_dir(folder.path())?.count()), (vec![fs::read_to_string(&path)?], 1));
    Ok(())
}

#[test]
fn a_merge_that_is_killed_leaves_a_complete_file_or_nothing() -> Outcome {
    const MOMENTS: u32 = 20;
    let place = Place::new()?;
    let file = place.at("all.jsonl");
    let mut merge = place.merge(&file)?;
    let start = Instant::now();
    assert!(finish(&mut merge)?.status.success());
    let (lasts, complete) = (start.elapsed(), fs::read(&file)?);
    for moment in 0..=MOMENTS {
        fs::remove_file(&file).or_else(|error| if file.exists() { Err(error) } else { Ok(()) })?;
        let mut child = merge.spawn()?;
        std::thread::sleep(lasts * moment / MOMENTS);
        child.kill()?;
        child.wait()?;
        let names = place.names()?;
        assert!(names.is_empty() || (names == ["all.jsonl"] && fs::read(&file)? == complete), "{names:?}");
    }
    Ok(())
}

// What survives a power cut.

/// Stands before the C library's `fsync`: writes down what is synced, and how long the file of the name
/// is at that moment (-1: it is not there); fails where it is told to.
const SYNC: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd) {
  struct stat synced, named;
  if (fstat(fd, &synced) != 0) return -1;
  int folder = S_ISDIR(synced.st_mode);
  FILE* log = fopen(getenv("SYNC_LOG"), "a");
  if (log) {
    long length = stat(getenv("SYNC_NAME"), &named) == 0 ? (long)named.st_size : -1;
    fprintf(log, "%s %ld\n", folder ? "folder" : "file", length);
    fclose(log);
  }
  const char* error = getenv(folder ? "SYNC_FOLDER_ERROR" : "SYNC_FILE_ERROR");
  if (error) { errno = atoi(error); return -1; }
  return (int)syscall(SYS_fsync, fd);
}
"#;

/// A command whose syncs are watched, and may fail.
struct Watched {
    place: Place,
    library: PathBuf,
}

impl Watched {
    fn new() -> Outcome<Self> {
        let place = Place::new()?;
        let (source, library) = (place.worker.beside("sync.c"), place.worker.beside("sync.so"));
        fs::write(&source, SYNC)?;
        // Rust itself needs this program to link.
        assert!(Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status()?.success());
        Ok(Self { place, library })
    }

    /// What the command did, and the syncs in their order.
    fn run(&self, command: &mut Command, name: &Path, error: Option<(&str, i32)>) -> Outcome<(Output, String)> {
        let log = self.place.worker.beside("log");
        let _ = fs::remove_file(&log);
        command.env("LD_PRELOAD", &self.library).env("SYNC_LOG", &log).env("SYNC_NAME", name);
        if let Some((what, number)) = error {
            command.env(what, number.to_string());
        }
        Ok((finish(command)?, fs::read_to_string(&log)?))
    }
}

#[test]
fn file_and_folder_are_synced_before_success_is_told() -> Outcome {
    let watched = Watched::new()?;
    let (place, length) = (&watched.place, |path: &Path| Ok::<_, std::io::Error>(path.metadata()?.len()));
    let (json, csv) = (place.at("m.json"), place.at("r.csv"));
    let (output, syncs) = watched.run(&mut place.measure(&json), &json, None)?;
    assert!(output.status.success());
    assert_eq!(syncs, format!("file -1\nfolder {}\n", length(&json)?));

    let merged = place.at("all.jsonl");
    let (output, syncs) = watched.run(&mut place.merge(&merged)?, &merged, None)?;
    assert!(output.status.success());
    assert_eq!(syncs, format!("file -1\nfolder {}\n", length(&merged)?));

    let (output, syncs) = watched.run(&mut place.append(&csv), &csv, None)?;
    let first = length(&csv)?;
    assert!(output.status.success());
    assert_eq!(syncs, format!("file -1\nfolder {first}\n"));

    let mut append = Command::new(COMMAND);
    append.args(["results", "append", "--from"]).arg(&json).arg("--to").arg(&csv);
    let (output, syncs) = watched.run(&mut append, &csv, None)?;
    assert!(output.status.success());
    assert_eq!(syncs, format!("file {first}\nfolder {}\n", length(&csv)?));
    Ok(())
}

const EIO: i32 = 5;
const UNSUPPORTED: [i32; 2] = [22, 95];

#[test]
fn a_disk_that_does_not_confirm_a_name_is_told() -> Outcome {
    let watched = Watched::new()?;
    let place = &watched.place;
    let (json, csv) = (place.at("m.json"), place.at("r.csv"));
    let failing = Some(("SYNC_FOLDER_ERROR", EIO));
    let (output, _) = watched.run(&mut place.measure(&json), &json, failing)?;
    let told = "est écrit en entier, mais le disque ne confirme pas qu'il le gardera (panne du disque, erreur 5)";
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(told) && is_measurement(&stdout(&output)), "{}", stderr(&output));
    read_measurement(&json)?;

    for runs in 1..=2 {
        let mut append = Command::new(COMMAND);
        let from = if runs == 1 { &place.measurement } else { &json };
        append.args(["results", "append", "--from"]).arg(from).arg("--to").arg(&csv);
        let (output, _) = watched.run(&mut append, &csv, failing)?;
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(told), "{}", stderr(&output));
        assert_eq!(summarize(&csv)?.runs, runs);
    }
    // A file system that cannot sync folders has nothing to tell.
    for number in UNSUPPORTED {
        let json = place.at(format!("{number}.json"));
        let (output, _) = watched.run(&mut place.measure(&json), &json, Some(("SYNC_FOLDER_ERROR", number)))?;
        assert!(output.status.success(), "{}", stderr(&output));
    }
    Ok(())
}

#[test]
fn a_disk_that_does_not_take_the_contents_gets_no_name() -> Outcome {
    let watched = Watched::new()?;
    let place = &watched.place;
    let (json, csv) = (place.at("m.json"), place.at("r.csv"));
    let failing = Some(("SYNC_FILE_ERROR", EIO));
    let (output, syncs) = watched.run(&mut place.measure(&json), &json, failing)?;
    assert_eq!((output.status.code(), syncs.as_str()), (Some(1), "file -1\n"));
    assert!(is_measurement(&stdout(&output)) && place.names()?.is_empty());

    let (output, _) = watched.run(&mut place.merge(&json)?, &json, failing)?;
    assert_eq!((output.status.code(), place.names()?.len()), (Some(1), 0));

    let (output, _) = watched.run(&mut place.append(&csv), &csv, failing)?;
    assert_eq!((output.status.code(), place.names()?.len()), (Some(1), 0));

    assert!(finish(&mut place.append(&csv))?.status.success());
    let other = place.worker.beside("other.json");
    assert!(finish(&mut place.measure(&other))?.status.success());
    let before = fs::read(&csv)?;
    let mut append = Command::new(COMMAND);
    append.args(["results", "append", "--from"]).arg(&other).arg("--to").arg(&csv);
    let (output, _) = watched.run(&mut append, &csv, failing)?;
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("Rien n'a été enregistré sous ce nom."), "{}", stderr(&output));
    assert_eq!((fs::read(&csv)?, place.names()?), (before, vec![OsString::from("r.csv")]));
    Ok(())
}
