//! `mesure-memoire`: estimate, environment, simulate, measure, compare, explore and keep results from a shell.
//! Results go to standard output, everything else to standard error. Exit codes: 0 done, 2 wrong arguments or
//! measurement unavailable, 1 anything else.

use std::ffi::OsString;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use iteragpu_lab::arguments::{parse_bits, parse_count, parse_device_passes, parse_memory, parse_seed};
use iteragpu_lab::cli::{answer_clap, complain, fail, fail_at_the_size_limit, in_french, one_line, print_result};
use iteragpu_lab::explore::plan::parse_base;
use iteragpu_lab::explore::run::told;
use iteragpu_lab::explore::{Plan, PlanOptions, Progress, explore, merge, report};
use iteragpu_lab::measure::{Extras, measure_with};
use iteragpu_lab::results::read_measurement;
use iteragpu_lab::simulation::{Simulation, compare_with_simulation, simulate, simulation_of};
use iteragpu_lab::worker::WorkerProgram;
use iteragpu_lab::{
    EnvironmentReport, Estimate, LabError, MeasureConfig, Measurement, NewFile, PhaseRow, Saved, append,
    compare_measurements, environment_report, estimate_weights, show, summarize,
};

#[derive(Parser)]
#[command(
    name = "mesure-memoire",
    version,
    about = "Calcule la taille des poids d'un modèle, décrit l'environnement GPU et mesure la mémoire d'un petit réseau."
)]
pub(crate) struct Line {
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Calcule les octets que prennent les poids, sans GPU
    Estimate(EstimateOptions),
    /// Décrit l'environnement GPU réellement accessible
    Environment(EnvironmentOptions),
    /// Mesure Linear -> GELU -> Linear sur un seul GPU, dans un processus neuf
    Measure(MeasureOptions),
    /// Simule les compteurs d'une mesure, sans GPU
    Simulate(SimulateOptions),
    /// Compare une mesure à sa simulation, code 1 au moindre écart ; ou deux mesures entre elles
    Compare(CompareOptions),
    /// Mesure de nombreux points, une dimension variant à la fois, chacun dans des processus neufs
    Explore(Box<ExploreOptions>),
    /// Tient un fichier de résultats : y ajoute des mesures, en résume les lignes
    #[command(subcommand)]
    Results(ResultsTask),
}

#[derive(Subcommand)]
pub(crate) enum ResultsTask {
    /// Ajoute les lignes d'une mesure à votre copie de resultats-bruts.csv, créée au besoin
    Append(AppendOptions),
    /// Donne, par environnement, configuration et phase, le nombre de lignes, le minimum, la médiane et le maximum
    Summary(SummaryOptions),
}

// Values are taken as text: the library checks them and words the refusal.

#[derive(Args)]
pub(crate) struct EstimateOptions {
    /// Nombre de paramètres, de 1 à 18446744073709551615
    #[arg(long, value_name = "NOMBRE", allow_hyphen_values = true)]
    pub(crate) parameters: String,
    /// Bits par paramètre : 4, 8, 16 ou 32
    #[arg(long, value_name = "BITS", allow_hyphen_values = true)]
    pub(crate) bits: String,
    /// Réserve supposée en Gio, par exemple 4 ou 4.5 [par défaut : 0]
    #[arg(long, value_name = "GIO", default_value = "0", allow_hyphen_values = true)]
    pub(crate) reserve_gib: String,
}

#[derive(Args)]
pub(crate) struct EnvironmentOptions {
    /// Le GPU à examiner : cuda:0, cuda:1, etc. [par défaut : cuda:0]
    #[arg(long, value_name = "GPU", default_value = "cuda:0", allow_hyphen_values = true)]
    pub(crate) device: String,
}

#[derive(Args)]
pub(crate) struct ConfigurationOptions {
    /// Le seul GPU : cuda:0, cuda:1, etc. [par défaut : cuda:0]
    #[arg(long, value_name = "GPU", default_value = "cuda:0", allow_hyphen_values = true)]
    pub(crate) device: String,
    /// Première dimension des entrées [par défaut : 2]
    #[arg(long, value_name = "NOMBRE", default_value = "2", allow_hyphen_values = true)]
    pub(crate) batch: String,
    /// Deuxième dimension des entrées [par défaut : 128]
    #[arg(long, value_name = "NOMBRE", default_value = "128", allow_hyphen_values = true)]
    pub(crate) context: String,
    /// Largeur des deux couches et troisième dimension des entrées [par défaut : 1024]
    #[arg(long, value_name = "NOMBRE", default_value = "1024", allow_hyphen_values = true)]
    pub(crate) width: String,
    /// Type des poids et des entrées : float32, float16 ou bfloat16 [par défaut : float32]
    #[arg(long, value_name = "TYPE", default_value = "float32", allow_hyphen_values = true)]
    pub(crate) dtype: String,
    /// Nombre de passages d'échauffement [par défaut : 3]
    #[arg(long, value_name = "NOMBRE", default_value = "3", allow_hyphen_values = true)]
    pub(crate) warmup: String,
    /// Nombre de passages mesurés après l'échauffement [par défaut : 5]
    #[arg(long, value_name = "NOMBRE", default_value = "5", allow_hyphen_values = true)]
    pub(crate) repeats: String,
    /// Graine du tirage des poids et des entrées [par défaut : 1729]
    #[arg(long, value_name = "NOMBRE", default_value = "1729", allow_hyphen_values = true)]
    pub(crate) seed: String,
}

#[derive(Args)]
pub(crate) struct MeasureOptions {
    #[command(flatten)]
    pub(crate) configuration: ConfigurationOptions,
    /// Ajoute les empreintes SHA-256 des poids, des entrées et de la sortie
    #[arg(long)]
    pub(crate) digest: bool,
    /// Ajoute le temps d'un passage à l'horloge du GPU, observé ce nombre de fois après les phases, de 1 à 10000
    #[arg(long, value_name = "NOMBRE", allow_hyphen_values = true)]
    pub(crate) device_time: Option<String>,
    /// Ajoute la simulation de la même configuration, sous sa propre clé
    #[arg(long)]
    pub(crate) simulate: bool,
    /// Nouveau fichier JSON à créer ; sans cette option, le JSON va sur la sortie standard
    #[arg(long, value_name = "FICHIER", allow_hyphen_values = true)]
    pub(crate) output: Option<PathBuf>,
}

// The configuration is that of a measurement, for a comparison; two of its values change no counter.
#[derive(Args)]
#[command(mut_arg("device", |arg| arg.help("GPU inscrit dans la configuration, sans effet sur la simulation [par défaut : cuda:0]")))]
#[command(mut_arg("seed", |arg| arg.help("Graine inscrite dans la configuration, sans effet sur la simulation [par défaut : 1729]")))]
pub(crate) struct SimulateOptions {
    #[command(flatten)]
    pub(crate) configuration: ConfigurationOptions,
    /// Architecture du GPU : hopper, blackwell, ada, ampere, turing ou unknown [par défaut : unknown]
    #[arg(long, value_name = "NOM", default_value = "unknown", allow_hyphen_values = true)]
    pub(crate) profile: String,
    /// Mémoire d'un GPU en octets, par exemple 25769803776 pour 24 Gio, à comparer à la réserve simulée
    #[arg(long, value_name = "OCTETS", allow_hyphen_values = true)]
    pub(crate) gpu_memory: Option<String>,
}

#[derive(Args)]
pub(crate) struct CompareOptions {
    /// Fichier JSON d'une mesure, tel que l'écrit measure --output ; seule, elle est comparée à sa simulation
    #[arg(value_name = "FICHIER")]
    file: PathBuf,
    /// Fichier d'une autre mesure, comparée à la première à la place de la simulation
    #[arg(value_name = "AUTRE_FICHIER")]
    other: Option<PathBuf>,
}

#[derive(Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub(crate) struct ExploreOptions {
    #[command(subcommand)]
    pub(crate) task: Option<ExploreTask>,
    /// Dimension qui varie et ses valeurs, par exemple width=64,128,256 ; répétée, chaque dimension varie à son tour
    #[arg(long, value_name = "DIMENSION=VALEURS", required = true, allow_hyphen_values = true)]
    pub(crate) vary: Vec<String>,
    /// Ce qui ne varie pas, par exemple batch=1,context=16,dtype=float32 ; le reste est comme pour measure
    #[arg(long, value_name = "DIMENSION=VALEUR", allow_hyphen_values = true)]
    pub(crate) base: Option<String>,
    /// Mesure toutes les combinaisons des valeurs, au lieu d'une dimension à la fois
    #[arg(long)]
    pub(crate) product: bool,
    /// Le seul GPU : cuda:0, cuda:1, etc. [par défaut : cuda:0]
    #[arg(long, value_name = "GPU", default_value = "cuda:0", allow_hyphen_values = true)]
    pub(crate) device: String,
    /// Nombre d'essais de chaque point, chacun dans un processus neuf [par défaut : 1]
    #[arg(long, value_name = "NOMBRE", default_value = "1", allow_hyphen_values = true)]
    pub(crate) trials: String,
    /// Graine du tirage de l'ordre des mesures [par défaut : 1729]
    #[arg(long, value_name = "NOMBRE", default_value = "1729", allow_hyphen_values = true)]
    pub(crate) order_seed: String,
    /// Ajoute le temps d'un passage à l'horloge du GPU, observé ce nombre de fois après les phases, de 1 à 10000
    #[arg(long, value_name = "NOMBRE", allow_hyphen_values = true)]
    pub(crate) device_time: Option<String>,
    /// Nouveau fichier JSONL à créer, une ligne par mesure ; inutile avec --dry-run
    #[arg(long, value_name = "FICHIER", required_unless_present = "dry_run", allow_hyphen_values = true)]
    pub(crate) output: Option<PathBuf>,
    /// Affiche le plan et s'arrête là, même sans GPU
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Continue un fichier interrompu, avec les mêmes options ; commence s'il n'existe pas
    #[arg(long)]
    pub(crate) resume: bool,
}

#[derive(Args)]
pub(crate) struct ReportOptions {
    /// Fichier JSONL d'une exploration, ou de plusieurs réunies par explore merge
    #[arg(value_name = "FICHIER")]
    file: PathBuf,
    /// Nouveau fichier HTML à créer [par défaut : le nom du fichier JSONL, terminé par .html]
    #[arg(long, value_name = "FICHIER", allow_hyphen_values = true)]
    output: Option<PathBuf>,
}

#[derive(Subcommand)]
pub(crate) enum ExploreTask {
    /// Réunit des fichiers d'exploration dans un nouveau fichier : machines à part, doublons retirés
    Merge(MergeOptions),
    /// Affiche les tableaux d'un fichier d'exploration, et en fait une page HTML à ouvrir ou à imprimer
    Report(ReportOptions),
}

#[derive(Args)]
pub(crate) struct MergeOptions {
    /// Nouveau fichier JSONL à créer
    #[arg(long, value_name = "FICHIER", allow_hyphen_values = true)]
    output: PathBuf,
    /// Fichiers JSONL d'exploration, ou dossiers dont tous les fichiers .jsonl sont pris
    #[arg(value_name = "FICHIERS", required = true)]
    inputs: Vec<PathBuf>,
}

#[derive(Args)]
pub(crate) struct AppendOptions {
    /// Fichier JSON d'une mesure, tel que l'écrit measure --output
    #[arg(long, value_name = "FICHIER", allow_hyphen_values = true)]
    from: PathBuf,
    /// Fichier CSV qui reçoit les lignes ; ce qu'il contient n'est pas modifié
    #[arg(long, value_name = "FICHIER", allow_hyphen_values = true)]
    to: PathBuf,
}

#[derive(Args)]
pub(crate) struct SummaryOptions {
    /// Fichier CSV de résultats
    #[arg(value_name = "FICHIER")]
    file: PathBuf,
}

fn main() -> ExitCode {
    fail_at_the_size_limit();
    match parse(std::env::args_os()) {
        Ok(line) => run(line.task),
        Err(error) => answer_clap(&error),
    }
}

/// Reads a command line, the program's name first.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Line, clap::Error> {
    let matches = in_french(Line::command()).try_get_matches_from(arguments)?;
    Line::from_arg_matches(&matches)
}

fn run(task: Task) -> ExitCode {
    match task {
        Task::Estimate(options) => estimate(&options).map_or_else(fail, |result| print_result(&result)),
        Task::Environment(options) => environment(&options).map_or_else(fail, |report| print_result(&report)),
        Task::Measure(options) => measure(&options).unwrap_or_else(fail),
        Task::Simulate(options) => simulated(&options).map_or_else(fail, |found| print_result(&found)),
        Task::Compare(options) => compare(&options).unwrap_or_else(fail),
        Task::Explore(options) => match &options.task {
            None => explored(&options).unwrap_or_else(fail),
            Some(ExploreTask::Merge(options)) => merged(options).unwrap_or_else(fail),
            Some(ExploreTask::Report(options)) => reported(options).unwrap_or_else(fail),
        },
        Task::Results(ResultsTask::Append(options)) => add_to_results(&options).unwrap_or_else(fail),
        Task::Results(ResultsTask::Summary(options)) => {
            summarize(&options.file).map_or_else(fail, |summary| print_result(&summary))
        }
    }
}

pub(crate) fn estimate(options: &EstimateOptions) -> Result<Estimate, LabError> {
    let parameters = parse_count("parameters", &options.parameters)?;
    estimate_weights(parameters, parse_bits("bits", &options.bits)?, &options.reserve_gib)
}

fn environment(options: &EnvironmentOptions) -> Result<EnvironmentReport, LabError> {
    environment_report(&options.device)
}

fn measure(options: &MeasureOptions) -> Result<ExitCode, LabError> {
    let config = configuration(&options.configuration)?;
    config.check()?;
    let extras = extras(options)?;
    let file = match options.output.as_ref().map(NewFile::check).transpose() {
        Ok(file) => file,
        Err(refused) => {
            // Found before anything was measured: an argument to correct, whatever the reason.
            fail(refused);
            return Ok(ExitCode::from(2));
        }
    };
    let mut measurement = measure_with(&WorkerProgram::locate()?, &config, extras, &mut progress(&config))?;
    if options.simulate {
        // The measurement is not lost for want of its simulation.
        let refused = |error: LabError| complain(&format!("{error} La mesure est donnée sans simulation."));
        measurement.simulation = simulation_of(&measurement).map_err(refused).ok();
    }
    Ok(match file {
        None => print_result(&measurement),
        Some(file) => save(&file, &measurement),
    })
}

pub(crate) fn extras(options: &MeasureOptions) -> Result<Extras, LabError> {
    let device_passes = options.device_time.as_deref().map(|passes| parse_device_passes("device_time", passes));
    Ok(Extras { digest: options.digest, device_passes: device_passes.transpose()? })
}

/// Without a GPU: nothing of it is measured.
pub(crate) fn simulated(options: &SimulateOptions) -> Result<Simulation, LabError> {
    let memory = options.gpu_memory.as_deref().map(|bytes| parse_memory("gpu_memory", bytes)).transpose()?;
    let simulation = simulate(&configuration(&options.configuration)?, &options.profile.parse()?)?;
    Ok(match memory {
        Some(bytes) => simulation.beside_memory(bytes),
        None => simulation,
    })
}

fn compare(options: &CompareOptions) -> Result<ExitCode, LabError> {
    let measurement = read_measurement(&options.file)?;
    if let Some(other) = &options.other {
        let comparison = compare_measurements(&measurement, &read_measurement(other)?)?;
        return Ok(print_result(&comparison));
    }
    let comparison = compare_with_simulation(&measurement)?;
    let printed = print_result(&comparison);
    Ok(if comparison.identical { printed } else { ExitCode::FAILURE })
}

fn explored(options: &ExploreOptions) -> Result<ExitCode, LabError> {
    let plan = planned(options)?;
    let told = show(&Ok(plan.clone())).text().to_owned();
    let Some(output) = options.output.as_ref().filter(|_| !options.dry_run) else {
        return Ok(print_result(&told.trim_end()));
    };
    complain(told.trim_end());
    complain("\nPour interrompre : Ctrl+C. La même commande avec --resume continue sans rien refaire.\n");
    let explored = explore(&plan, output, options.resume, &mut exploration_progress())?;
    complain(&explored.to_string());
    Ok(ExitCode::SUCCESS)
}

fn reported(options: &ReportOptions) -> Result<ExitCode, LabError> {
    let output = options.output.clone().unwrap_or_else(|| options.file.with_extension("html"));
    let page = match NewFile::check(output) {
        Ok(page) => page,
        Err(refused) => {
            // Found before the file was read: an argument to correct, whatever the reason.
            fail(refused);
            return Ok(ExitCode::from(2));
        }
    };
    let report = report(&options.file)?;
    let written = page.write(report.page().as_bytes());
    let printed = print_result(&report.table());
    Ok(match written {
        Ok(()) => {
            complain(&format!("Page enregistrée dans le nouveau fichier « {} ».", shown(page.path())));
            printed
        }
        Err(error) => {
            fail(error);
            ExitCode::FAILURE
        }
    })
}

fn shown(path: &Path) -> String {
    one_line(&path.to_string_lossy(), 120)
}

pub(crate) fn planned(options: &ExploreOptions) -> Result<Plan, LabError> {
    let default = MeasureConfig { device: options.device.clone(), ..MeasureConfig::default() };
    let base = match &options.base {
        Some(text) => parse_base(text, default)?,
        None => default,
    };
    let passes = options.device_time.as_deref().map(|passes| parse_device_passes("device_time", passes));
    let options_of_plan = PlanOptions {
        product: options.product,
        trials: parse_count("trials", &options.trials)?,
        order_seed: parse_seed("order_seed", &options.order_seed)?,
        device_passes: passes.transpose()?,
    };
    Plan::new(base, &options.vary, &options_of_plan)
}

/// A bar for a person at a terminal, plain lines elsewhere.
fn exploration_progress() -> impl FnMut(&Progress<'_>) {
    // None is drawn on a terminal without control sequences either.
    let bar = Some(ProgressBar::new(0).with_style(bar_style())).filter(|bar| !bar.is_hidden());
    move |progress| match &bar {
        None => complain(&progress.to_string()),
        Some(bar) => {
            bar.set_length(progress.runs);
            bar.set_position(progress.done);
            bar.set_message(progress.remaining().unwrap_or_default());
            // What has failed stays above the bar.
            if let Some(run) = progress.last.filter(|run| run.measurement.is_none()) {
                bar.suspend(|| complain(&told(run)));
            }
        }
    }
}

fn bar_style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar())
}

pub(crate) fn configuration(options: &ConfigurationOptions) -> Result<MeasureConfig, LabError> {
    Ok(MeasureConfig {
        device: options.device.clone(),
        batch: parse_count("batch", &options.batch)?,
        context: parse_count("context", &options.context)?,
        width: parse_count("width", &options.width)?,
        dtype: options.dtype.parse()?,
        warmup: parse_count("warmup", &options.warmup)?,
        repeats: parse_count("repeats", &options.repeats)?,
        seed: parse_seed("seed", &options.seed)?,
    })
}

/// A measurement that cannot be saved is printed: the GPU time behind it must not be lost.
fn save(file: &NewFile, measurement: &Measurement) -> ExitCode {
    match file.write(format!("{measurement}\n").as_bytes()) {
        Ok(()) => {
            complain(&Saved { path: file.path().to_owned() }.to_string());
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&format!("{error} La mesure est donnée sur la sortie standard."));
            print_result(measurement);
            ExitCode::FAILURE
        }
    }
}

fn add_to_results(options: &AppendOptions) -> Result<ExitCode, LabError> {
    let appended = append(&read_measurement(&options.from)?, &options.to)?;
    complain(&appended.to_string());
    Ok(ExitCode::SUCCESS)
}

fn merged(options: &MergeOptions) -> Result<ExitCode, LabError> {
    complain(&merge(&options.inputs, &options.output)?.to_string());
    Ok(ExitCode::SUCCESS)
}

/// Tells a person at a terminal what has been measured so far; a log file gets none of it.
fn progress(config: &MeasureConfig) -> impl FnMut(&PhaseRow) {
    let shown = stderr().is_terminal();
    let repeats = config.repeats;
    move |row| {
        // At most ten lines for the repetitions, however many there are.
        let due = row.run_index % repeats.div_ceil(10) == 0;
        if shown && due {
            let of = if row.run_index == 0 { String::new() } else { format!(" {}/{repeats}", row.run_index) };
            complain(&format!("{}{of} : {:.6} s", row.phase, row.elapsed_seconds));
        }
    }
}
