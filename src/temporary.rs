//! Files that have a name of their own until they are complete. The one who makes the next of them in
//! a folder removes those whose process was killed.

use std::fmt;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::error::io_words;

/// Long enough that nobody else gives a file such a name: what is left over under it is removed.
const PREFIX: &str = ".iteragpu-lab-incomplete-";
const SUFFIX: &str = ".tmp";
/// tempfile draws that many ASCII letters and digits.
const DRAWN: usize = 6;

/// A file that is not complete yet. Dropped, it vanishes; so it does when a signal asks the commands to end.
///
/// It is locked as long as it is in use, so that one whose process was killed is told from it.
pub struct Temporary {
    // Goes before the guard: a signal that has waited finds no file any more.
    file: NamedTempFile,
    _undisturbed: Undisturbed,
}

impl Temporary {
    /// An empty file in the folder of `path`.
    ///
    /// # Errors
    /// Where the folder does not take a file.
    pub fn beside(path: &Path) -> io::Result<Self> {
        Self::in_folder(folder_of(path))
    }

    /// An empty file in `folder`.
    ///
    /// # Errors
    /// Where the folder does not take a file.
    pub fn in_folder(folder: &Path) -> io::Result<Self> {
        let undisturbed = Undisturbed::begin();
        loop {
            let file = builder().tempfile_in(folder)?;
            let locked = file.as_file().lock().is_ok();
            // Between the two, somebody who removes what is left behind may have taken it for that.
            if !file.path().exists() {
                continue;
            }
            // A file system without locks tells nobody which files are in use.
            if locked {
                remove_leftovers(folder, &file);
            }
            return Ok(Self { file, _undisturbed: undisturbed });
        }
    }

    /// The file itself.
    pub fn as_file(&self) -> &File {
        self.file.as_file()
    }

    /// Takes over who owns `old`, and who may do what with it.
    ///
    /// # Errors
    /// Where the permissions cannot be set.
    pub fn keep_owner_and_permissions(&self, old: &File) -> io::Result<()> {
        let metadata = old.metadata()?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::{MetadataExt, fchown};
            // Only some users may give a file away; the others own what they write.
            let _ = fchown(self.as_file(), Some(metadata.uid()), Some(metadata.gid()));
        }
        self.as_file().set_permissions(metadata.permissions())
    }

    /// Puts the complete file, flushed to the disk, in the place of what is called `path`.
    ///
    /// # Errors
    /// [`NotNamed::NotWritten`] when `path` is as it was, [`NotNamed::NotSynced`] when it is the new file.
    pub fn replace(self, path: &Path) -> Result<(), NotNamed> {
        self.take(path, |file| file.persist(path))
    }

    /// Gives the complete file, flushed to the disk, a name that is free.
    ///
    /// # Errors
    /// As [`Temporary::replace`].
    pub fn become_new(self, path: &Path) -> Result<(), NotNamed> {
        self.take(path, |file| file.persist_noclobber(path))
    }

    fn take(
        self,
        path: &Path,
        name: impl FnOnce(NamedTempFile) -> Result<File, tempfile::PersistError>,
    ) -> Result<(), NotNamed> {
        self.as_file().sync_all().map_err(NotNamed::NotWritten)?;
        let Self { file, _undisturbed } = self;
        let _named = name(file).map_err(|failed| NotNamed::NotWritten(failed.error))?;
        sync_folder_of(path).map_err(NotNamed::NotSynced)
    }
}

impl Write for Temporary {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// How far a file got that is not safe under its name.
#[derive(Debug)]
pub enum NotNamed {
    /// The name is as it was.
    NotWritten(io::Error),
    /// The file is complete under its name, and the disk did not confirm that it keeps the name.
    NotSynced(io::Error),
}

impl fmt::Display for NotNamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWritten(error) => f.write_str(&io_words(error)),
            Self::NotSynced(error) => write!(f, "écrit, mais le disque ne le confirme pas ({})", io_words(error)),
        }
    }
}

impl std::error::Error for NotNamed {}

impl From<NotNamed> for io::Error {
    fn from(failed: NotNamed) -> Self {
        let (NotNamed::NotWritten(error) | NotNamed::NotSynced(error)) = failed;
        error
    }
}

/// A new name must itself survive a power cut.
///
/// # Errors
/// What the disk reports. A file system that cannot sync folders has already done what it can, and so
/// has a user who may write to a folder but not read it.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    match File::open(folder_of(path)).and_then(|folder| folder.sync_all()) {
        Err(error)
            if !matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::PermissionDenied
            ) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}

/// The folder in which `path` has its name.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn builder() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX).rand_bytes(DRAWN);
    // As readable as any other file of the user; the umask still applies.
    #[cfg(unix)]
    builder.permissions(<Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666));
    builder
}

/// Removes what killed processes left in `folder`. Whatever hinders it, the file at hand is written.
fn remove_leftovers(folder: &Path, own: &NamedTempFile) {
    let (Ok(entries), Ok(own)) = (fs::read_dir(folder), own.as_file().metadata()) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_our_name)) {
        // Neither a link nor a pipe is opened.
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let _ = remove_leftover(&entry.path(), &own);
        }
    }
}

fn remove_leftover(path: &PathBuf, own: &Metadata) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let metadata = file.metadata()?;
    // Made before this run's own, by the same user, and in use by nobody: it is held until it is gone.
    let is_older = metadata.modified()? <= own.modified()?;
    if is_older && same_owner(&metadata, own) && file.try_lock().is_ok() {
        fs::remove_file(path)?;
    }
    Ok(())
}

fn is_our_name(name: &str) -> bool {
    let drawn = name.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(SUFFIX));
    drawn.is_some_and(|drawn| drawn.len() == DRAWN && drawn.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

#[cfg(unix)]
fn same_owner(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    one.uid() == other.uid()
}

/// Elsewhere, nothing tells whose a file is.
#[cfg(not(unix))]
fn same_owner(_: &Metadata, _: &Metadata) -> bool {
    false
}

/// As long as it lives, signals that ask to end wait. They reach the commands, which have a single
/// thread while they write; a notebook's process has others, which take them.
struct Undisturbed {
    #[cfg(all(unix, feature = "cli"))]
    before: Option<nix::sys::signal::SigSet>,
}

#[cfg(all(unix, feature = "cli"))]
impl Undisturbed {
    fn begin() -> Self {
        use nix::sys::signal::{SigSet, SigmaskHow, Signal};
        let ends = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT]);
        Self { before: ends.thread_swap_mask(SigmaskHow::SIG_BLOCK).ok() }
    }
}

#[cfg(all(unix, feature = "cli"))]
impl Drop for Undisturbed {
    fn drop(&mut self) {
        // Fails for no set that was there before.
        let _ = self.before.map(|before| before.thread_set_mask());
    }
}

#[cfg(not(all(unix, feature = "cli")))]
impl Undisturbed {
    fn begin() -> Self {
        Self {}
    }
}

/// Whether both are of one file, whatever its names.
#[cfg(all(unix, any(feature = "csv", feature = "explore")))]
pub(crate) fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Elsewhere, a file that is open cannot be replaced.
#[cfg(all(not(unix), any(feature = "csv", feature = "explore")))]
pub(crate) fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::{Duration, SystemTime};

    use super::*;

    fn names(folder: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort_unstable();
        Ok(names)
    }

    #[test]
    fn what_a_killed_process_left_goes_with_the_next_file() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join(".iteragpu-lab-incomplete-aB3xY9.tmp"), "half a f")?;
        Temporary::in_folder(folder.path())?.replace(&folder.path().join("a"))?;
        assert_eq!(names(folder.path())?, ["a"]);
        Ok(())
    }

    /// What might be somebody else's, or in use, stays.
    #[test]
    fn nothing_else_is_removed() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        let foreign = [
            "iteragpu-lab-incomplete-aB3xY9.tmp",
            ".iteragpu-backup.tmp",
            ".iteragpu-lab-incomplete-aB3xY9",
            ".iteragpu-lab-incomplete-aB3xY.tmp",
            ".iteragpu-lab-incomplete-a-3xY9.tmp",
            ".iteragpu-lab-incomplete-.tmp",
        ];
        for name in foreign {
            fs::write(at(name), "")?;
        }
        fs::create_dir(at(".iteragpu-lab-incomplete-folder.tmp"))?;
        symlink(at(foreign[0]), at(".iteragpu-lab-incomplete-linked.tmp"))?;
        symlink(at("nowhere"), at(".iteragpu-lab-incomplete-lnkgon.tmp"))?;
        let later = File::create(at(".iteragpu-lab-incomplete-later0.tmp"))?;
        later.set_modified(SystemTime::now() + Duration::from_secs(3600))?;
        let in_use = Temporary::in_folder(folder.path())?;
        let before = names(folder.path())?;
        drop(Temporary::in_folder(folder.path())?);
        assert_eq!(names(folder.path())?, before);
        drop(in_use);
        assert_eq!(names(folder.path())?.len(), before.len() - 1);
        Ok(())
    }

    #[test]
    fn another_users_file_stays() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join(".iteragpu-lab-incomplete-aB3xY9.tmp");
        fs::write(&file, "")?;
        if let Err(error) = std::os::unix::fs::chown(&file, Some(12345), None) {
            // Not `eprintln!`, which the harness hides when a test passes.
            return writeln!(io::stderr(), "skipped: only root can make another user's file ({error})");
        }
        drop(Temporary::in_folder(folder.path())?);
        assert!(file.exists());
        Ok(())
    }

    #[test]
    fn a_folder_that_is_gone_is_told_from_one_that_cannot_be_synced() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        assert!(sync_folder_of(&folder.path().join("a")).is_ok());
        // The system's own folder of processes cannot be synced at all.
        assert!(sync_folder_of(Path::new("/proc/a")).is_ok());
        assert!(sync_folder_of(&folder.path().join("gone/a")).is_err());
        Ok(())
    }

    #[cfg(feature = "cli")]
    #[test]
    fn a_signal_waits_until_the_file_is_gone() -> Result<(), Box<dyn std::error::Error>> {
        use nix::sys::signal::{SigSet, Signal};
        let folder = tempfile::tempdir()?;
        let blocked = || SigSet::thread_get_mask().map(|mask| mask.contains(Signal::SIGTERM));
        let temporary = Temporary::in_folder(folder.path())?;
        assert!(blocked()?);
        drop(temporary);
        assert!(!blocked()?);
        Temporary::in_folder(folder.path())?.become_new(&folder.path().join("a"))?;
        assert!(!blocked()?);
        assert_eq!(names(folder.path())?, ["a"]);
        Ok(())
    }
}
