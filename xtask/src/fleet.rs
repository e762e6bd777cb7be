//! `cargo xtask fleet`: the files of `docs/flotte`, read by the tools that they are for, and their scripts
//! rehearsed with a stand-in for `mesure-memoire`. No cloud is asked anything.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::python::{DSTACK, Environment, Install, Pins, SKYPILOT};
use crate::workspace;

/// Set where a tool that cannot be installed is a failure, and not a reason to skip: in `.ci/run`.
const REQUIRED: &str = "XTASK_FLEET_REQUIRED";

/// Whether the command lines of these files are put to the real `mesure-memoire explore`, with `--dry-run`.
const DRY_RUN: bool = true;

const READER: &str = "xtask/src/fleet.py";

const FOLDER: &str = "docs/flotte";

const SET_UP: &str = "preparer.sh";

/// What dstack's server takes at most of one folder, unless told otherwise: `SERVER_CODE_UPLOAD_LIMIT`.
/// SkyPilot takes more, and needs no more either.
const UPLOAD_LIMIT: u64 = 2 << 20;

struct Tool {
    name: &'static str,
    label: &'static str,
    pins: Pins,
    /// The task first.
    files: &'static [&'static str],
    /// What a person gives on the command line.
    settings: &'static [(&'static str, &'static str)],
    /// What the tool itself sets on the machine, and the name that the results file then has.
    set_by_tool: &'static [(&'static str, &'static str)],
    results: &'static str,
    /// The results file as a person gets it, from what is left when the machine is gone.
    brought_back: fn(&Rehearsal, &str) -> Result<Option<String>>,
    /// Planted in the task.
    faults: &'static [Fault],
}

/// What is replaced, by what, and a word of the refusal.
type Fault = (&'static str, &'static str, &'static str);

const TOOLS: [Tool; 2] = [
    Tool {
        name: "skypilot",
        label: "SkyPilot",
        pins: SKYPILOT,
        files: &["skypilot.yaml"],
        settings: &[("SEAU", "essai-de-lecture")],
        set_by_tool: &[("SKYPILOT_NODE_RANK", "0")],
        results: "l4-0.jsonl",
        brought_back: from_bucket,
        faults: &[
            ("\nworkdir: .\n", "\nworkdirs: .\n", "workdirs"),
            ("\n  use_spot: true ", "\n  use_spott: true ", "use_spott"),
            ("\n  disk_size: 100 ", "\n  disk_size: cent ", "cent"),
            ("\n  SEAU: null ", "\n  SEAUX: null ", "'SEAUX' is None"),
            ("\n  exit \"$code\"\n", "\n  if true\n", "syntax error"),
        ],
    },
    Tool {
        name: "dstack",
        label: "dstack",
        pins: DSTACK,
        files: &["dstack.yaml", "dstack-parc.yaml"],
        settings: &[],
        set_by_tool: &[("DSTACK_RUN_NAME", "l4")],
        results: "l4.jsonl",
        brought_back: from_log,
        faults: &[
            ("\nworking_dir: ", "\nworkdir: ", "workdir"),
            ("\nmax_duration: 6h ", "\nmax_duration: longtemps ", "max_duration"),
            ("\nspot_policy: auto ", "\nspot_policy: parfois ", "spot_policy"),
            ("\n    exit \"$code\"\n", "\n    if true\n", "syntax error"),
        ],
    },
];

/// What became of reading a file.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Read(Read),
    Refused(String),
}

/// What a tool has understood of a file.
#[derive(Deserialize)]
struct Read {
    told: String,
    setup: Option<String>,
    run: Option<String>,
    environment: BTreeMap<String, String>,
    /// Bytes of each folder that goes to the machine.
    archives: BTreeMap<String, u64>,
}

pub fn run() -> Result<ExitCode> {
    for install in start_installs()? {
        install.finish()?;
    }
    check()?;
    Ok(ExitCode::SUCCESS)
}

pub fn required() -> bool {
    env::var_os(REQUIRED).is_some()
}

/// Each tool in an environment of its own: they ask for different versions of the same packages.
pub fn start_installs() -> Result<Vec<Install>> {
    let installs = TOOLS.iter().map(|tool| Environment::only_for(tool.pins).start_install(tool.label, &[tool.pins]));
    Ok(installs.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

pub fn check() -> Result<()> {
    syntax(&fs::read_to_string(workspace::root().join(FOLDER).join(SET_UP))?).context(SET_UP)?;
    TOOLS.iter().try_for_each(Tool::check)
}

impl Tool {
    fn check(&self) -> Result<()> {
        let folder = workspace::root().join(FOLDER);
        let shipped: Vec<PathBuf> = self.files.iter().map(|name| folder.join(name)).collect();
        let root = tempfile::tempdir()?;
        let planted = self.plant(&shipped[0], root.path())?;
        let mut outcomes = self.outcomes(&[shipped, planted].concat())?.into_iter();
        for (name, outcome) in self.files.iter().zip(outcomes.by_ref()) {
            let told = self.judge(outcome).with_context(|| format!("{FOLDER}/{name}"))?;
            println!("{name}, lu par {} : {told}", self.label);
        }
        for ((_, after, word), outcome) in self.faults.iter().zip(outcomes.by_ref()) {
            refused(self.judge(outcome), word).with_context(|| format!("{after:?} dans {}", self.files[0]))?;
        }
        let attempt = outcomes.next().context("le lecteur n'a pas essayé de sortir de la machine")?;
        refused(self.judge(attempt), "PermissionError : socket.").context("sortir de la machine")?;
        println!("{} : {} défauts plantés, tous refusés", self.label, self.faults.len());
        Ok(())
    }

    /// One file a fault, as deep in a folder as the true file: dstack reads what lies two folders above.
    fn plant(&self, file: &Path, root: &Path) -> Result<Vec<PathBuf>> {
        let text = fs::read_to_string(file)?;
        let folder = root.join(FOLDER);
        fs::create_dir_all(&folder)?;
        // Where there is none, SkyPilot starts git to know what not to send.
        fs::write(root.join(".skyignore"), "")?;
        let plant = |(number, (before, after, _)): (usize, &Fault)| {
            ensure!(text.matches(before).count() == 1, "{} ne contient pas {before:?} une fois", file.display());
            let planted = folder.join(format!("{number}.yaml"));
            fs::write(&planted, text.replace(before, after))?;
            Ok(planted)
        };
        self.faults.iter().enumerate().map(plant).collect()
    }

    /// In a home without any settings or keys, with nothing of this environment but where programs are.
    fn outcomes(&self, files: &[PathBuf]) -> Result<Vec<Outcome>> {
        let home = tempfile::tempdir()?;
        let settings: BTreeMap<_, _> = self.settings.iter().copied().collect();
        let mut command = Command::new(Environment::only_for(self.pins).interpreter());
        command.arg(workspace::root().join(READER)).arg(self.name).arg(serde_json::to_string(&settings)?).args(files);
        command.env_clear().env("PATH", workspace::search_path()).env("HOME", home.path()).current_dir(home.path());
        // dstack's client has no telemetry to switch off.
        command.env("SKYPILOT_DISABLE_USAGE_COLLECTION", "1");
        let lines = workspace::output_of(&mut command)?;
        let outcomes = lines.lines().map(serde_json::from_str).collect::<Result<Vec<_>, _>>();
        outcomes.with_context(|| format!("le lecteur a répondu autre chose que prévu :\n{lines}"))
    }

    /// What the tool has understood, when nothing is wrong with it.
    fn judge(&self, outcome: Outcome) -> Result<String> {
        let read = match outcome {
            Outcome::Read(read) => read,
            Outcome::Refused(reason) => bail!(reason),
        };
        for script in [&read.setup, &read.run].into_iter().flatten() {
            syntax(script)?;
        }
        for (folder, bytes) in &read.archives {
            fits(folder, *bytes)?;
        }
        if let Some(run) = &read.run {
            self.rehearse(run, &read.environment)?;
        }
        Ok(read.told)
    }

    /// What `run` does on a machine, with a stand-in in the place of `mesure-memoire`: done at once, then
    /// interrupted and continued on another machine, then on a machine without usable GPU.
    fn rehearse(&self, run: &str, environment: &BTreeMap<String, String>) -> Result<()> {
        let (home, bare) = (tempfile::tempdir()?, tempfile::tempdir()?);
        for (home, code, lines) in [(&home, 0, Some(1)), (&home, 1, Some(2)), (&bare, 2, None)] {
            let rehearsal = Rehearsal::of(self, run, environment, home.path(), code)?;
            ensure!(rehearsal.code == Some(code), "code {:?} au lieu de {code} :\n{}", rehearsal.code, rehearsal.said);
            let expected = lines.map(|lines| STAND_IN_LINE.repeat(lines));
            let found = (self.brought_back)(&rehearsal, self.results)?;
            ensure!(found == expected, "revenu : {found:?} au lieu de {expected:?}\n{}", rehearsal.said);
        }
        if DRY_RUN { dry_run(home.path()) } else { Ok(()) }
    }
}

/// Adds a line to the file that `--output` names, unless there is no GPU: code 2.
const STAND_IN: &str = r#"printf '%s\n' "$@" > "$HOME/arguments"
[ "$STAND_IN_CODE" = 2 ] && exit 2
while [ $# -gt 0 ]; do [ "$1" = --output ] && file=$2; shift; done
printf '%s' "$STAND_IN_LINE" >> "$file"
exit "$STAND_IN_CODE""#;

const STAND_IN_LINE: &str = "{\"texte\":\"ça\"}\n";

/// A machine's life, from the start of `run` to its end.
struct Rehearsal<'a> {
    code: Option<i32>,
    said: String,
    /// What is left of the machine's home is the folder of results.
    home: &'a Path,
}

impl<'a> Rehearsal<'a> {
    fn of(
        tool: &Tool,
        run: &str,
        environment: &BTreeMap<String, String>,
        home: &'a Path,
        code: i32,
    ) -> Result<Rehearsal<'a>> {
        let project = tempfile::tempdir()?;
        for (program, script) in [("target/release/mesure-memoire", STAND_IN), ("docs/flotte/preparer.sh", ":")] {
            let program = project.path().join(program);
            fs::create_dir_all(program.parent().context("un programme dans un dossier")?)?;
            workspace::write_program(&program, script)?;
        }
        let results = home.join("resultats");
        fs::create_dir_all(&results)?;
        let mut bash = Command::new("bash");
        bash.args(["-c", run]).current_dir(project.path()).stdin(Stdio::null());
        bash.env_clear().env("PATH", workspace::search_path()).envs(environment).envs(tool.set_by_tool.iter().copied());
        bash.env("HOME", home).env("RESULTATS", results);
        bash.env("STAND_IN_CODE", code.to_string()).env("STAND_IN_LINE", STAND_IN_LINE);
        let output = bash.output().context("impossible de lancer bash")?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Ok(Self { code: output.status.code(), said, home })
    }
}

/// The folder of results is the bucket.
fn from_bucket(rehearsal: &Rehearsal, results: &str) -> Result<Option<String>> {
    let file = rehearsal.home.join("resultats").join(results);
    Ok(file.exists().then(|| fs::read_to_string(file)).transpose()?)
}

/// By the command that the page gives, from a log with the line ends that dstack's terminal puts into it.
fn from_log(rehearsal: &Rehearsal, results: &str) -> Result<Option<String>> {
    if !rehearsal.said.contains("=== DEBUT") {
        return Ok(None);
    }
    let page = fs::read_to_string(workspace::root().join(FOLDER).join("README.md"))?;
    let command = page.lines().find(|line| line.starts_with("dstack logs ") && line.contains('|'));
    let command = command.context("la page ne dit pas comment lire le journal de dstack")?;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("log"), rehearsal.said.replace('\n', "\r\n"))?;
    let script = format!("set -o pipefail\ndstack() {{ cat log; }}\n{command}");
    workspace::output_of(Command::new("bash").args(["-ec", &script]).current_dir(folder.path()))?;
    Ok(Some(fs::read_to_string(folder.path().join(results))?))
}

/// The arguments that the stand-in was given, to the real command: what it accepts, and no measurement.
fn dry_run(home: &Path) -> Result<()> {
    let arguments = fs::read_to_string(home.join("arguments"))?;
    // The stand-in's file is not an exploration to continue.
    let results = home.join("resultats");
    fs::remove_dir_all(&results)?;
    fs::create_dir(&results)?;
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(workspace::target().join("release/mesure-memoire"));
    command.args(arguments.lines()).arg("--dry-run").current_dir(folder.path());
    workspace::output_of(&mut command).map(drop)
}

fn syntax(script: &str) -> Result<()> {
    workspace::output_of(Command::new("bash").args(["-n", "-c", script])).map(drop)
}

fn fits(folder: &str, bytes: u64) -> Result<()> {
    ensure!(
        bytes <= UPLOAD_LIMIT,
        "{folder} : {bytes} octets à envoyer, {UPLOAD_LIMIT} au plus ; complétez .dstackignore ou .skyignore"
    );
    Ok(())
}

fn refused<T>(outcome: Result<T>, word: &str) -> Result<()> {
    match outcome {
        Ok(_) => bail!("le défaut planté n'est pas refusé"),
        Err(error) if !format!("{error:#}").contains(word) => Err(error.context("refusé pour une autre raison")),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEPS_NOTHING: &str = "target/release/mesure-memoire explore --output \"$MACHINE-$SKYPILOT_NODE_RANK.jsonl\"";
    const HIDES_FAILURE: &str =
        "target/release/mesure-memoire explore --output ~/resultats/\"$MACHINE-$SKYPILOT_NODE_RANK.jsonl\" || true";

    fn rehearsed(run: &str) -> Result<()> {
        let environment = BTreeMap::from([("MACHINE".to_owned(), "l4".to_owned())]);
        TOOLS[0].rehearse(run, &environment)
    }

    #[test]
    fn a_script_that_brings_nothing_back_is_refused() -> Result<()> {
        refused(rehearsed(KEEPS_NOTHING), "revenu : None")
    }

    #[test]
    fn a_script_that_hides_a_failure_is_refused() -> Result<()> {
        refused(rehearsed(HIDES_FAILURE), "code Some(0) au lieu de 1")
    }

    #[test]
    fn a_folder_that_dstack_would_not_take_is_refused() -> Result<()> {
        fits("good", UPLOAD_LIMIT)?;
        refused(fits("large", UPLOAD_LIMIT + 1), "large")
    }

    #[test]
    fn a_refusal_for_another_reason_does_not_count() {
        assert!(refused(Ok(1), "").is_err());
        assert!(refused(fits("large", u64::MAX), "small").is_err());
    }
}
