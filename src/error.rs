//! What can go wrong, as values that say what was found, what was expected and the way out.

use std::io;

use thiserror::Error;

use crate::protocol::Failure;

/// Every error of this crate. Its `Display` text is French, since people read it in a notebook
/// or a terminal; programs match on the variant.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// A value that somebody entered is not one of the accepted ones.
    #[error("{name} : « {found} » refusé. Accepté : {expected}.")]
    InvalidArgument {
        /// The argument's name, as in the library (`reserve_gib`) or as the option (`--reserve-gib`).
        name: String,
        /// The text found, shortened when very long.
        found: String,
        /// What is accepted, in words.
        expected: String,
    },

    /// No measuring program was found.
    #[error(
        "Aucune mesure : le programme de mesure iteragpu-worker n'est pas construit. \
         Pour le construire, lancez « cargo xtask worker » dans le dossier du projet."
    )]
    WorkerMissing,

    /// `ITERAGPU_WORKER` names something that cannot be run.
    #[error(
        "Aucune mesure : la variable ITERAGPU_WORKER ne désigne pas un programme existant. \
         Corrigez-la, ou retirez-la pour utiliser le programme construit dans le projet."
    )]
    WorkerVariable,

    /// The operating system could not start the measuring program.
    #[error("Aucune mesure : le programme iteragpu-worker n'a pas pu démarrer ({0}).")]
    WorkerStart(#[source] io::Error),

    /// The loader did not find one of the worker's libraries.
    #[error(
        "Aucune mesure : PyTorch (libtorch) ne peut pas être chargé, la bibliothèque {library} manque. \
         « cargo xtask worker » prépare PyTorch 2.11.0 et reconstruit le programme de mesure."
    )]
    LibtorchNotLoaded {
        /// File name of the missing library, such as `libtorch_cpu.so`.
        library: String,
    },

    /// The loader found a libtorch that lacks a symbol the worker was built with.
    #[error(
        "Aucune mesure : le PyTorch (libtorch) trouvé n'est pas celui pour lequel le programme de mesure \
         a été construit, il lui manque le symbole {symbol}. Installez PyTorch 2.11.0, \
         ou reconstruisez avec « cargo xtask worker »."
    )]
    LibtorchMismatch {
        /// Mangled name of the missing symbol, shortened.
        symbol: String,
    },

    /// The worker found was built from another version of this project.
    #[error(
        "Aucune mesure : le programme iteragpu-worker trouvé est de version {found}, la bibliothèque \
         attend la version {expected}. Reconstruisez-le avec « cargo xtask worker »."
    )]
    WorkerVersion {
        /// Version that the worker announced.
        found: String,
        /// Version of this library.
        expected: String,
    },

    /// The worker did not answer in time; it was stopped.
    #[error(
        "Aucune mesure : le programme de mesure n'a rien répondu en {seconds} s ; il a été arrêté. \
         Un pilote GPU bloqué en est une cause possible : essayez l'outil du fournisseur, puis recommencez."
    )]
    WorkerSilent {
        /// How long was waited, in whole seconds.
        seconds: u64,
    },

    /// The worker was ended by a signal.
    #[error("Aucune mesure : le programme de mesure a été interrompu par le signal {signal}{hint}.")]
    WorkerKilled {
        /// Number of the signal.
        signal: i32,
        /// What this signal usually means, with its leading punctuation; may be empty.
        hint: &'static str,
    },

    /// The worker ended without giving a result.
    #[error(
        "Aucune mesure : le programme de mesure s'est arrêté sans résultat ({status}). Son dernier message : {last_words}"
    )]
    WorkerStopped {
        /// Exit status in words.
        status: String,
        /// End of what it wrote on its standard error.
        last_words: String,
    },

    /// The worker wrote something that is not the protocol; it was stopped.
    #[error(
        "Aucune mesure : le programme de mesure a écrit autre chose qu'un message attendu ({found}). \
         Vérifiez que c'est bien iteragpu-worker, construit avec « cargo xtask worker »."
    )]
    NotTheProtocol {
        /// Start of what was read.
        found: String,
    },

    /// The worker ran and explained why nothing was measured.
    #[error("Aucune mesure : {0}")]
    Unavailable(Failure),

    /// The chosen output name is already taken.
    #[error(
        "Le fichier « {path} » existe déjà : rien n'a été écrit et rien n'a été écrasé. Choisissez un nouveau nom."
    )]
    FileExists {
        /// The name as given.
        path: String,
    },

    /// The chosen output cannot be written.
    #[error("Le fichier « {path} » ne peut pas être écrit ({source}). Rien n'a été enregistré sous ce nom.")]
    NotWritable {
        /// The name as given.
        path: String,
        /// The operating system's reason.
        source: io::Error,
    },

    /// A CSV file holds something that is not accepted.
    #[error("{file}, ligne {line}, colonne {column} : « {found} » refusé. Accepté : {expected}.")]
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
    #[error("Le fichier « {path} » ne peut pas être lu ({source}).")]
    Unreadable {
        /// The name as given.
        path: String,
        /// The operating system's reason.
        source: io::Error,
    },

    /// There is no measurement to save.
    #[error("Rien à enregistrer, aucun fichier n'a été créé. {reason}")]
    NothingToSave {
        /// Why there is no measurement.
        reason: String,
    },
}

impl LabError {
    pub(crate) fn invalid(name: &str, found: &str, expected: impl Into<String>) -> Self {
        Self::InvalidArgument { name: name.to_owned(), found: shortened(found, 80), expected: expected.into() }
    }

    pub(crate) fn in_table(file: &str, line: u64, column: &str, found: &str, expected: String) -> Self {
        let (file, column) = (shortened(file, 120), column.to_owned());
        Self::InTable { file, line, column, found: shortened(found, 80), expected }
    }

    pub(crate) fn unreadable(path: &str, source: io::Error) -> Self {
        Self::Unreadable { path: shortened(path, 120), source }
    }

    /// Exit code of a command that ends with this error: 2 for wrong arguments or an unavailable
    /// measurement, 1 for anything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotWritable { .. } | Self::NothingToSave { .. } => 1,
            _ => 2,
        }
    }
}

/// `text` on one line, without control characters, and cut after `limit` characters.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    let mut characters = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut kept: String = characters.by_ref().take(limit).collect();
    if characters.next().is_some() {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_or_hostile_text_is_shortened_to_one_line() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcd", 3), "abc…");
        assert_eq!(shortened("a\u{1b}[31m\nb", 80), "a [31m b");
    }

    #[test]
    fn exit_codes_tell_unavailable_from_failed() {
        assert_eq!(LabError::WorkerMissing.exit_code(), 2);
        assert_eq!(LabError::invalid("bits", "5", "4, 8, 16 ou 32").exit_code(), 2);
        let full = LabError::NotWritable { path: "x".into(), source: io::Error::other("disque plein") };
        assert_eq!(full.exit_code(), 1);
    }
}
