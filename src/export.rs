//! Writes a new file or nothing: a name never shows a file that is not complete, and an existing
//! file is never touched.

use std::fs::File;
use std::io::{BufWriter, Write};
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
        self.write_parts([Ok(contents)])
    }

    /// The same for contents that come in parts, and are never in memory as a whole: the first part that
    /// is an error ends it, and nothing is written.
    ///
    /// # Errors
    /// That of a part, else as [`NewFile::write`].
    pub fn write_parts<P: AsRef<[u8]>>(
        &self,
        parts: impl IntoIterator<Item = Result<P, LabError>>,
    ) -> Result<(), LabError> {
        match nameless_in(folder_of(&self.path)) {
            Some(file) => self.write_nameless(&file, parts),
            None => self.write_temporary(parts),
        }
    }

    /// Writes a file that has no name until it is complete: whatever ends this process, nothing is
    /// left behind.
    fn write_nameless<P: AsRef<[u8]>>(
        &self,
        file: &File,
        parts: impl IntoIterator<Item = Result<P, LabError>>,
    ) -> Result<(), LabError> {
        self.fill(file, parts)?;
        file.sync_all().and_then(|()| name_file(file, &self.path)).map_err(|error| self.refused(error))?;
        sync_folder_of(&self.path).map_err(|error| not_synced(&self.path, error))
    }

    fn write_temporary<P: AsRef<[u8]>>(
        &self,
        parts: impl IntoIterator<Item = Result<P, LabError>>,
    ) -> Result<(), LabError> {
        let mut temporary = Temporary::beside(&self.path).map_err(|error| self.not_writable(error))?;
        self.fill(&mut temporary, parts)?;
        temporary.become_new(&self.path).map_err(|failed| match failed {
            NotNamed::NotWritten(error) => self.refused(error),
            NotNamed::NotSynced(error) => not_synced(&self.path, error),
        })
    }

    fn fill<P: AsRef<[u8]>>(
        &self,
        file: impl Write,
        parts: impl IntoIterator<Item = Result<P, LabError>>,
    ) -> Result<(), LabError> {
        let mut file = BufWriter::new(file);
        for part in parts {
            file.write_all(part?.as_ref()).map_err(|error| self.not_writable(error))?;
        }
        file.flush().map_err(|error| self.not_writable(error))
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

/// An empty file without a name, as readable as any other file of the user. None where the system or the
/// file system has no such files, or cannot name them.
#[cfg(target_os = "linux")]
fn nameless_in(folder: &Path) -> Option<File> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(CWD, folder, flags, Mode::from_raw_mode(0o666)).ok().map(File::from)?;
    // There is not always a /proc.
    Path::new(&open_file(&file)).symlink_metadata().is_ok().then_some(file)
}

/// The name of an open file below /proc.
#[cfg(target_os = "linux")]
fn open_file(file: &File) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Gives a nameless file its name; fails when the name is taken.
#[cfg(target_os = "linux")]
fn name_file(file: &File, path: &Path) -> std::io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    Ok(linkat(CWD, open_file(file).as_str(), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(not(target_os = "linux"))]
fn nameless_in(_folder: &Path) -> Option<File> {
    None
}

#[cfg(not(target_os = "linux"))]
fn name_file(_file: &File, _path: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
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
        let write = |contents: &str| {
            let nameless = nameless_in(folder.path()).ok_or("no nameless file")?;
            Ok::<_, &str>(file.write_nameless(&nameless, contents.split_inclusive(' ').map(Ok)))
        };
        assert!(matches!(write("the who le")?, Ok(())));
        assert!(matches!(write("other")?, Err(LabError::FileExists { .. })));
        assert_eq!((fs::read(&file.path)?, fs::read_dir(folder.path())?.count()), (b"the who le".to_vec(), 1));
        Ok(())
    }

    #[test]
    fn file_systems_without_nameless_files_get_a_temporary_one() -> Outcome {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.json");
        NewFile::check(&path)?.write_temporary([Ok("who"), Ok("le")])?;
        assert_eq!(fs::read(&path)?, b"whole");
        let refused = NewFile { path: path.clone() }.write_temporary([Ok("other")]);
        assert!(matches!(refused, Err(LabError::FileExists { .. })));
        assert_eq!((fs::read(&path)?, fs::read_dir(folder.path())?.count()), (b"whole".to_vec(), 1));
        Ok(())
    }

    #[test]
    fn contents_that_end_with_an_error_are_not_written() -> Outcome {
        let folder = tempfile::tempdir()?;
        let file = NewFile::check(folder.path().join("a.json"))?;
        let long = "long ".repeat(10_000);
        let parts = || [Ok(long.as_str()), Err(LabError::WorkerMissing), Ok("never")];
        for refused in [file.write_parts(parts()), file.write_temporary(parts())] {
            assert!(matches!(refused, Err(LabError::WorkerMissing)));
            assert_eq!(fs::read_dir(folder.path())?.count(), 0);
        }
        file.write_parts([Ok(&long), Ok(&long)])?;
        assert_eq!(fs::read_to_string(file.path())?, long.repeat(2));
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
