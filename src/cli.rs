//! What the commands share: clap in French, and exit codes.

use std::fmt::Display;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};

use crate::error::{LabError, harmless, io_words, shortened};

// French puts a space before the colon that clap adds.
const OPTIONS: &str = "Options\u{a0}";
const ARGUMENTS: &str = "Arguments\u{a0}";
const TEMPLATE: &str = "{about-with-newline}\nUsage : {usage}\n\n{all-args}{after-help}";

/// Gives `command` and its subcommands French headings, help and version options.
pub fn in_french(command: Command) -> Command {
    let subcommands: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let mut command = command
        .help_template(TEMPLATE)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .subcommand_value_name("COMMANDE")
        .subcommand_help_heading("Commandes\u{a0}")
        .next_help_heading(OPTIONS)
        .mut_args(|arg| {
            let has_default = !arg.get_default_values().is_empty();
            let heading = if arg.is_positional() { ARGUMENTS } else { OPTIONS };
            arg.help_heading(heading).hide_default_value(has_default)
        })
        .arg(
            Arg::new("help")
                .short('h')
                .long("help")
                .action(ArgAction::Help)
                .help_heading(OPTIONS)
                .help("Affiche cette aide"),
        );
    if command.get_version().is_some() {
        let version = Arg::new("version").short('V').long("version").action(ArgAction::Version);
        command = command.arg(version.help_heading(OPTIONS).help("Affiche la version"));
    }
    for name in subcommands {
        command = command.mut_subcommand(name, in_french);
    }
    command
}

/// A write beyond the user's limit on file sizes fails with its reason, as on a full disk: the signal
/// that would end the process before waits for ever.
pub fn fail_at_the_size_limit() {
    #[cfg(unix)]
    {
        use nix::sys::signal::{SigSet, Signal};
        // Fails for no signal that exists.
        let _ = SigSet::from(Signal::SIGXFSZ).thread_block();
    }
}

/// Prints help or version on standard output, or a French refusal on standard error.
pub fn answer_clap(error: &clap::Error) -> ExitCode {
    let asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if asked_for {
        return print_result(&error.render().to_string().trim_end());
    }
    complain(&refusal(error));
    ExitCode::from(2)
}

/// What [`answer_clap`] says to a wrong command line. clap's own wording is English; its kinds and
/// contexts are not.
pub fn refusal(error: &clap::Error) -> String {
    let text = |kind| error.get(kind).map(context_text).unwrap_or_default();
    let argument = || text(ContextKind::InvalidArg);
    let usage = error.get(ContextKind::Usage).map(context_text).unwrap_or_default();
    let usage = usage.trim().trim_start_matches("Usage:").trim().to_owned();
    let what = match error.kind() {
        ErrorKind::UnknownArgument => match error.get(ContextKind::SuggestedArg) {
            Some(known) => format!("Option inconnue : {}. Vouliez-vous dire {} ?", argument(), context_text(known)),
            None => format!("Argument inconnu : {}.", argument()),
        },
        ErrorKind::InvalidSubcommand => format!("Commande inconnue : {}.", text(ContextKind::InvalidSubcommand)),
        ErrorKind::MissingRequiredArgument => format!("Il manque : {}.", argument()),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "Il manque une commande.".to_owned()
        }
        ErrorKind::ArgumentConflict if text(ContextKind::PriorArg) == argument() => {
            format!("L'option {} ne peut être donnée qu'une fois.", argument())
        }
        ErrorKind::ArgumentConflict => {
            let refused = [argument(), text(ContextKind::InvalidSubcommand)].concat();
            format!("{refused} ne peut pas être donné avec {}.", text(ContextKind::PriorArg))
        }
        ErrorKind::InvalidValue if text(ContextKind::InvalidValue).is_empty() => {
            format!("L'option {} demande une valeur.", argument())
        }
        ErrorKind::InvalidUtf8 => "Un argument n'est pas un texte UTF-8.".to_owned(),
        _ => format!("{} : « {} » refusé.", argument(), text(ContextKind::InvalidValue)),
    };
    let usage = if usage.is_empty() { String::new() } else { format!("\nUsage : {usage}") };
    format!("{what}{usage}\nL'option --help affiche l'aide.")
}

fn context_text(value: &ContextValue) -> String {
    match value {
        ContextValue::String(text) => text.clone(),
        ContextValue::Strings(texts) => texts.join(", "),
        ContextValue::StyledStr(text) => StyledStr::to_string(text),
        ContextValue::StyledStrs(texts) => texts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        ContextValue::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// Prints a result and a newline on standard output, piece by piece as it is made.
pub fn print_result(result: &dyn Display) -> ExitCode {
    let mut output = BufWriter::new(io::stdout().lock());
    match writeln!(output, "{result}").and_then(|()| output.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("Le résultat n'a pas pu être écrit sur la sortie standard ({}).", io_words(&error)));
            ExitCode::FAILURE
        }
    }
}

/// Says something that is not a result, on standard error.
pub fn complain(text: &str) {
    // Nowhere is left to report that standard error is closed.
    let _ = writeln!(io::stderr().lock(), "{}", harmless(text));
}

/// Text from outside, as a line for people can quote it: cut after `limit` characters, and without those
/// that steer a terminal.
pub fn one_line(text: &str, limit: usize) -> String {
    shortened(text, limit)
}

/// Explains an error on standard error and gives its exit code. Arguments are named as options.
pub fn fail(error: LabError) -> ExitCode {
    let code = ExitCode::from(error.exit_code());
    let error = match error {
        LabError::InvalidArgument { name, found, expected } if !name.contains([' ', '-']) => {
            LabError::InvalidArgument { name: format!("--{}", name.replace('_', "-")), found, expected }
        }
        other => other,
    };
    complain(&error.to_string());
    code
}
