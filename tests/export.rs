//! Properties of writing: all of the contents under a new name, or nothing at all.

use std::fs;

use iteragpu_lab::{LabError, NewFile};
use proptest::prelude::*;

/// Names that people give, and some that no file can have.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9 ._-]{1,12}",
        // Never out of the folder of the test.
        "\\PC{1,40}".prop_map(|name| name.replace('/', "_")),
        prop::sample::select(vec!["", ".", "..", "a/b", "a/", "a\0b", "-x", "~", "*", "é.json"])
            .prop_map(str::to_owned),
        "[é]{120,135}",
    ]
}

fn failed(error: std::io::Error) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

proptest! {
    #[test]
    fn a_new_file_holds_everything_or_is_not_there(
        name in name(), contents in prop::collection::vec(any::<u8>(), 0..2000)
    ) {
        let folder = tempfile::tempdir().map_err(failed)?;
        let path = folder.path().join(&name);
        let written = NewFile::check(&path).and_then(|file| file.write(&contents));
        let files = fs::read_dir(folder.path()).map_err(failed)?.count();
        match written {
            Ok(()) => {
                prop_assert_eq!(fs::read(&path).map_err(failed)?, contents);
                prop_assert_eq!(files, 1);
            }
            Err(error) => {
                prop_assert!(matches!(error, LabError::NotWritable { .. } | LabError::FileExists { .. }), "{error:?}");
                prop_assert_eq!(files, 0);
            }
        }
    }

    #[test]
    fn what_has_the_name_stays(
        old in prop::collection::vec(any::<u8>(), 0..200), new in prop::collection::vec(any::<u8>(), 0..200),
        before_the_check in any::<bool>()
    ) {
        let folder = tempfile::tempdir().map_err(failed)?;
        let path = folder.path().join("a.json");
        let take = || fs::write(&path, &old).map_err(failed);
        let refused = if before_the_check {
            take()?;
            NewFile::check(&path).map(|_| ())
        } else {
            let checked = NewFile::check(&path);
            take()?;
            checked.and_then(|file| file.write(&new))
        };
        prop_assert!(matches!(refused, Err(LabError::FileExists { .. })), "{refused:?}");
        prop_assert_eq!(fs::read(&path).map_err(failed)?, old);
        prop_assert_eq!(fs::read_dir(folder.path()).map_err(failed)?.count(), 1);
    }
}
