//! The compile cache of the Rust kernel, mended so that later kernels gain all they can from it.
//!
//! A crate that includes a file written by its own build script (serde, `rust_decimal`) is cached with
//! a dependency list that names this file in the temporary folder of the kernel that compiled it, and
//! that folder goes with its kernel. In every later kernel cargo then misses the file, so that each
//! cell builds the crate, and all that depends on it, once more. The list is the better for not naming
//! the file at all: cargo itself knows that a crate depends on what its build script writes.

use std::env;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use iteragpu_lab::temporary::Temporary;

/// The variable that names the folder in which the kernel, too, makes the folder of its cache.
pub const PARENT: &str = "XDG_CACHE_HOME";

const NAME: &str = "evcxr";

/// Whatever happens here, cells still work: they are only slower than they could be.
pub fn mend() {
    let Some(parent) = parent() else { return };
    if let Err(error) = mend_below(&parent) {
        eprintln!("Le cache de compilation du noyau reste tel quel, les cellules seront plus lentes : {error}.");
    }
}

/// Where the kernel makes the folder of its cache, by its own rule.
fn parent() -> Option<PathBuf> {
    let chosen = env::var_os(PARENT).map(PathBuf::from).filter(|folder| folder.is_absolute());
    chosen.or_else(|| env::home_dir().map(|home| home.join(".cache")))
}

/// Mends every entry of the cache below `parent`; tells how many lists were changed.
pub fn mend_below(parent: &Path) -> io::Result<usize> {
    mend_entries(&parent.join(NAME))
}

fn mend_entries(folder: &Path) -> io::Result<usize> {
    let mut mended = 0;
    for entry in present(fs::read_dir(folder))?.into_iter().flatten() {
        let entry = entry?;
        if is_entry(&entry)? {
            mended += mend_lists(folder, &entry.path())?;
        }
    }
    Ok(mended)
}

/// A folder, not a link to one, with the name of a key, and complete: `stderr` is written last.
fn is_entry(entry: &fs::DirEntry) -> io::Result<bool> {
    let is_key = entry.file_name().to_str().is_some_and(|name| name.parse::<u64>().is_ok());
    Ok(is_key && entry.file_type()?.is_dir() && entry.path().join("stderr").is_file())
}

fn mend_lists(folder: &Path, entry: &Path) -> io::Result<usize> {
    let mut mended = 0;
    for file in present(fs::read_dir(entry))?.into_iter().flatten() {
        let file = file?;
        let is_list = file.path().extension().is_some_and(|extension| extension == "d");
        if is_list && file.file_type()?.is_file() {
            mended += usize::from(mend_list(folder, &file.path())?);
        }
    }
    Ok(mended)
}

/// A kernel may read the list at this moment, or remove its entry: it finds the old list or the new
/// one, and the new one is made in the folder above, where no kernel looks at files.
fn mend_list(folder: &Path, list: &Path) -> io::Result<bool> {
    let Some(text) = present(fs::read_to_string(list))? else { return Ok(false) };
    let Some(mended) = without_generated_files(&text) else { return Ok(false) };
    let Some(metadata) = present(fs::metadata(list))? else { return Ok(false) };
    let mut file = Temporary::in_folder(folder)?;
    file.write_all(mended.as_bytes())?;
    file.as_file().set_permissions(metadata.permissions())?;
    Ok(present(file.replace(list).map_err(io::Error::from))?.is_some())
}

/// Entries come and go while kernels run.
fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The dependency list without what lies in the crate's `OUT_DIR`; `None` when nothing does.
///
/// It looks like a makefile, with a `\` before each space of a path:
///
/// ```text
/// /build/kernel-1/deps/libserde.rmeta: src/lib.rs /build/kernel-1/build/serde/out/private.rs
/// src/lib.rs:
/// /build/kernel-1/build/serde/out/private.rs:
/// # env-dep:OUT_DIR=/build/kernel-1/build/serde/out
/// ```
fn without_generated_files(text: &str) -> Option<String> {
    let folder = text.lines().find_map(|line| line.strip_prefix("# env-dep:OUT_DIR="))?;
    let generated = format!("{}/", folder.replace(' ', "\\ "));
    let mended: String = text.split_inclusive('\n').filter_map(|line| mended_line(line, &generated)).collect();
    (mended != text).then_some(mended)
}

fn mended_line(line: &str, generated: &str) -> Option<String> {
    if line.starts_with(generated) {
        return None;
    }
    if line.starts_with('#') {
        return Some(line.to_owned());
    }
    let mut mended = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find(&format!(" {generated}")) {
        let (before, path) = rest.split_at(start);
        mended.push_str(before);
        rest = &path[end_of_path(path)..];
    }
    Some(mended + rest)
}

/// Where the path ends that begins after the first character: at a space without `\`, or at the line's end.
fn end_of_path(text: &str) -> usize {
    let separators = text.match_indices([' ', '\n']).map(|(place, _)| place);
    let mut ends = separators.filter(|&place| place > 0 && !text[..place].ends_with('\\'));
    ends.next().unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const STALE: &str = "/build/kernel-1/deps/libserde.rmeta: src/lib.rs /build/kernel-1/out/a.rs src/my\\ lib.rs /build/kernel-1/out/b\\ c.rs\n\
        \n\
        src/lib.rs:\n/build/kernel-1/out/a.rs:\nsrc/my\\ lib.rs:\n/build/kernel-1/out/b\\ c.rs:\n\
        \n\
        # env-dep:OUT_DIR=/build/kernel-1/out\n";

    const MENDED: &str = "/build/kernel-1/deps/libserde.rmeta: src/lib.rs src/my\\ lib.rs\n\
        \n\
        src/lib.rs:\nsrc/my\\ lib.rs:\n\
        \n\
        # env-dep:OUT_DIR=/build/kernel-1/out\n";

    /// An entry with one dependency list.
    fn add_entry(folder: &Path, name: &str, list: &str) -> io::Result<PathBuf> {
        let entry = folder.join(name);
        fs::create_dir(&entry)?;
        fs::write(entry.join("stderr"), "")?;
        fs::write(entry.join("serde-1.d"), list)?;
        Ok(entry.join("serde-1.d"))
    }

    #[test]
    fn generated_files_are_taken_out_and_nothing_else() {
        assert_eq!(without_generated_files(STALE).as_deref(), Some(MENDED));
        assert_eq!(without_generated_files(MENDED), None);
        assert_eq!(without_generated_files("a: src/lib.rs /build/out/a.rs\n"), None);
        let spaced = "a: /t\\ p/out/a.rs b.rs\n/t\\ p/out/a.rs:\n# env-dep:OUT_DIR=/t p/out\n";
        assert_eq!(without_generated_files(spaced).as_deref(), Some("a: b.rs\n# env-dep:OUT_DIR=/t p/out\n"));
        let neighbour = "a: /build/outer/a.rs\n# env-dep:OUT_DIR=/build/out\n";
        assert_eq!(without_generated_files(neighbour), None);
    }

    #[test]
    fn a_stale_list_is_mended_once_and_a_good_one_left() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let stale = add_entry(folder.path(), "1", STALE)?;
        let good = add_entry(folder.path(), "2", "a: src/lib.rs\n")?;
        fs::set_permissions(&stale, fs::Permissions::from_mode(0o640))?;
        assert_eq!(mend_entries(folder.path())?, 1);
        assert_eq!(fs::read_to_string(&stale)?, MENDED);
        assert_eq!(fs::read_to_string(&good)?, "a: src/lib.rs\n");
        assert_eq!(fs::metadata(&stale)?.permissions().mode() & 0o777, 0o640);
        assert_eq!(mend_entries(folder.path())?, 0);
        assert_eq!(fs::read_dir(folder.path())?.count(), 2);
        Ok(())
    }

    #[test]
    fn what_is_no_entry_of_the_cache_stays() -> io::Result<()> {
        let (folder, elsewhere) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let foreign = add_entry(folder.path(), "my-own", STALE)?;
        let unfinished = add_entry(folder.path(), "3", STALE)?;
        fs::remove_file(unfinished.with_file_name("stderr"))?;
        let linked = add_entry(elsewhere.path(), "4", STALE)?;
        symlink(elsewhere.path().join("4"), folder.path().join("4"))?;
        let other = add_entry(folder.path(), "5", "")?.with_file_name("notes.txt");
        fs::write(&other, STALE)?;
        let link = other.with_file_name("linked.d");
        symlink(&linked, &link)?;
        assert_eq!(mend_entries(folder.path())?, 0);
        for kept in [foreign, unfinished, linked, other] {
            assert_eq!(fs::read_to_string(&kept)?, STALE, "{}", kept.display());
        }
        assert!(link.is_symlink());
        Ok(())
    }

    #[test]
    fn no_cache_is_nothing_to_mend() -> io::Result<()> {
        assert_eq!(mend_entries(&tempfile::tempdir()?.path().join("none"))?, 0);
        Ok(())
    }
}
