//! Writes a new file or nothing: a name never shows a file that is not complete, and an existing
//! file is never touched.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::LabError;
use crate::measure::Measurement;
use crate::temporary::{NotNamed, Temporary, folder_of, sync_folder_of};

/// A name that was free when it was checked, in a folder that can be written to.
#[derive(Clone, Debug)]
pub struct NewFile {
    path: PathBuf,
}

impl NewFile {
    /// Checks that `path` is free and that its folder takes a new file, before anything else is done.
    ///
    /// # Errors
    /// [`LabError::FileExists`] when anything has that name, a dangling link included;
    /// [`LabError::NotWritable`] when the folder does not take files.
    pub fn check(path: impl Into<PathBuf>) -> Result<Self, LabError> {
        let file = Self { path: path.into() };
        match file.path.symlink_metadata() {
            Ok(_) => return Err(file.exists()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            // A name that is too long, or a folder that is a file: it could never be written.
            Err(error) => return Err(file.not_writable(error)),
        }
        let ends_as_folder =
            [b"/" as &[u8], b"/."].iter().any(|end| file.path.as_os_str().as_encoded_bytes().ends_with(end));
        if file.path.file_name().is_none() || ends_as_folder {
            return Err(file.not_writable(std::io::ErrorKind::InvalidInput.into()));
        }
        if nameless_in(folder_of(&file.path)).is_none() {
            Temporary::beside(&file.path).map_err(|error| file.not_writable(error))?;
        }
        Ok(file)
    }

    /// Writes `contents` completely under the name, flushed to the disk, or not at all.
    ///
    /// # Errors
    /// [`LabError::FileExists`] when the name was taken meanwhile; [`LabError::NotSynced`] when the
    /// file is there and the disk did not confirm its name; [`LabError::NotWritable`] for any other
    /// failure.
    pub fn write(&self, contents: &[u8]) -> Result<(), LabError> {
        match self.write_nameless(contents) {
            Some(written) => {
                written.map_err(|error| self.refused(error))?;
                sync_folder_of(&self.path).map_err(|error| not_synced(&self.path, error))
            }
            None => self.write_temporary(contents),
        }
    }

    /// Writes a file that has no name until it is complete: whatever ends this process, nothing is
    /// left behind. None where the system or the file system has no such files.
    fn write_nameless(&self, contents: &[u8]) -> Option<std::io::Result<()>> {
        let mut file = nameless_in(folder_of(&self.path))?;
        if let Err(error) = file.write_all(contents).and_then(|()| file.sync_all()) {
            return Some(Err(error));
        }
        match name_file(&file, &self.path) {
            // Without /proc the file cannot be given its name.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            named => Some(named),
        }
    }

    fn write_temporary(&self, contents: &[u8]) -> Result<(), LabError> {
        let temporary = Temporary::beside(&self.path).and_then(|mut file| file.write_all(contents).map(|()| file));
        let temporary = temporary.map_err(|error| self.not_writable(error))?;
        temporary.become_new(&self.path).map_err(|failed| match failed {
            NotNamed::NotWritten(error) => self.refused(error),
            NotNamed::NotSynced(error) => not_synced(&self.path, error),
        })
    }

    fn refused(&self, error: std::io::Error) -> LabError {
        match error.kind() {
            std::io::ErrorKind::AlreadyExists => self.exists(),
            _ => self.not_writable(error),
        }
    }

    /// The name as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn exists(&self) -> LabError {
        LabError::FileExists { path: self.shown() }
    }

    fn not_writable(&self, source: std::io::Error) -> LabError {
        not_writable(&self.path, source)
    }

    fn shown(&self) -> String {
        crate::error::shortened(&self.path.to_string_lossy(), 120)
    }
}

/// Saves a measurement as a new JSON file and returns its name.
///
/// The argument is a measurement's outcome, so that a notebook cell can call this whether or not
/// the measurement took place.
///
/// # Errors
/// [`LabError::NothingToSave`] with the reason when there is no measurement, else as [`NewFile`].
///
/// # Examples
/// ```
/// use iteragpu_lab::{LabError, MeasureConfig, measure, save_new};
///
/// let outcome = measure(&MeasureConfig { device: "cpu".to_owned(), ..MeasureConfig::default() });
/// assert!(matches!(save_new(&outcome, "never-written.json"), Err(LabError::NothingToSave { .. })));
/// assert!(!std::path::Path::new("never-written.json").exists());
/// ```
pub fn save_new(outcome: &Result<Measurement, LabError>, path: impl Into<PathBuf>) -> Result<Saved, LabError> {
    match outcome {
        Ok(measurement) => {
            let file = NewFile::check(path)?;
            file.write(format!("{measurement}\n").as_bytes())?;
            Ok(Saved { path: file.path })
        }
        Err(error) => Err(LabError::NothingToSave { reason: error.to_string() }),
    }
}

/// A file that has been written. `Display` says so in French.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Its name as given.
    pub path: PathBuf,
}

impl std::fmt::Display for Saved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = crate::error::shortened(&self.path.to_string_lossy(), 120);
        write!(f, "Mesure enregistrée dans le nouveau fichier « {path} ».")
    }
}

/// An empty file without a name, as readable as any other file of the user.
#[cfg(target_os = "linux")]
fn nameless_in(folder: &Path) -> Option<File> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(CWD, folder, flags, Mode::from_raw_mode(0o666)).ok().map(File::from)
}

/// Gives a nameless file its name; fails when the name is taken.
#[cfg(target_os = "linux")]
fn name_file(file: &File, path: &Path) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;

    use rustix::fs::{AtFlags, CWD, linkat};
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, open.as_str(), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(not(target_os = "linux"))]
fn nameless_in(_folder: &Path) -> Option<File> {
    None
}

#[cfg(not(target_os = "linux"))]
fn name_file(_file: &File, _path: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::NotFound.into())
}

pub(crate) fn not_writable(path: &Path, source: std::io::Error) -> LabError {
    LabError::NotWritable { path: crate::error::shortened(&path.to_string_lossy(), 120), source: without_path(source) }
}

pub(crate) fn not_synced(path: &Path, source: std::io::Error) -> LabError {
    LabError::NotSynced { path: crate::error::shortened(&path.to_string_lossy(), 120), source }
}

/// tempfile adds the temporary's path to its errors; a reader needs the cause only.
fn without_path(error: std::io::Error) -> std::io::Error {
    match error.raw_os_error() {
        Some(code) => std::io::Error::from_raw_os_error(code),
        None => error.kind().into(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn a_new_file_is_complete_and_leaves_nothing_beside_it() -> Outcome {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.json");
        NewFile::check(&path)?.write(b"whole")?;
        assert_eq!(fs::read(&path)?, b"whole");
        assert_eq!(fs::read_dir(folder.path())?.count(), 1);
        Ok(())
    }

    /// Not through [`NewFile::write`], which would do without such files.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_nameless_file_gets_its_name_or_finds_it_taken() -> Outcome {
        use std::os::unix::fs::OpenOptionsExt;
        let folder = tempfile::tempdir()?;
        let flags = i32::try_from(rustix::fs::OFlags::TMPFILE.bits())?;
        if let Err(error) = File::options().write(true).custom_flags(flags).open(folder.path()) {
            writeln!(std::io::stderr(), "nothing tried: no nameless files in {} ({error})", folder.path().display())?;
            return Ok(());
        }
        let file = NewFile { path: folder.path().join("a.json") };
        assert!(matches!(file.write_nameless(b"whole"), Some(Ok(()))));
        let taken = file.write_nameless(b"other").map(|written| written.map_err(|error| error.kind()));
        assert_eq!(taken, Some(Err(std::io::ErrorKind::AlreadyExists)));
        assert_eq!((fs::read(&file.path)?, fs::read_dir(folder.path())?.count()), (b"whole".to_vec(), 1));
        Ok(())
    }

    #[test]
    fn file_systems_without_nameless_files_get_a_temporary_one() -> Outcome {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.json");
        NewFile::check(&path)?.write_temporary(b"whole")?;
        assert_eq!(fs::read(&path)?, b"whole");
        let refused = NewFile { path: path.clone() }.write_temporary(b"other");
        assert!(matches!(refused, Err(LabError::FileExists { .. })));
        assert_eq!((fs::read(&path)?, fs::read_dir(folder.path())?.count()), (b"whole".to_vec(), 1));
        Ok(())
    }

    #[test]
    fn a_taken_name_is_refused_before_and_after() -> Outcome {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.json");
        let checked = NewFile::check(&path)?;
        fs::write(&path, "first")?;
        assert!(matches!(NewFile::check(&path), Err(LabError::FileExists { .. })));
        assert!(matches!(checked.write(b"second"), Err(LabError::FileExists { .. })));
        assert_eq!(fs::read(&path)?, b"first");
        assert_eq!(fs::read_dir(folder.path())?.count(), 1);
        assert!(matches!(NewFile::check(folder.path()), Err(LabError::FileExists { .. })));
        assert!(matches!(NewFile::check("Cargo.toml"), Err(LabError::FileExists { path }) if path == "Cargo.toml"));
        Ok(())
    }

    #[test]
    fn what_was_saved_is_named() {
        let said = Saved { path: "a.json".into() }.to_string();
        assert_eq!(said, "Mesure enregistrée dans le nouveau fichier « a.json ».");
    }

    #[cfg(unix)]
    #[test]
    fn a_dangling_link_counts_as_taken() -> Outcome {
        let folder = tempfile::tempdir()?;
        let link = folder.path().join("link.json");
        std::os::unix::fs::symlink(folder.path().join("nowhere"), &link)?;
        assert!(matches!(NewFile::check(&link), Err(LabError::FileExists { .. })));
        assert!(!folder.path().join("nowhere").exists());
        Ok(())
    }

    #[test]
    fn a_missing_folder_is_named_with_its_reason() {
        let refused = NewFile::check("no-such-folder/a.json").map(|_| ()).map_err(|error| error.to_string());
        assert!(refused.is_err_and(|text| text.contains("no-such-folder/a.json") && !text.contains(".tmp")));
        let long = "é".repeat(128);
        for bad in ["", "..", "/", "new/", "new/.", "a\0b", &long, "Cargo.toml/a"] {
            assert!(NewFile::check(bad).is_err(), "{bad:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_file_has_the_permissions_of_any_other() -> Outcome {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir()?;
        let (ours, other) = (folder.path().join("ours"), folder.path().join("other"));
        NewFile::check(&ours)?.write(b"")?;
        fs::write(&other, "")?;
        assert_eq!(fs::metadata(ours)?.permissions().mode(), fs::metadata(other)?.permissions().mode());
        Ok(())
    }
}
