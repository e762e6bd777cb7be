//! What can go wrong, as values that say what was found, what was expected and the way out.

use std::fmt;
use std::io;

use crate::protocol::{Failure, OTHERS_FIRST};
use crate::worker::BUS_ERROR;

/// Every error of this crate. Its `Display` text is French, since people read it in a notebook
/// or a terminal; programs match on the variant.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabError {
    /// A value that somebody entered is not one of the accepted ones.
    InvalidArgument {
        /// The argument's name, as in the library (`reserve_gib`) or as the option (`--reserve-gib`).
        name: String,
        /// The text found, shortened when very long.
        found: String,
        /// What is accepted, in words.
        expected: String,
    },

    /// No measuring program was found.
    WorkerMissing,

    /// `ITERAGPU_WORKER` names something that cannot be run.
    WorkerVariable,

    /// The operating system could not start the measuring program.
    WorkerStart(io::Error),

    /// The loader did not find one of the worker's libraries.
    LibtorchNotLoaded {
        /// File name of the missing library, such as `libtorch_cpu.so`.
        library: String,
    },

    /// The loader found one of the worker's libraries and could not use it.
    LibtorchUnusable {
        /// File name of the library.
        library: String,
        /// The loader's words.
        words: String,
    },

    /// The loader found a libtorch that lacks a symbol the worker was built with.
    LibtorchMismatch {
        /// Mangled name of the missing symbol, shortened.
        symbol: String,
    },

    /// The worker found was built from another version of this project.
    WorkerVersion {
        /// Version that the worker announced.
        found: String,
        /// Version of this library.
        expected: String,
    },

    /// The worker did not answer in time; it was stopped.
    WorkerSilent {
        /// How long was waited, in whole seconds.
        seconds: u64,
    },

    /// The worker was ended by a signal.
    WorkerKilled {
        /// Number of the signal.
        signal: i32,
        /// What this signal usually means, with its leading punctuation; may be empty.
        hint: &'static str,
    },

    /// The worker ended without giving a result.
    WorkerStopped {
        /// Exit code.
        code: i32,
        /// End of what it wrote on its standard error.
        last_words: String,
    },

    /// The worker wrote something that is not the protocol; it was stopped.
    NotTheProtocol {
        /// Start of what was read.
        found: String,
    },

    /// The worker ran and explained why nothing was measured.
    Unavailable(Failure),

    /// The chosen output name is already taken.
    FileExists {
        /// The name as given.
        path: String,
    },

    /// The chosen output cannot be written.
    NotWritable {
        /// The name as given.
        path: String,
        /// The operating system's reason.
        source: io::Error,
    },

    /// The file is complete under its name, but the disk did not confirm that it keeps the name.
    NotSynced {
        /// The name as given.
        path: String,
        /// The operating system's reason.
        source: io::Error,
    },

    /// A CSV file holds something that is not accepted.
    InTable {
        /// The file's name as given.
        file: String,
        /// Line in the file, from 1 on.
        line: u64,
        /// The column's name.
        column: String,
        /// The text found, shortened when very long.
        found: String,
        /// What is accepted, in words.
        expected: String,
    },

    /// A file cannot be read.
    Unreadable {
        /// The name as given.
        path: String,
        /// The operating system's reason.
        source: io::Error,
    },

    /// Something else was given in the place of a measurement.
    NotAMeasurement {
        /// What was found, in French.
        found: String,
    },

    /// A results file already holds the measurement that was to be added.
    RunAlreadyRecorded {
        /// The file's name as given.
        path: String,
        /// The measurement's identifier.
        run_id: String,
        /// Line in the file, from 1 on.
        line: u64,
    },

    /// A results file holds no accepted unit, so that no cost per unit exists.
    NoAcceptedUnits {
        /// The file's name as given.
        file: String,
        /// Why not, and what to fill in, in French.
        reason: String,
    },

    /// The file of an exploration cannot be gone on with, or cannot be used.
    ExplorationRefused {
        /// The file's name as given.
        path: String,
        /// Why, in French.
        reason: String,
    },

    /// An exploration has ended early. Its file keeps the finished runs.
    ExplorationStopped {
        /// The file's name as given.
        path: String,
        /// Runs that the file holds.
        done: u64,
        /// Runs of the plan.
        runs: u64,
        /// Why it has ended.
        cause: Box<Self>,
    },

    /// The simulation does not cover what was asked.
    NotModelled {
        /// What it does not cover, in French.
        what: String,
    },

    /// A measurement to compare is missing, or both are one and the same.
    NothingToCompare {
        /// Which, and why, in French.
        reason: String,
    },

    /// There is no measurement to save.
    NothingToSave {
        /// Why there is no measurement.
        reason: String,
    },
}

/// The three things that a person needs to know about an error, in French.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What was found, without a final full stop.
    pub happened: String,
    /// What was therefore not done, a sentence of its own.
    pub not_done: &'static str,
    /// The way out, one or more sentences; may be empty.
    pub way_out: String,
}

const NOT_MEASURED: &str = "Rien n'a été mesuré.";
/// Before what is accepted in the place of a refused value.
const ACCEPTED: &str = "Accepté : ";
/// Whichever way PyTorch came; « cargo xtask worker » looks at its version only.
const REINSTALL: &str = "« pip install --force-reinstall torch==2.11.0 » dans son environnement Python.";
const NOT_COMPUTED: &str = "Rien n'a été calculé ni mesuré.";

impl Explanation {
    /// What happened as a sentence: reasons why nothing was measured are written to follow a colon.
    pub fn sentence(&self) -> String {
        let mut characters = self.happened.chars();
        match characters.next() {
            Some(first) if self.not_done == NOT_MEASURED => {
                first.to_uppercase().chain(characters).chain(['.']).collect()
            }
            _ => format!("{}.", self.happened),
        }
    }

    /// What to do as a sentence; `None` where nobody knows.
    pub fn advice(&self) -> Option<String> {
        match self.way_out.strip_prefix(ACCEPTED) {
            Some(expected) => Some(format!("Que faire : écrire {expected}")),
            None if self.way_out.is_empty() => None,
            None => Some(format!("Que faire : {}", self.way_out)),
        }
    }

    fn unmeasured(happened: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { happened: happened.into(), not_done: NOT_MEASURED, way_out: way_out.into() }
    }

    fn of_file(happened: impl Into<String>, not_done: &'static str, way_out: impl Into<String>) -> Self {
        Self { happened: happened.into(), not_done, way_out: way_out.into() }
    }
}

impl LabError {
    /// What happened, what was not done, what to do.
    pub fn explain(&self) -> Explanation {
        match self {
            Self::InvalidArgument { name, found, expected } => Explanation {
                happened: format!("{name} : « {found} » refusé"),
                not_done: NOT_COMPUTED,
                way_out: format!("{ACCEPTED}{expected}."),
            },
            Self::InTable { file, line, column, found, expected } => Explanation {
                happened: format!("{file}, ligne {line}, colonne {column} : « {found} » refusé"),
                not_done: NOT_COMPUTED,
                way_out: format!("{ACCEPTED}{expected}."),
            },
            Self::Unreadable { path, source } => Explanation {
                happened: format!("Le fichier « {path} » ne peut pas être lu ({})", io_words(source)),
                not_done: NOT_COMPUTED,
                way_out: "Vérifiez le nom du fichier et son dossier ; dans un notebook, un chemin part du dossier du notebook."
                    .to_owned(),
            },
            Self::NoAcceptedUnits { file, reason } => Explanation {
                happened: format!("{file} : aucun coût par unité acceptée n'existe"),
                not_done: "Aucune unité n'a été comptée.",
                way_out: reason.clone(),
            },
            Self::FileExists { path } => Explanation::of_file(
                format!("Le fichier « {path} » existe déjà"),
                "Rien n'a été écrit, rien n'a été écrasé.",
                "Choisissez un nouveau nom.",
            ),
            Self::NotWritable { path, source } => Explanation::of_file(
                format!("Le fichier « {path} » ne peut pas être écrit ({})", io_words(source)),
                "Rien n'a été enregistré sous ce nom.",
                "",
            ),
            Self::NotSynced { path, source } => Explanation::of_file(
                format!(
                    "Le fichier « {path} » est écrit en entier, mais le disque ne confirme pas qu'il le gardera ({})",
                    io_words(source)
                ),
                "Une coupure de courant pourrait encore le perdre.",
                "Vérifiez le disque, puis le fichier.",
            ),
            Self::NotAMeasurement { found } => Explanation::of_file(
                format!("Mesure refusée : {found}"),
                "Elle n'a pas été utilisée.",
                "Attendu : une mesure complète, telle que l'écrit « mesure-memoire measure --output ».",
            ),
            Self::RunAlreadyRecorded { path, run_id, line } => Explanation::of_file(
                format!("Le fichier « {path} » contient déjà l'essai {run_id}, à la ligne {line}"),
                "Rien n'a été ajouté.",
                "Un même essai ne compte qu'une fois ; pour en ajouter un autre, mesurez de nouveau.",
            ),
            Self::ExplorationRefused { path, reason } => Explanation::of_file(
                format!("Le fichier « {path} » : {reason}"),
                "Rien n'a été mesuré ni écrit.",
                "",
            ),
            Self::ExplorationStopped { path, done, runs, cause } => {
                let why = cause.explain().sentence();
                let happened = format!("Arrêt à {done}/{runs}, dans « {path} ». {}", why.trim_end_matches('.'));
                // Its file or its environment is no longer the one that it began with.
                if matches!(**cause, Self::ExplorationRefused { .. }) {
                    return Explanation::of_file(happened, "L'exploration n'est pas finie.", "");
                }
                let go_on = "Pour continuer : la même commande avec --resume, ou la même cellule.";
                Explanation::of_file(
                    happened,
                    "L'exploration n'est pas finie ; son fichier garde les mesures faites.",
                    [&cause.explain().way_out, go_on].join(" ").trim_start(),
                )
            }
            Self::NotModelled { what } => Explanation::of_file(
                format!("La simulation ne couvre pas ceci : {what}"),
                "Rien n'a été simulé.",
                "Elle suit PyTorch 2.11 pour CUDA, à ses réglages par défaut, jusqu'à un million de répétitions et moins de 2^64 octets ; mesurez de nouveau dans ces limites.",
            ),
            Self::NothingToCompare { reason } => Explanation::of_file(
                reason.trim_end_matches('.'),
                "Rien n'a été comparé.",
                "",
            ),
            Self::NothingToSave { reason } => Explanation::of_file(
                format!("Rien à enregistrer. {}", reason.trim_end_matches('.')),
                "Aucun fichier n'a été créé.",
                "",
            ),
            Self::Unavailable(failure) => Explanation::unmeasured(failure.happened(), failure.way_out()),
            Self::WorkerMissing => Explanation::unmeasured(
                "le programme de mesure iteragpu-worker n'est pas construit",
                "Sur une machine à GPU, « cargo xtask worker », lancé dans le dossier du projet, le construit \
                 et installe PyTorch au besoin (4,7 Go) ; sans GPU, il n'aurait rien à mesurer.",
            ),
            Self::WorkerVariable => Explanation::unmeasured(
                "la variable ITERAGPU_WORKER ne désigne pas un programme existant",
                "Corrigez-la, ou retirez-la pour utiliser le programme construit dans le projet.",
            ),
            Self::WorkerStart(source) => Explanation::unmeasured(
                format!("le programme iteragpu-worker n'a pas pu démarrer ({})", io_words(source)),
                "",
            ),
            Self::LibtorchNotLoaded { library } => Explanation::unmeasured(
                format!("PyTorch (libtorch) ne peut pas être chargé, la bibliothèque {library} manque"),
                format!(
                    "« cargo xtask worker » prépare PyTorch 2.11.0 et reconstruit le programme de mesure. Si elle manque encore : {REINSTALL} {OTHERS_FIRST}"
                ),
            ),
            Self::LibtorchUnusable { library, words } => Explanation::unmeasured(
                format!(
                    "la bibliothèque {library} de PyTorch (libtorch) est là, mais ne peut pas être chargée ({words})"
                ),
                format!("Elle est peut-être abîmée, ou la mémoire manque. Pour réinstaller PyTorch : {REINSTALL}"),
            ),
            Self::LibtorchMismatch { symbol } => Explanation::unmeasured(
                format!(
                    "le PyTorch (libtorch) trouvé n'est pas celui pour lequel le programme de mesure \
                     a été construit, il lui manque le symbole {symbol}"
                ),
                format!("Installez PyTorch 2.11.0, ou reconstruisez avec « cargo xtask worker ». {OTHERS_FIRST}"),
            ),
            Self::WorkerVersion { found, expected } => Explanation::unmeasured(
                format!(
                    "le programme iteragpu-worker trouvé est de version {found}, la bibliothèque \
                     attend la version {expected}"
                ),
                "Reconstruisez-le avec « cargo xtask worker ».",
            ),
            Self::WorkerSilent { seconds } => Explanation::unmeasured(
                format!("le programme de mesure n'a rien répondu en {seconds} s ; il a été arrêté"),
                "Un pilote GPU bloqué en est une cause possible : essayez l'outil du fournisseur, puis recommencez.",
            ),
            Self::WorkerKilled { signal, hint } => Explanation::unmeasured(
                format!("le programme de mesure a été interrompu par le signal {signal}{hint}"),
                match *signal {
                    BUS_ERROR => format!("Pour réinstaller PyTorch : {REINSTALL}"),
                    _ => String::new(),
                },
            ),
            Self::WorkerStopped { code, last_words } => Explanation::unmeasured(
                format!("le programme de mesure s'est arrêté sans résultat (code {code})"),
                format!("Son dernier message : {last_words}"),
            ),
            Self::NotTheProtocol { found } => Explanation::unmeasured(
                format!("le programme de mesure a écrit autre chose qu'un message attendu ({found})"),
                "Vérifiez que c'est bien iteragpu-worker, construit avec « cargo xtask worker ».",
            ),
        }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { happened, not_done, way_out } = self.explain();
        match not_done {
            NOT_MEASURED => write!(f, "Aucune mesure : {happened}.")?,
            // What is accepted follows at once: nobody takes a refused value for a result.
            NOT_COMPUTED => write!(f, "{happened}.")?,
            _ => write!(f, "{happened}. {not_done}")?,
        }
        if way_out.is_empty() { Ok(()) } else { write!(f, " {way_out}") }
    }
}

impl std::error::Error for LabError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::WorkerStart(source)
            | Self::NotWritable { source, .. }
            | Self::NotSynced { source, .. }
            | Self::Unreadable { source, .. } => Some(source),
            Self::ExplorationStopped { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

impl LabError {
    pub(crate) fn invalid(name: &str, found: &str, expected: impl Into<String>) -> Self {
        Self::InvalidArgument { name: name.to_owned(), found: shortened(found, 80), expected: expected.into() }
    }

    /// The same refusal of an argument, under another name.
    #[cfg(feature = "explore")]
    pub(crate) fn of_argument(self, name: &str) -> Self {
        match self {
            Self::InvalidArgument { found, expected, .. } => {
                Self::InvalidArgument { name: name.to_owned(), found, expected }
            }
            other => other,
        }
    }

    pub(crate) fn not_the_protocol(found: &str) -> Self {
        Self::NotTheProtocol { found: found.to_owned() }
    }

    #[cfg(feature = "csv")]
    pub(crate) fn in_table(file: &str, line: u64, column: &str, found: &str, expected: String) -> Self {
        let (file, column) = (shortened(file, 120), column.to_owned());
        Self::InTable { file, line, column, found: shortened(found, 80), expected }
    }

    #[cfg(any(feature = "csv", feature = "explore"))]
    pub(crate) fn unreadable(path: &str, source: io::Error) -> Self {
        Self::Unreadable { path: shortened(path, 120), source }
    }

    /// Exit code of a command that ends with this error: 2 for wrong arguments or an unavailable
    /// measurement, 1 for anything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotWritable { .. } | Self::NotSynced { .. } | Self::NothingToSave { .. } => 1,
            // What was refused in the middle is no wrong argument.
            Self::ExplorationStopped { cause, .. } if matches!(**cause, Self::ExplorationRefused { .. }) => 1,
            Self::ExplorationStopped { cause, .. } => cause.exit_code(),
            _ => 2,
        }
    }
}

/// `text` on one line, without characters that steer a terminal, and cut after `limit` characters.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    let text = without_kernel_words(text);
    let mut characters = text.chars().map(|c| if steers(c) { '\u{fffd}' } else { c });
    let mut kept: String = characters.by_ref().take(limit).collect();
    if characters.next().is_some() {
        kept.push('…');
    }
    kept
}

/// Control characters, and those that change the direction of text.
pub(crate) fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The kernel of a notebook takes its orders from lines of standard output that hold such words:
/// a GPU's name or a file must not give any.
fn without_kernel_words(text: &str) -> String {
    text.replace("EVCXR_", "EVCXR\u{fffd}")
}

/// Text for people, which may quote a driver or a file: line ends stay, what steers a terminal goes.
pub(crate) fn harmless(text: &str) -> String {
    without_kernel_words(text).chars().map(|c| if c != '\n' && steers(c) { '\u{fffd}' } else { c }).collect()
}

/// The operating system's reason in French, with its number, where it is one that people meet.
pub(crate) fn io_words(error: &io::Error) -> String {
    let words = match error.kind() {
        io::ErrorKind::NotFound => "fichier ou dossier introuvable",
        io::ErrorKind::PermissionDenied => "droits insuffisants",
        io::ErrorKind::AlreadyExists => "ce nom existe déjà",
        io::ErrorKind::NotADirectory => "un élément du chemin n'est pas un dossier",
        io::ErrorKind::IsADirectory => "c'est un dossier",
        io::ErrorKind::ReadOnlyFilesystem => "système de fichiers en lecture seule",
        io::ErrorKind::StorageFull => "disque plein",
        io::ErrorKind::QuotaExceeded => "quota de disque atteint",
        io::ErrorKind::InvalidFilename => "nom de fichier impossible ou trop long",
        io::ErrorKind::InvalidInput => "nom de fichier impossible",
        io::ErrorKind::OutOfMemory => "mémoire épuisée",
        io::ErrorKind::WouldBlock => "ressource momentanément indisponible",
        io::ErrorKind::BrokenPipe => "le lecteur est parti",
        io::ErrorKind::ExecutableFileBusy => "programme en cours d'écriture",
        io::ErrorKind::InvalidData => "contenu illisible",
        io::ErrorKind::FileTooLarge => "limite de taille des fichiers atteinte",
        // Rust has no stable names for these two.
        _ if error.raw_os_error() == Some(5) => "panne du disque",
        _ if cfg!(target_os = "linux") && error.raw_os_error() == Some(40) => "les liens tournent en rond",
        _ => return error.to_string(),
    };
    error.raw_os_error().map_or_else(|| words.to_owned(), |code| format!("{words}, erreur {code}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_or_hostile_text_is_shortened_to_one_line() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcd", 3), "abc…");
        assert_eq!(shortened("a\u{1b}[31m\nb\u{202e}\u{61c}", 80), "a\u{fffd}[31m\u{fffd}b\u{fffd}\u{fffd}");
        assert_eq!(shortened(" 4", 80), " 4");
        assert_eq!(harmless("a\n\u{1b}b"), "a\n\u{fffd}b");
        for text in [harmless("EVCXR_BEGIN_CONTENT text/html"), shortened("a EVCXR_END_CONTENT", 80)] {
            assert!(!text.contains("EVCXR_"), "{text}");
        }
        let absent = io_words(&io::Error::from_raw_os_error(2));
        assert_eq!(absent, "fichier ou dossier introuvable, erreur 2");
        let disk = io_words(&io::Error::from_raw_os_error(5));
        assert_eq!(disk, "panne du disque, erreur 5");
    }

    #[test]
    fn exit_codes_tell_unavailable_from_failed() {
        assert_eq!(LabError::WorkerMissing.exit_code(), 2);
        assert_eq!(LabError::invalid("bits", "5", "4, 8, 16 ou 32").exit_code(), 2);
        let full = LabError::NotWritable { path: "x".into(), source: io::Error::other("disque plein") };
        assert_eq!(full.exit_code(), 1);
    }
}
