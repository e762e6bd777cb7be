//! A folder for the files of one input; emptied before the next one.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Empties the folder and gives the path of a file in it, which does not exist.
pub fn fresh(name: &str) -> PathBuf {
    let folder = FOLDER.get_or_init(|| std::env::temp_dir().join(format!("iteragpu-fuzz-{}", std::process::id())));
    fs::create_dir_all(folder).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    folder.join(name)
}

/// The same, with a file that holds `bytes`.
pub fn holding(name: &str, bytes: &[u8]) -> PathBuf {
    let path = fresh(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// How many files the folder holds, whatever their names.
pub fn files() -> usize {
    fs::read_dir(FOLDER.get().unwrap()).unwrap().count()
}
