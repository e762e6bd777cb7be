//! `cargo xtask fuzz`: runs the programs of `fuzz/`, which look for an input that breaks the library.
//!
//! They are built by cargo itself, with the flags that cargo-fuzz 0.13 passes for `--sanitizer none`:
//! all of them are stable, so that neither a nightly compiler, nor clang, nor the two minutes of
//! installing cargo-fuzz are needed. `cargo fuzz run --sanitizer none tariffs` works as well.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use tempfile::TempDir;

use crate::workspace;
use crate::{UsageError, progress::LongStep};

#[derive(Args)]
pub struct FuzzArgs {
    /// Cibles, parmi tariffs, results, measurement, exploration, protocol et command_line ; sans nom, toutes
    #[arg(value_name = "CIBLE")]
    targets: Vec<String>,
    /// Secondes que dure la recherche, pour chaque cible [par défaut : 60]
    #[arg(long, value_name = "NOMBRE", default_value_t = 60, hide_default_value = true)]
    seconds: u64,
    /// Cherche une faute plantée exprès, qui doit être trouvée
    #[arg(long, conflicts_with_all = ["targets", "seconds"])]
    planted: bool,
}

const TARGETS: [&str; 6] = ["tariffs", "results", "measurement", "exploration", "protocol", "command_line"];

/// The one of [`TARGETS`] with a wrong claim behind the feature `planted`.
const PLANTED: &str = "tariffs";

const MANIFEST: &str = "fuzz/Cargo.toml";

/// Coverage counters and comparisons for libFuzzer; one unit, since they keep ThinLTO from inlining.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
     -Cllvm-args=-sanitizer-coverage-stack-depth -Ccodegen-units=1 --cfg fuzzing";

pub fn run(arguments: &FuzzArgs) -> Result<ExitCode> {
    if arguments.planted {
        return planted_fault_is_found().map(|()| ExitCode::SUCCESS);
    }
    let known = TARGETS.into_iter().filter(|name| arguments.targets.iter().any(|asked| asked == name));
    let unknown = arguments.targets.iter().find(|asked| !TARGETS.contains(&asked.as_str()));
    if let Some(unknown) = unknown {
        return Err(
            UsageError(format!("Cible inconnue : {unknown}. Celles qui existent : {}.", TARGETS.join(", "))).into()
        );
    }
    if arguments.seconds == 0 {
        return Err(UsageError("--seconds : au moins 1.".to_owned()).into());
    }
    let chosen: Vec<&str> = if arguments.targets.is_empty() { TARGETS.to_vec() } else { known.collect() };
    let limit = format!("-max_total_time={}", arguments.seconds);
    let found = search_all(&chosen, &[&limit])?;
    Ok(if found { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whether any of the targets found something.
fn search_all(targets: &[&str], limits: &[&str]) -> Result<bool> {
    let programs = build(&[])?;
    let mut found = false;
    for target in targets {
        let search = search(&programs, target, limits)?;
        println!("{}", search.told(target));
        found |= search.finding.is_some();
    }
    Ok(found)
}

/// For `cargo xtask test`: a few seconds each, then a planted fault, which has to be found.
pub fn check() -> Result<()> {
    // Always the same search, as far as the time reaches: a test that tells of a change must not depend on luck.
    const LIMITS: [&str; 2] = ["-max_total_time=5", "-seed=1"];
    workspace::succeed(&mut workspace::cargo(&["fmt", "--manifest-path", MANIFEST, "--check"]))?;
    if search_all(&TARGETS, &LIMITS)? {
        bail!("une entrée met la bibliothèque en défaut");
    }
    workspace::succeed(cargo("clippy", &["--all-targets"])?.args(["--", "-D", "warnings"]))?;
    planted_fault_is_found()
}

fn planted_fault_is_found() -> Result<()> {
    let programs = build(&["--features", "planted", "--bin", PLANTED])?;
    // The inputs in the repository do not show it: it has to be searched for.
    let mut replay = Command::new(programs.join(PLANTED));
    replay.arg("-runs=0").arg(workspace::root().join("fuzz/corpus").join(PLANTED));
    workspace::output_of(&mut replay)?;
    let search = search(&programs, PLANTED, &["-max_total_time=60"])?;
    println!("{}", search.told("faute plantée"));
    let Some(finding) = search.finding else { bail!("la faute plantée n'a pas été trouvée") };
    // The input that was kept shows the fault again, which is no fault of the library.
    let again = Command::new(programs.join(PLANTED)).arg(&finding.input).stderr(Stdio::null()).status()?;
    if again.success() || !finding.words.contains("planted") {
        bail!("l'entrée trouvée ne montre pas la faute plantée : {}", finding.words);
    }
    fs::remove_file(&finding.input).with_context(|| format!("impossible de retirer {}", finding.input.display()))
}

/// Builds the programs and gives their folder.
fn build(options: &[&str]) -> Result<PathBuf> {
    let summarize = |lines: &[String]| lines.last().cloned().unwrap_or_default();
    LongStep::start("Cibles de fuzz", cargo("build", options)?, summarize)?.wait()?;
    Ok(target_folder().join(host()?).join("release"))
}

fn target_folder() -> PathBuf {
    workspace::target().join("fuzz")
}

fn cargo(task: &str, options: &[&str]) -> Result<Command> {
    // With a target named, build scripts and macros are compiled without the flags.
    let mut command = workspace::cargo(&[task, "--manifest-path", MANIFEST, "--locked", "--release", "--target"]);
    command.arg(host()?).arg("--target-dir").arg(target_folder()).args(options);
    command.env("RUSTFLAGS", FLAGS).env_remove("CARGO_ENCODED_RUSTFLAGS");
    Ok(command)
}

/// The machine's own target, such as `x86_64-unknown-linux-gnu`.
fn host() -> Result<String> {
    let version = workspace::output_of(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("« rustc -vV » ne dit pas pour quelle machine il compile")
}

/// What a program did until its time was over, or until it found something.
#[derive(Debug, PartialEq)]
struct Search {
    executions: u64,
    coverage: u64,
    seconds: u64,
    finding: Option<Finding>,
}

#[derive(Debug, PartialEq)]
struct Finding {
    input: PathBuf,
    words: String,
}

impl Search {
    fn told(&self, target: &str) -> String {
        let Self { executions, coverage, seconds, .. } = self;
        let done = format!("{target} : {executions} exécutions en {seconds} s, {coverage} endroits du code atteints");
        match &self.finding {
            None => format!("{done}, rien trouvé"),
            Some(finding) => format!("{done}, TROUVÉ : {}\n  entrée : {}", finding.words, finding.input.display()),
        }
    }
}

/// Starts from the inputs kept in the repository, which is not written to.
fn search(programs: &Path, target: &str, limits: &[&str]) -> Result<Search> {
    let folder = memory_folder()?;
    let new_inputs = folder.path().join("corpus");
    fs::create_dir(&new_inputs)?;
    let kept = target_folder().join("artifacts").join(target);
    fs::create_dir_all(&kept)?;
    let fuzz = workspace::root().join("fuzz");
    let mut command = Command::new(programs.join(target));
    command.arg(&new_inputs).arg(fuzz.join("corpus").join(target));
    command.arg(format!("-dict={}", fuzz.join("dictionaries").join(format!("{target}.dict")).display()));
    command.arg(format!("-artifact_prefix={}/", kept.display()));
    command.args(limits);
    // A shared machine may stand still for some seconds; only what never ends takes a minute or two.
    command.args(["-timeout=120", "-report_slow_units=120"]);
    command.args(["-max_len=16384", "-rss_limit_mb=2048", "-print_final_stats=1"]);
    command.env("TMPDIR", folder.path()).env("RUST_BACKTRACE", "0");
    let started = std::time::Instant::now();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("impossible de lancer {target}"))?;
    let words = String::from_utf8_lossy(&output.stderr);
    let search = read(&words, started.elapsed().as_secs());
    if output.status.success() != search.finding.is_none() {
        bail!("{} s'est arrêté sans dire pourquoi ({}) :\n{words}", target, output.status);
    }
    Ok(search)
}

/// Targets write and replace files at every input: in memory where the system has such a folder.
fn memory_folder() -> Result<TempDir> {
    let in_memory = tempfile::tempdir_in("/dev/shm").ok();
    in_memory.map_or_else(|| tempfile::tempdir_in(env::temp_dir()), Ok).context("aucun dossier temporaire")
}

/// Reads what libFuzzer and the panic wrote.
fn read(words: &str, seconds: u64) -> Search {
    let after = |marker: &str| words.lines().rev().find_map(|line| line.split_once(marker).map(|(_, rest)| rest));
    let number = |marker| after(marker).and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    // An input that was merely slow is written down as well.
    let written = after("Test unit written to ").filter(|path| !path.contains("slow-unit-"));
    let finding = written.map(|path| Finding { input: PathBuf::from(path.trim()), words: reason(words) });
    Search { executions: number("stat::number_of_executed_units:"), coverage: number(" cov: "), seconds, finding }
}

/// The panic's message, or libFuzzer's own words where nothing panicked.
fn reason(words: &str) -> String {
    let mut lines = words.lines().skip_while(|line| !line.contains("panicked at"));
    let panicked = lines.next().and_then(|_| lines.next());
    let other = || words.lines().find_map(|line| line.split_once("ERROR: libFuzzer: ").map(|(_, rest)| rest));
    let reason = panicked.or_else(other).unwrap_or("sans message");
    console::truncate_str(&console::strip_ansi_codes(reason), 300, "…").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_without_a_finding_is_counted() {
        let words = "#2\tINITED cov: 100 ft: 1 corp: 1/1b exec/s: 0 rss: 30Mb\n\
             #7282\tDONE   cov: 2426 ft: 7925 corp: 315/196Kb lim: 2066 exec/s: 560 rss: 31Mb\n\
             stat::number_of_executed_units: 7282\nstat::average_exec_per_sec:     560\n";
        assert_eq!(read(words, 12), Search { executions: 7282, coverage: 2426, seconds: 12, finding: None });
    }

    #[test]
    fn a_finding_has_its_input_and_its_reason() {
        let crash = "#9\tNEW    cov: 7 ft: 8\nthread '<unnamed>' (1) panicked at src/tariffs.rs:47:9:\nplanted: x\n\
             note: run\n==1== ERROR: libFuzzer: deadly signal\n\
             artifact_prefix='/a b/'; Test unit written to /a b/crash-1\nstat::number_of_executed_units: 9\n";
        let search = read(crash, 1);
        let finding = Finding { input: "/a b/crash-1".into(), words: "planted: x".to_owned() };
        assert_eq!((search.executions, search.finding), (9, Some(finding)));
        let endless = "==1== ERROR: libFuzzer: timeout after 120 seconds\nTest unit written to /t/timeout-1\n";
        assert!(read(endless, 120).finding.is_some_and(|finding| finding.words == "timeout after 120 seconds"));
        assert_eq!(read("Test unit written to /t/slow-unit-1\n", 120).finding, None);
    }

    /// Every target has its program, inputs to start from and words, and there are no others.
    #[test]
    fn the_folder_holds_these_targets() -> Result<()> {
        let fuzz = workspace::root().join("fuzz");
        let names = |folder: &str| -> Result<Vec<String>> {
            let entries = fs::read_dir(fuzz.join(folder))?.collect::<Result<Vec<_>, _>>()?;
            let mut names: Vec<String> =
                entries.iter().filter_map(|entry| Some(entry.path().file_stem()?.to_str()?.to_owned())).collect();
            names.sort_unstable();
            Ok(names)
        };
        let mut targets = TARGETS;
        targets.sort_unstable();
        for folder in ["fuzz_targets", "corpus", "dictionaries"] {
            assert_eq!(names(folder)?, targets, "{folder}");
        }
        Ok(())
    }
}
