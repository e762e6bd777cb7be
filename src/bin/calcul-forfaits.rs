//! `calcul-forfaits`: the price of a fixed term, and the cost of an accepted result. Results go to
//! standard output, everything else to standard error. Exit codes: 0 done, 2 wrong arguments, 1
//! anything else.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use iteragpu_lab::arguments::parse_count;
use iteragpu_lab::cli::{answer_clap, fail, fail_at_the_size_limit, in_french, print_result};
use iteragpu_lab::{LabError, PriceList, Quote};

#[derive(Parser)]
#[command(
    name = "calcul-forfaits",
    version,
    about = "Calcule le prix d'un forfait GPU entier et, si on le demande, le coût d'un résultat accepté."
)]
pub(crate) struct Options {
    /// Modèle de GPU, comme b200 ; --liste montre ceux qui existent
    #[arg(long, value_name = "MODÈLE", required_unless_present = "liste", allow_hyphen_values = true)]
    pub(crate) gpu: Option<String>,
    /// Durée du forfait en jours
    #[arg(long, value_name = "JOURS", required_unless_present = "liste", allow_hyphen_values = true)]
    pub(crate) days: Option<String>,
    /// Nombre de lots [par défaut : 1]
    #[arg(long, value_name = "NOMBRE", default_value = "1", allow_hyphen_values = true)]
    pub(crate) lots: String,
    /// Nombre de résultats distincts réellement acceptés ; sans lui, le coût unitaire vaut null
    #[arg(long, value_name = "NOMBRE", allow_hyphen_values = true)]
    pub(crate) accepted_results: Option<String>,
    /// Fichier de résultats dont compter les unités distinctes acceptées
    #[arg(long, value_name = "FICHIER", conflicts_with = "accepted_results")]
    pub(crate) results: Option<PathBuf>,
    /// Fichier de tarifs à lire à la place de celui du projet
    #[arg(long, value_name = "FICHIER")]
    pub(crate) tarifs: Option<PathBuf>,
    /// Montre la liste des tarifs, le moins cher par GPU et par jour d'abord
    #[arg(long, conflicts_with_all = ["gpu", "days", "accepted_results", "results"])]
    pub(crate) liste: bool,
    /// Donne la liste en JSON ; un prix l'est toujours
    #[arg(long)]
    pub(crate) json: bool,
}

fn main() -> ExitCode {
    fail_at_the_size_limit();
    match parse(std::env::args_os()) {
        Ok(options) => run(&options).map_or_else(fail, |text| print_result(&text.trim_end())),
        Err(error) => answer_clap(&error),
    }
}

/// Reads a command line, the program's name first.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Options, clap::Error> {
    let matches = in_french(Options::command()).try_get_matches_from(arguments)?;
    Options::from_arg_matches(&matches)
}

fn run(options: &Options) -> Result<String, LabError> {
    let list = options.tarifs.as_deref().map_or_else(PriceList::shipped, PriceList::open)?;
    match (options.liste, options.json) {
        (true, true) => Ok(list.to_json()),
        (true, false) => Ok(list.to_string()),
        (false, _) => quote(options, &list).map(|quote| quote.to_string()),
    }
}

pub(crate) fn quote(options: &Options, list: &PriceList) -> Result<Quote, LabError> {
    let given = |text: &Option<String>| text.clone().unwrap_or_default();
    let days = parse_count("days", &given(&options.days))?;
    let lots = parse_count("lots", &options.lots)?;
    let gpu = given(&options.gpu);
    if let Some(results) = &options.results {
        return list.quote_results(&gpu, days, lots, results);
    }
    let accepted = options.accepted_results.as_deref().map(|text| parse_count("accepted_results", text)).transpose()?;
    list.quote(&gpu, days, lots, accepted)
}
