//! `cargo xtask browser`: the notebooks in JupyterLab, in a real browser, as a person goes through them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::lab::WALKTHROUGH;
use crate::notebook::{Expectation, indented};
use crate::python::{self, JUPYTER, PLAYWRIGHT};
use crate::test::{
    EXPLORATION, EXPLORATION_SHOWS, FORFAITS, FORFAITS_SHOW, NOT_MEASURED, NOT_SAVED, SIMULATION, SIMULATION_SHOWS,
    WALKTHROUGH_SHOWS,
};
use crate::{UsageError, page, prerequisites, workspace};

const DRIVER: &str = include_str!("browser.py");

/// Programs that are Chromium under some name, the system's own first.
const CHROMIUM: &[&str] = &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Set where a missing browser is a failure, and not a reason to skip: in `.ci/run`.
pub const REQUIRED: &str = "XTASK_BROWSER_REQUIRED";

pub const NO_CHROMIUM: &str =
    "aucun Chromium sur cette machine (pour l'installer sous Debian : apt-get install chromium)";

/// A laptop's window; outputs have to fit into its width.
const WINDOW: (u32, u32) = (1280, 720);

/// A generous limit: the cold first cell of a notebook compiles the whole library.
const TIMEOUT_SECONDS: u64 = 300;

/// evcxr gives this number to the first cell that it runs.
const FIRST_CELL: u32 = 2;

const SUMMARY_WIDTH: usize = 120;

/// Cells, and what they have to show.
type Shown<'a> = &'a [(&'a str, &'a str)];

/// JupyterLab from its start to its end.
struct Session<'a> {
    title: &'a str,
    theme: &'a str,
    /// A behaviour of `tests/stand-in-worker.sh`, which then measures in place of a GPU.
    stand_in: Option<&'a str>,
    steps: &'a [Step<'a>],
}

/// What a person does.
enum Step<'a> {
    Open(&'a str),
    /// Shift+Enter from the first cell to the last.
    WalkThrough(Shown<'a>),
    /// The menu's restart, which also clears the outputs.
    Restart,
    /// Only the cells with this tag.
    Tagged(&'a str, Shown<'a>),
    Cell(&'a str, Shown<'a>),
    /// Without saving. The notebook is as it was, and these files are new beside it.
    Close(&'a [&'a str]),
}

const SESSIONS: &[Session] = &[
    Session {
        title: "Sans GPU, thème clair",
        theme: "light",
        stand_in: None,
        steps: &[
            Step::Open(WALKTHROUGH),
            Step::WalkThrough(WALKTHROUGH_SHOWS),
            Step::Restart,
            Step::Cell("standalone-functions", &[]),
            Step::Restart,
            Step::Tagged("requires-gpu", &[NOT_MEASURED, NOT_SAVED]),
            Step::Close(&[]),
            Step::Open(FORFAITS),
            Step::WalkThrough(FORFAITS_SHOW),
            Step::Close(&[]),
            Step::Open(SIMULATION),
            Step::WalkThrough(SIMULATION_SHOWS),
            Step::Close(&[]),
            Step::Open(EXPLORATION),
            Step::WalkThrough(EXPLORATION_SHOWS),
            Step::Close(&[]),
        ],
    },
    Session {
        title: "Une doublure mesure à la place d'un GPU, thème sombre",
        theme: "dark",
        stand_in: Some("good"),
        steps: &[
            Step::Open(WALKTHROUGH),
            Step::Tagged("requires-gpu", STAND_IN),
            Step::Cell(
                "export",
                &[(
                    "export",
                    "Rien n'a été écrit, rien n'a été écrasé. Le fichier « mesures-notebook.json » existe déjà.",
                )],
            ),
            Step::Tagged("cpu-only", &[("arithmetic", "17.03851604461669921875")]),
            Step::Close(&["mesures-notebook.json"]),
        ],
    },
    Session {
        title: "Une doublure est explorée, reprise et regardée, thème clair",
        theme: "light",
        stand_in: Some("explorer"),
        steps: &[
            Step::Open(EXPLORATION),
            Step::Tagged("requires-gpu", EXPLORED),
            Step::Restart,
            Step::Tagged("requires-gpu", &[("exploration", "les 12 mesures du plan, dont 12 faites auparavant.")]),
            Step::Tagged("cpu-only", CHARTS),
            Step::Close(&["exploration.jsonl"]),
        ],
    },
];

const STAND_IN: Shown = &[
    // The name that the stand-in gives to its GPU: text like any other, whatever it looks like.
    ("measurement", "Stand-in <script>"),
    ("export", "Mesure enregistrée dans le nouveau fichier « mesures-notebook.json »."),
];

const EXPLORED: Shown = &[
    ("exploration", "0/12"),
    ("exploration", "12/12 : essai 3, batch 1, context 16, width "),
    ("exploration", "« exploration.jsonl » contient les 12 mesures du plan."),
];

const CHARTS: Shown = &[("charts", "12 mesures prévues : 12 faites, 0 en échec."), ("charts", "Ce qui varie : width")];

/// The pictures for the documentation: theme, cell when it first runs, name.
const VIEWS: &[(&str, &str, &str)] = &[
    ("light", "arithmetic", "calcul-clair.png"),
    ("dark", "arithmetic", "calcul-sombre.png"),
    ("light", "environment", "environnement-sans-gpu.png"),
    ("light", "measurement", "mesure-sans-gpu.png"),
    ("light", "price-list", "tarifs.png"),
    ("light", "quote", "forfait.png"),
];

#[derive(Args)]
pub struct BrowserArgs {
    /// Parcourt ce seul notebook, une fois, au lieu de ceux du projet
    #[arg(value_name = "FICHIER", conflicts_with = "screenshots")]
    file: Option<PathBuf>,
    /// Échoue si la cellule de FICHIER ne montre pas ce texte ; peut être répété
    #[arg(long, value_name = "CELLULE=TEXTE", value_parser = Expectation::parse, requires = "file")]
    expect: Vec<Expectation>,
    /// Écrit dans ce dossier les images de la documentation
    #[arg(long, value_name = "DOSSIER")]
    screenshots: Option<PathBuf>,
    /// Durée maximale d'une cellule, en secondes (300 par défaut)
    #[arg(long, value_name = "SECONDES", default_value_t = TIMEOUT_SECONDS, hide_default_value = true,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

pub fn run(arguments: &BrowserArgs) -> Result<ExitCode> {
    let Some(chromium) = chromium() else { bail!("Essai dans un navigateur non exécuté : {NO_CHROMIUM}.") };
    if !JUPYTER.installed_for(&python::interpreter()) {
        bail!("Jupyter n'est pas installé dans .venv : lancez « cargo xtask lab --no-open ».");
    }
    if let Some(install) = python::start_install(&[PLAYWRIGHT])? {
        install.finish()?;
    }
    match &arguments.file {
        None => {
            page::check(&chromium)?;
            go_through(SESSIONS, "projet", &chromium, arguments)
        }
        Some(file) => go_through_one(file, &chromium, arguments),
    }
}

pub fn required() -> bool {
    std::env::var_os(REQUIRED).is_some()
}

/// The first Chromium of the search path that starts: some systems install a mere hint under its name.
pub fn chromium() -> Option<PathBuf> {
    let programs = CHROMIUM.iter().filter_map(|name| prerequisites::find(&workspace::search_path(), name));
    programs.into_iter().find(|program| workspace::output_of(Command::new(program).arg("--version")).is_ok())
}

fn go_through_one(file: &Path, chromium: &Path, arguments: &BrowserArgs) -> Result<ExitCode> {
    let shown = file.display();
    let path =
        fs::canonicalize(file).map_err(|error| UsageError(format!("{shown} : lecture impossible ({error}).")))?;
    let name = path.file_stem().and_then(|name| name.to_str()).context("nom de fichier illisible")?;
    let expected: Vec<_> = arguments.expect.iter().map(|expected| (&*expected.cell, &*expected.text)).collect();
    let path = path.to_str().context("chemin illisible")?;
    let steps = [Step::Open(path), Step::WalkThrough(&expected), Step::Close(&[])];
    let session = Session { title: "Un notebook, thème clair", theme: "light", stand_in: None, steps: &steps };
    go_through(&[session], name, chromium, arguments)
}

fn go_through(sessions: &[Session], name: &str, chromium: &Path, arguments: &BrowserArgs) -> Result<ExitCode> {
    if let Some(folder) = &arguments.screenshots {
        fs::create_dir_all(folder).with_context(|| format!("impossible de créer {}", folder.display()))?;
    }
    let places = Places::claim(name)?;
    let mut run = Run::new(sessions, &places, arguments.screenshots.as_deref());
    let mut driver = start_driver(&request(sessions, &places, chromium, arguments.timeout))?;
    let events = driver.stdout.take().context("le pilote du navigateur n'a pas de sortie")?;
    for line in BufReader::new(events).lines() {
        run.take(serde_json::from_str(&line?).context("le pilote du navigateur a répondu autre chose que prévu")?)?;
    }
    drop(driver.stdin.take());
    let status = driver.wait()?;
    ensure!(run.finished, "le pilote du navigateur s'est arrêté avant la fin ({status})");
    fs::remove_dir_all(&places.work)?;
    println!("{} vérifications, {} en échec", run.checks, run.failed);
    Ok(if run.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where a run works and where it leaves pictures of what failed. Always the same place, so that the
/// kernel finds in its cache what it compiled the last time.
struct Places {
    work: PathBuf,
    failures: PathBuf,
    _lock: File,
}

impl Places {
    fn claim(name: &str) -> Result<Self> {
        let failures = workspace::target().join("browser").join(name);
        fs::create_dir_all(&failures)?;
        let lock = File::create(failures.with_file_name(format!("{name}.lock")))?;
        if lock.try_lock().is_err() {
            bail!("Le même essai est déjà en cours dans {} : attendez qu'il finisse.", failures.display());
        }
        fs::remove_dir_all(&failures)?;
        let work = failures.join("travail");
        fs::create_dir_all(&work)?;
        Ok(Self { work, failures, _lock: lock })
    }
}

fn request(sessions: &[Session], places: &Places, chromium: &Path, timeout: u64) -> Value {
    let sessions: Vec<Value> = sessions.iter().map(Session::request).collect();
    json!({
        "root": workspace::root(), "folder": places.work, "chromium": chromium, "timeout": timeout,
        "width": WINDOW.0, "height": WINDOW.1, "sessions": sessions,
    })
}

impl Session<'_> {
    fn request(&self) -> Value {
        let steps: Vec<Value> = self.steps.iter().map(Step::request).collect();
        json!({ "theme": self.theme, "stand_in": self.stand_in, "steps": steps })
    }
}

impl Step<'_> {
    fn request(&self) -> Value {
        match self {
            Step::Open(notebook) => json!({ "kind": "open", "notebook": workspace::root().join(notebook) }),
            Step::WalkThrough(_) => json!({ "kind": "walk_through" }),
            Step::Restart => json!({ "kind": "restart" }),
            Step::Tagged(tag, _) => json!({ "kind": "tagged", "tag": tag }),
            Step::Cell(cell, _) => json!({ "kind": "cell", "cell": cell }),
            Step::Close(_) => json!({ "kind": "close" }),
        }
    }

    fn shown(&self) -> Shown<'_> {
        match self {
            Step::WalkThrough(shown) | Step::Tagged(_, shown) | Step::Cell(_, shown) => shown,
            Step::Open(_) | Step::Restart | Step::Close(_) => &[],
        }
    }
}

/// As on a machine without GPU, also where there is one.
fn start_driver(request: &Value) -> Result<Child> {
    let mut command = Command::new(python::interpreter());
    command.args(["-c", DRIVER]).env("CUDA_VISIBLE_DEVICES", "");
    // The notebooks' copies lie elsewhere, and would not find the worker that is built here.
    let worker = workspace::target().join("release/iteragpu-worker");
    if std::env::var_os("ITERAGPU_WORKER").is_none() && worker.exists() {
        command.env("ITERAGPU_WORKER", worker);
    }
    let mut driver = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    // Left open: when this program dies, it closes, and the driver stops all that it started.
    let input = driver.stdin.as_mut().context("le pilote du navigateur n'a pas d'entrée")?;
    input.write_all(format!("{request}\n").as_bytes())?;
    Ok(driver)
}

/// What the driver reports. A picture is a file that it has written.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    NoKernel {
        name: String,
    },
    Browser {
        version: String,
    },
    Session {
        number: usize,
        seconds: f64,
    },
    Step {
        number: usize,
    },
    Opened {
        seconds: f64,
        #[serde(flatten)]
        noticed: Noticed,
    },
    Cell(Cell),
    Restarted {
        seconds: f64,
        #[serde(flatten)]
        noticed: Noticed,
    },
    /// The kernel died while it started, and JupyterLab has started another.
    Revived,
    Closed(Closed),
    /// `log` is the file into which JupyterLab and its kernels write.
    Stopped {
        reason: String,
        picture: Option<PathBuf>,
        log: PathBuf,
    },
    Finished,
}

/// What a page did meanwhile, besides showing something.
#[derive(Deserialize, Default)]
struct Noticed {
    /// Addresses elsewhere than on this machine.
    requests: Vec<String>,
    /// Errors on the browser's console.
    complaints: Vec<String>,
}

impl Noticed {
    fn requests(&self) -> Vec<String> {
        self.requests.iter().map(|address| format!("Adresse hors de la machine : {address}")).collect()
    }

    /// Outside of cells, errors on the console are JupyterLab's own.
    fn faults(&self) -> Vec<String> {
        let complaints = self.complaints.iter().map(|text| format!("Erreur dans la console du navigateur : {text}"));
        self.requests().into_iter().chain(complaints).collect()
    }
}

/// One executed cell, as it is on the page.
#[derive(Deserialize)]
struct Cell {
    id: String,
    seconds: f64,
    /// The number before the cell.
    count: u32,
    text: String,
    /// What is shown in red: errors, and whatever was written to stderr.
    red: Vec<String>,
    /// Elements that could run something.
    scripts: Vec<String>,
    /// Elements that stick out, or that only a scroll bar shows whole.
    wide: Vec<String>,
    picture: PathBuf,
    #[serde(flatten)]
    noticed: Noticed,
}

impl Cell {
    fn faults(&self, expected: Shown, fresh: bool) -> Vec<String> {
        let mut faults = self.red.clone();
        let text = words(&self.text);
        let of_this_cell = expected.iter().filter(|(cell, _)| *cell == self.id);
        let absent = of_this_cell.filter(|(_, expected)| !text.contains(&words(expected)));
        faults.extend(absent.map(|(_, text)| format!("Texte attendu, mais absent : {text}")));
        faults.extend(self.scripts.iter().map(|element| format!("Élément actif dans la sortie : {element}")));
        faults.extend(self.wide.iter().map(|element| format!("Sortie plus large que la page : {element}")));
        faults.extend(self.noticed.faults());
        if fresh && self.count != FIRST_CELL {
            faults.push(format!("Le noyau n'était pas neuf : cette cellule porte le numéro {}.", self.count));
        }
        faults
    }

    /// The lines that show what was expected, or else the first one.
    fn summary(&self, expected: Shown) -> String {
        let of_this_cell: Vec<String> =
            expected.iter().filter(|(cell, _)| *cell == self.id).map(|(_, text)| words(text)).collect();
        let lines: Vec<String> = self.text.lines().map(words).filter(|line| !line.is_empty()).collect();
        let shows = |line: &&String| of_this_cell.iter().any(|text| line.contains(text));
        let summary = lines.iter().filter(shows).cloned().collect::<Vec<_>>().join(" ");
        let chosen = if summary.is_empty() { lines.first().cloned().unwrap_or_default() } else { summary };
        console::truncate_str(&chosen, SUMMARY_WIDTH, "…").into_owned()
    }
}

/// A closed notebook, and the files beside it.
#[derive(Deserialize)]
struct Closed {
    changed: Vec<String>,
    created: Vec<String>,
    /// The page as a whole had to be scrolled sideways.
    wide: bool,
    #[serde(flatten)]
    noticed: Noticed,
}

impl Closed {
    fn faults(&self, expected: &[&str]) -> Vec<String> {
        let mut faults = self.noticed.requests();
        faults.extend(self.changed.iter().map(|name| format!("{name} a changé sur le disque.")));
        let unexpected = self.created.iter().filter(|name| !expected.contains(&name.as_str()));
        faults.extend(unexpected.map(|name| format!("{name} a été créé.")));
        let absent = expected.iter().filter(|name| !self.created.iter().any(|created| created == *name));
        faults.extend(absent.map(|name| format!("{name} n'a pas été créé.")));
        faults.extend(self.wide.then(|| "La page est plus large que la fenêtre.".to_owned()));
        faults
    }
}

/// Text as one reads it: any white space counts as one space.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A run in progress.
struct Run<'a> {
    sessions: &'a [Session<'a>],
    places: &'a Places,
    screenshots: Option<&'a Path>,
    session: Option<&'a Session<'a>>,
    step: Option<&'a Step<'a>>,
    /// The cells that ran in this step.
    executed: Vec<String>,
    /// No cell has run since the kernel started.
    fresh: bool,
    checks: usize,
    failed: usize,
    finished: bool,
}

impl<'a> Run<'a> {
    fn new(sessions: &'a [Session<'a>], places: &'a Places, screenshots: Option<&'a Path>) -> Self {
        Self {
            sessions,
            places,
            screenshots,
            session: None,
            step: None,
            executed: Vec::new(),
            fresh: false,
            checks: 0,
            failed: 0,
            finished: false,
        }
    }

    fn take(&mut self, event: Event) -> Result<()> {
        match event {
            Event::NoKernel { name } => {
                bail!("Le noyau « {name} » n'est pas installé : lancez « cargo xtask lab --no-open ».");
            }
            Event::Browser { version } => println!("Chromium {version}"),
            Event::Session { number, seconds } => self.enter(number, seconds)?,
            Event::Step { number } => self.go_on(number)?,
            Event::Opened { seconds, noticed } => self.opened(seconds, &noticed),
            Event::Cell(cell) => self.judge(&cell)?,
            Event::Restarted { seconds, noticed } => {
                self.fresh = true;
                self.report("noyau relancé", Some(seconds), "", &noticed.requests());
            }
            Event::Revived => {
                println!("  noyau mort en démarrant ; JupyterLab en a lancé un autre, la cellule est reprise")
            }
            Event::Closed(closed) => self.closed(&closed),
            Event::Stopped { reason, picture, log } => self.stopped(&reason, picture.as_deref(), &log)?,
            Event::Finished => {
                self.check_unmet();
                self.finished = true;
            }
        }
        Ok(())
    }

    fn enter(&mut self, number: usize, seconds: f64) -> Result<()> {
        self.check_unmet();
        let session = self.sessions.get(number).context("session inconnue")?;
        println!("\n{} (JupyterLab prêt en {seconds:.1} s)", session.title);
        self.session = Some(session);
        Ok(())
    }

    fn go_on(&mut self, number: usize) -> Result<()> {
        self.check_unmet();
        let step = self.session.and_then(|session| session.steps.get(number)).context("étape inconnue")?;
        match step {
            Step::Tagged(tag, _) => println!("Les seules cellules {tag} :"),
            Step::WalkThrough(_) => println!("Maj+Entrée, cellule par cellule :"),
            Step::Cell(cell, _) => println!("La seule cellule {cell} :"),
            Step::Open(_) | Step::Restart | Step::Close(_) => {}
        }
        self.step = Some(step);
        Ok(())
    }

    /// A text expected of a cell that never ran was not seen either.
    fn check_unmet(&mut self) {
        let Some(step) = self.step.take() else { return };
        let executed = std::mem::take(&mut self.executed);
        let unmet = step.shown().iter().filter(|(cell, _)| !executed.iter().any(|id| id == cell));
        for (cell, _) in unmet {
            self.report(cell, None, "", &["Cellule attendue, mais pas exécutée.".to_owned()]);
        }
    }

    fn opened(&mut self, seconds: f64, noticed: &Noticed) {
        self.fresh = true;
        let Some(Step::Open(notebook)) = self.step else { return };
        let name = Path::new(notebook).file_name().unwrap_or_default().to_string_lossy();
        self.report(&format!("ouvert : {name}"), Some(seconds), "", &noticed.requests());
    }

    fn judge(&mut self, cell: &Cell) -> Result<()> {
        let expected = self.step.map(Step::shown).unwrap_or_default();
        let faults = cell.faults(expected, self.fresh);
        self.report(&cell.id, Some(cell.seconds), &cell.summary(expected), &faults);
        if !faults.is_empty() {
            self.keep_failure(&cell.picture)?;
        }
        self.keep_view(cell)?;
        self.fresh = false;
        self.executed.push(cell.id.clone());
        Ok(())
    }

    fn closed(&mut self, closed: &Closed) {
        let created = if let Some(Step::Close(created)) = self.step { created } else { &[][..] };
        let new = if created.is_empty() { "rien".to_owned() } else { created.join(", ") };
        let summary = format!("inchangé sur le disque ; nouveau à côté : {new}");
        self.report("fermé sans enregistrer", None, &summary, &closed.faults(created));
    }

    fn stopped(&mut self, reason: &str, picture: Option<&Path>, log: &Path) -> Result<()> {
        self.report("parcours arrêté", None, "", &[reason.to_owned()]);
        let kept = self.places.failures.join(format!("echec-{}.log", self.failed));
        fs::copy(log, &kept).with_context(|| format!("impossible de garder {}", log.display()))?;
        println!("    Journal de JupyterLab : {}", kept.display());
        // What could not be reached any more is not missed one by one.
        self.step = None;
        picture.map_or(Ok(()), |picture| self.keep_failure(picture))
    }

    /// One line for one check, and below it what is wrong.
    fn report(&mut self, what: &str, seconds: Option<f64>, summary: &str, faults: &[String]) {
        let seconds = seconds.map_or(String::new(), |seconds| format!("{seconds:.1} s"));
        let summary = if faults.is_empty() { summary } else { "ÉCHEC" };
        println!("  {}", format!("{what:<32} {seconds:>8}  {summary}").trim_end());
        for fault in faults {
            print!("{}", indented(fault));
        }
        self.checks += 1;
        self.failed += usize::from(!faults.is_empty());
    }

    fn keep_failure(&self, picture: &Path) -> Result<()> {
        let kept = self.places.failures.join(format!("echec-{}.png", self.failed));
        fs::copy(picture, &kept).with_context(|| format!("impossible de garder {}", picture.display()))?;
        println!("    Image : {}", kept.display());
        Ok(())
    }

    fn keep_view(&self, cell: &Cell) -> Result<()> {
        let (Some(folder), Some(session)) = (self.screenshots, self.session) else { return Ok(()) };
        let view = VIEWS.iter().find(|(theme, id, _)| *theme == session.theme && *id == cell.id);
        let Some((_, _, name)) =
            view.filter(|_| matches!(self.step, Some(Step::WalkThrough(_) | Step::Tagged("cpu-only", _))))
        else {
            return Ok(());
        };
        let kept = folder.join(name);
        fs::copy(&cell.picture, &kept).with_context(|| format!("impossible d'écrire {}", kept.display()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        Cell {
            id: "a".to_owned(),
            seconds: 0.1,
            count: FIRST_CELL,
            text: "{\n  \"prix\":\u{a0}4\u{202f}562,88\n}".to_owned(),
            red: Vec::new(),
            scripts: Vec::new(),
            wide: Vec::new(),
            picture: PathBuf::new(),
            noticed: Noticed::default(),
        }
    }

    fn closed() -> Closed {
        Closed { changed: Vec::new(), created: vec!["new".to_owned()], wide: false, noticed: Noticed::default() }
    }

    fn one() -> Vec<String> {
        vec!["planted".to_owned()]
    }

    fn noticed(requests: Vec<String>, complaints: Vec<String>) -> Noticed {
        Noticed { requests, complaints }
    }

    #[test]
    fn what_is_expected_and_nothing_else_is_good() {
        for good in ["\"prix\": 4 562,88", "{ \"prix\":", "4\n562,88"] {
            assert!(cell().faults(&[("a", good), ("b", "elsewhere")], true).is_empty(), "{good}");
        }
        assert!(closed().faults(&["new"]).is_empty());
    }

    #[test]
    fn each_fault_of_a_cell_is_named_once() {
        assert_eq!(cell().faults(&[("a", "4562,88")], true), ["Texte attendu, mais absent : 4562,88"]);
        for bad in [
            Cell { red: one(), ..cell() },
            Cell { scripts: one(), ..cell() },
            Cell { wide: one(), ..cell() },
            Cell { noticed: noticed(one(), Vec::new()), ..cell() },
            Cell { noticed: noticed(Vec::new(), one()), ..cell() },
        ] {
            let faults = bad.faults(&[], true);
            assert!(matches!(faults.as_slice(), [only] if only.contains("planted")), "{faults:?}");
        }
        let second = Cell { count: FIRST_CELL + 1, ..cell() };
        assert_eq!(second.faults(&[], true).len(), 1);
        assert!(second.faults(&[], false).is_empty());
    }

    #[test]
    fn each_fault_of_a_closed_notebook_is_named_once() {
        let changed = Closed { changed: one(), ..closed() };
        let wide = Closed { wide: true, ..closed() };
        let away = Closed { noticed: noticed(one(), Vec::new()), ..closed() };
        for bad in [changed, wide, away] {
            assert_eq!(bad.faults(&["new"]).len(), 1);
        }
        assert_eq!(closed().faults(&[]), ["new a été créé."]);
        assert_eq!(closed().faults(&["new", "other"]), ["other n'a pas été créé."]);
    }
}
