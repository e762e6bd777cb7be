//! `cargo xtask notebook --check` names each planted fault, `--clean` removes what it may and nothing else.
//! Neither needs a kernel or Python.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Value, json};

/// What is planted in a good notebook, and how the report names it.
type Planted = (fn(&mut Value), &'static str);

/// Faults that cleaning takes away.
const REMOVABLE: &[Planted] = &[
    (|n| n["cells"][1]["outputs"] = json!([stream("a")]), "* cellule sum : 1 sortie enregistrée"),
    (|n| n["cells"][1]["outputs"] = json!([stream("a"), stream("b")]), "* cellule sum : 2 sorties enregistrées"),
    (|n| n["cells"][1]["outputs"] = json!({"text": "a"}), "* cellule sum : sorties illisibles"),
    (|n| n["cells"][1]["execution_count"] = json!(7), "* cellule sum : compteur d'exécution (execution_count) : 7"),
    (|n| n["cells"][0]["outputs"] = json!([stream("a")]), "* cellule title : champ étranger : « outputs »"),
    (|n| n["cells"][0]["execution_count"] = json!(null), "* cellule title : champ étranger : « execution_count »"),
    (|n| n["cells"][1]["colour"] = json!("red"), "* cellule sum : champ étranger : « colour »"),
    (
        |n| n["cells"][1]["metadata"]["ExecuteTime"] = json!({"end_time": "2026"}),
        "* cellule sum : métadonnée étrangère : « ExecuteTime »",
    ),
    (|n| n["cells"][1]["metadata"]["collapsed"] = json!(false), "* cellule sum : métadonnée étrangère : « collapsed »"),
    (|n| n["cells"][0]["metadata"]["trusted"] = json!(true), "* cellule title : métadonnée étrangère : « trusted »"),
    (|n| n["cells"][1]["metadata"]["vscode"] = json!({}), "* cellule sum : métadonnée étrangère : « vscode »"),
    (|n| n["metadata"]["widgets"] = json!({"state": {}}), "* notebook : métadonnée étrangère : « widgets »"),
    (
        |n| n["metadata"]["papermill"] = json!({"input_path": "/home/a"}),
        "* notebook : métadonnée étrangère : « papermill »",
    ),
    (|n| n["metadata"]["kernelspec"]["path"] = json!("/a"), "* notebook : métadonnée étrangère : « path »"),
    (|n| n["metadata"]["language_info"]["version"] = json!(""), "* notebook : métadonnée étrangère : « version »"),
    (
        |n| n["metadata"]["language_info"]["name"] = json!("Rust"),
        "* notebook : metadata.language_info.name : \"Rust\", au lieu de \"rust\"",
    ),
    (|n| n["signature"] = json!("a"), "* notebook : champ étranger : « signature »"),
    (|n| n["cells"][0]["attachments"] = image(), "* cellule title : pièces jointes"),
    (|n| n["cells"][1]["attachments"] = image(), "* cellule sum : champ étranger : « attachments »"),
];

/// Faults that only a person can mend.
const LASTING: &[Planted] = &[
    (|n| drop(n["cells"][1].as_object_mut().map(|cell| cell.remove("id"))), "  cellule n° 2 : id absent"),
    (|n| n["cells"][1]["id"] = json!(""), "  cellule n° 2 : id vide"),
    (|n| n["cells"][1]["id"] = json!("été"), "  cellule n° 2 : id invalide : \"été\""),
    (|n| n["cells"][1]["id"] = json!(3), "  cellule n° 2 : id invalide : 3"),
    (|n| n["cells"][1]["id"] = json!("a".repeat(65)), "  cellule n° 2 : id invalide"),
    (|n| n["cells"][1]["id"] = json!("title"), "  cellule n° 2 : id title déjà porté par la cellule n° 1"),
    (|n| n["cells"][1]["metadata"] = json!({}), "  cellule sum : étiquettes (metadata.tags) absentes"),
    (|n| n["cells"][0]["metadata"] = json!({}), "  cellule title : étiquettes (metadata.tags) absentes"),
    (|n| n["cells"][1]["metadata"]["tags"] = json!("cpu-only"), "  cellule sum : étiquettes illisibles"),
    (
        |n| n["cells"][1]["metadata"]["tags"] = json!([]),
        "  cellule sum : aucune des étiquettes cpu-only, environment-check, requires-gpu",
    ),
    (
        |n| n["cells"][1]["metadata"]["tags"] = json!(["cpu-only", "draft"]),
        "  cellule sum : étiquette inconnue : « draft »",
    ),
    (
        |n| n["cells"][1]["metadata"]["tags"] = json!(["cpu-only", "cpu-only"]),
        "  cellule sum : étiquette répétée : « cpu-only »",
    ),
    (|n| n["cells"][1]["cell_type"] = json!("heading"), "  cellule sum : type de cellule inconnu : « heading »"),
    (|n| n["cells"][1]["source"] = json!({"a": 1}), "  cellule sum : texte (source) absent ou illisible"),
    (
        |n| {
            n["cells"][0]["attachments"] = image();
            n["cells"][0]["source"] = json!("![](attachment:a.png)");
        },
        "  cellule title : pièces jointes, que le texte de la cellule montre",
    ),
    (|n| n["metadata"]["kernelspec"]["name"] = json!("python3"), "  notebook : noyau : \"python3\""),
    (|n| n["metadata"]["kernelspec"]["language"] = json!("python"), "  notebook : langage du noyau : \"python\""),
    (|n| n["metadata"]["language_info"]["name"] = json!("python"), "  notebook : langage : \"python\""),
    (|n| n["metadata"] = json!({}), "  notebook : noyau absent"),
    (|n| n["metadata"]["license"] = json!({"a": 1}), "  notebook : métadonnée license : un texte est attendu"),
    (|n| n["nbformat_minor"] = json!(4), "  notebook : format nbformat 4.4, au lieu de 4.5"),
];

#[test]
fn a_good_notebook_passes_and_cleaning_leaves_the_very_file() -> Result<()> {
    let planted = Folder::with(&good())?;
    assert_eq!(planted.run("--check")?, (0, format!("{} : rien à signaler\n", planted.shown())));
    let before = fs::metadata(&planted.file)?;
    assert_eq!(planted.run("--clean")?, (0, format!("{} : rien à retirer\n", planted.shown())));
    let after = fs::metadata(&planted.file)?;
    assert_eq!((after.ino(), after.mtime_nsec()), (before.ino(), before.mtime_nsec()));
    Ok(())
}

#[test]
fn every_removable_fault_is_named_and_cleaning_restores_the_good_notebook() -> Result<()> {
    for (plant, name) in REMOVABLE {
        let planted = Folder::with(&with(*plant))?;
        let (code, said) = planted.run("--check")?;
        assert!(code == 1 && said.contains(name) && said.contains(" : 1 défaut\n"), "{name}: {code}, said:\n{said}");
        assert_eq!(planted.text()?, written(&with(*plant))?, "{name}: --check wrote");
        let (code, said) = planted.run("--clean")?;
        assert!(code == 0 && said.contains("1 défaut en moins"), "{name}: {code}, said:\n{said}");
        assert_eq!(planted.text()?, written(&good())?, "{name}");
        assert_eq!(planted.run("--check")?.0, 0, "{name}");
    }
    Ok(())
}

#[test]
fn what_only_a_person_can_mend_is_named_and_stays() -> Result<()> {
    for (plant, name) in LASTING {
        let planted = Folder::with(&with(*plant))?;
        let (code, said) = planted.run("--check")?;
        assert!(code == 1 && said.contains(name), "{name}: {code}, said:\n{said}");
        let ids = ids(&planted.text()?)?;
        for _ in 0..2 {
            let (code, said) = planted.run("--clean")?;
            assert!(code == 1 && said.contains(name), "{name}: {code}, said:\n{said}");
        }
        assert_eq!(self::ids(&planted.text()?)?, ids, "{name}");
    }
    Ok(())
}

#[test]
fn all_removable_faults_at_once_go_at_once() -> Result<()> {
    // Some faults take the place of an earlier one: the same field of the same cell.
    let dirty = with(|notebook| REMOVABLE.iter().for_each(|(plant, _)| plant(notebook)));
    let planted = Folder::with(&dirty)?;
    assert_eq!(planted.run("--clean")?.0, 0);
    assert_eq!(planted.text()?, written(&good())?);
    assert_eq!(planted.run("--clean")?, (0, format!("{} : rien à retirer\n", planted.shown())));
    assert_eq!(planted.text()?, written(&good())?);
    Ok(())
}

/// What Jupyter leaves after a run: outputs, counts, and the kernel's words about itself.
fn executed(original: &str) -> Result<Value> {
    let mut notebook: Value = serde_json::from_str(original)?;
    for (cell, count) in notebook["cells"].as_array_mut().context("cells")?.iter_mut().zip(1..) {
        cell["metadata"]["trusted"] = json!(true);
        cell["metadata"]["execution"] = json!({"iopub.execute_input": "2026-11-30T20:00:00Z"});
        if cell["cell_type"] == "code" {
            cell["execution_count"] = json!(count);
            cell["outputs"] = json!([
                stream("17.03851604461669921875 \u{1b}[31m}]\"\\\n"),
                {"output_type": "display_data", "data": {"text/html": ["<b>é</b>\n"]}, "metadata": {}, "transient": {}},
                {"output_type": "error", "ename": "Error", "evalue": "", "traceback": ["\u{1b}[31m"]},
            ]);
        }
    }
    notebook["metadata"]["language_info"] = json!({
        "codemirror_mode": "rust", "file_extension": ".rs", "mimetype": "text/rust", "name": "Rust",
        "pygment_lexer": "rust", "version": "",
    });
    Ok(notebook)
}

#[test]
fn an_executed_notebook_of_the_project_is_cleaned_to_its_original_bytes() -> Result<()> {
    for name in ["mesure-memoire.ipynb", "forfaits.ipynb"] {
        let original = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../notebooks").join(name))?;
        let planted = Folder::with(&executed(&original)?)?;
        assert!(planted.text()?.contains("u001b[31m"));
        assert_eq!(planted.run("--check")?.0, 1, "{name}");
        assert_eq!(planted.run("--clean")?.0, 0, "{name}");
        assert!(planted.text()? == original, "{name} differs from its original");
        assert_eq!(planted.run("--check")?.0, 0, "{name}");
    }
    Ok(())
}

#[test]
fn the_projects_notebooks_are_checked_where_none_is_named() -> Result<()> {
    let output = xtask().args(["notebook", "--check"]).output()?;
    let said = String::from_utf8(output.stdout)?;
    assert!(output.status.success(), "{said}");
    for name in ["mesure-memoire", "forfaits"] {
        assert!(said.contains(&format!("notebooks/{name}.ipynb : rien à signaler\n")), "{said}");
    }
    Ok(())
}

#[test]
fn what_is_no_notebook_is_refused_and_left_alone() -> Result<()> {
    let surrogate_name = r#"{"cells": [{"\ud800": 1}]}"#;
    let twice = r#"{"cells": [], "cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}"#;
    let hidden = r#"{"cells": [{"id": "a", "outputs": [1], "outputs": []}]}"#;
    let cases: [(&[u8], &str); 11] = [
        (b"", "ce n'est pas du JSON (ligne 1, colonne 0)"),
        (b"{\"cells\": [", "ce n'est pas du JSON"),
        (b"{\"cells\": []} x", "ce n'est pas du JSON"),
        (b"[]", "le document n'est pas un objet JSON lisible"),
        (b"{}", "pas de liste de cellules"),
        (b"{\"cells\": {}}", "pas de liste de cellules"),
        (b"{\"cells\": [3]}", "la cellule n° 1 n'est pas un objet JSON lisible"),
        (surrogate_name.as_bytes(), "la cellule n° 1 n'est pas un objet JSON lisible"),
        (twice.as_bytes(), "le document porte deux fois le nom « cells »"),
        (hidden.as_bytes(), "la cellule n° 1 porte deux fois le nom « outputs »"),
        (b"{\"cells\": [\"\xff\"]}", "ce n'est pas un texte UTF-8"),
    ];
    for (contents, reason) in cases {
        let planted = Folder::holding(contents)?;
        for option in ["--check", "--clean"] {
            let (code, said) = planted.run(option)?;
            assert!(code == 2 && said.contains(reason), "{option} {reason}: {code}, said:\n{said}");
        }
        assert_eq!(fs::read(&planted.file)?, contents);
    }
    let absent = Folder::with(&good())?;
    fs::remove_file(&absent.file)?;
    assert_eq!(absent.run("--check")?.0, 2);
    fs::create_dir(&absent.file)?;
    assert!(absent.run("--clean")?.1.contains("pas un fichier ordinaire"));
    fs::remove_dir(&absent.file)?;
    // Reading it would wait for ever.
    assert!(Command::new("mkfifo").arg(&absent.file).status()?.success());
    assert!(absent.run("--clean")?.1.contains("pas un fichier ordinaire"));
    Ok(())
}

#[test]
fn the_worst_file_decides_and_every_file_is_reported() -> Result<()> {
    let [clean, faulty] = [Folder::with(&good())?, Folder::with(&with(REMOVABLE[0].0))?];
    let unreadable = Folder::holding(b"{")?;
    let files = [&unreadable, &faulty, &clean].map(|planted| &planted.file);
    let output = xtask().args(["notebook", "--check"]).args(files).output()?;
    let said = String::from_utf8(output.stdout)?;
    assert_eq!(output.status.code(), Some(2), "{said}");
    for words in ["illisible", "1 sortie enregistrée", "rien à signaler", "--clean"] {
        assert!(said.contains(words), "{said}");
    }
    Ok(())
}

#[test]
fn hostile_text_does_not_reach_the_terminal() -> Result<()> {
    let hostile = "\u{1b}]0;a\u{7}\u{202e}\n".repeat(50);
    let planted = Folder::with(&with(|notebook| {
        let hostile = "\u{1b}]0;a\u{7}\u{202e}\n".repeat(50);
        notebook["cells"][0]["id"] = json!(hostile);
        notebook["cells"][1]["metadata"]["tags"] = json!([hostile, "cpu-only"]);
        notebook["cells"][1]["metadata"][&hostile] = json!(1);
        notebook["cells"][1]["cell_type"] = json!(hostile);
        notebook["metadata"]["kernelspec"]["name"] = json!(hostile);
        notebook[&hostile] = json!(1);
        notebook["nbformat"] = json!(hostile);
    }))?;
    assert!(hostile.len() > 100);
    for option in ["--check", "--clean"] {
        let (code, said) = planted.run(option)?;
        let steers = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(code == 1 && !said.contains(steers), "{said:?}");
        assert!(said.lines().all(|line| line.chars().count() < 200), "{said}");
    }
    Ok(())
}

#[test]
fn other_line_ends_and_escapes_stay_and_a_byte_order_mark_goes() -> Result<()> {
    let good = written(&good())?.replace('\n', "\r\n").replace('é', "\\u00e9");
    let dirty = good.replace("\"execution_count\": null", "\"execution_count\": 1");
    let planted = Folder::holding(format!("\u{feff}{dirty}").as_bytes())?;
    let (code, said) = planted.run("--check")?;
    assert!(code == 1 && said.contains("* notebook : marque d'ordre des octets (BOM)"), "{said}");
    assert_eq!(planted.run("--clean")?.0, 0);
    assert_eq!(planted.text()?, good);
    Ok(())
}

#[test]
fn the_file_is_replaced_whole_with_its_permissions_and_behind_its_link() -> Result<()> {
    let planted = Folder::with(&with(REMOVABLE[0].0))?;
    fs::set_permissions(&planted.file, Permissions::from_mode(0o640))?;
    // What a killed run has left goes as well.
    fs::write(planted.folder.path().join(".iteragpu-lab-incomplete-aB3xY9.tmp"), "")?;
    let elsewhere = tempfile::tempdir()?;
    let link = elsewhere.path().join("link.ipynb");
    symlink(&planted.file, &link)?;
    let before = fs::metadata(&planted.file)?;
    let output = xtask().args(["notebook", "--clean"]).arg(&link).output()?;
    assert!(output.status.success());
    assert!(fs::symlink_metadata(&link)?.is_symlink());
    assert_eq!(planted.text()?, written(&good())?);
    let after = fs::metadata(&planted.file)?;
    // Another file under the same name: whoever reads meanwhile sees the old one or the new one, never a half.
    assert_ne!(after.ino(), before.ino());
    assert_eq!((after.mode() & 0o777, after.uid(), after.gid()), (0o640, before.uid(), before.gid()));
    for folder in [planted.folder.path(), elsewhere.path()] {
        assert_eq!(fs::read_dir(folder)?.count(), 1);
    }
    Ok(())
}

#[test]
fn a_notebook_that_cannot_be_replaced_stays_as_it_is() -> Result<()> {
    let planted = Folder::with(&with(REMOVABLE[0].0))?;
    fs::set_permissions(planted.folder.path(), Permissions::from_mode(0o555))?;
    // Whoever may write anywhere shows nothing here.
    let may_write = fs::write(planted.folder.path().join("probe"), "").is_ok();
    let (code, said) = planted.run("--clean")?;
    fs::set_permissions(planted.folder.path(), Permissions::from_mode(0o755))?;
    if !may_write {
        assert!(code == 1 && said.contains("inchangé, écriture impossible"), "{said}");
        assert_eq!(planted.text()?, written(&with(REMOVABLE[0].0))?);
    }
    Ok(())
}

/// The limit on the size of files stops a write half-way, as a full disk does, and root as well.
#[test]
fn a_write_that_fails_leaves_the_notebook_and_nothing_beside_it() -> Result<()> {
    let planted = Folder::with(&with(REMOVABLE[0].0))?;
    let before = planted.text()?;
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_xtask"), "notebook", "--clean"]);
    let output = limited.arg(&planted.file).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("inchangé, écriture impossible"), "{said}");
    assert_eq!((planted.text()?, fs::read_dir(planted.folder.path())?.count()), (before, 1));
    Ok(())
}

#[test]
fn checking_and_executing_do_not_mix() -> Result<()> {
    let cases: &[&[&str]] = &[
        &["--check", "--clean"],
        &["--check", "--tags", "cpu-only"],
        &["--check", "--skip-tags", "cpu-only"],
        &["--clean", "--output", "new.ipynb"],
        &["--clean", "--timeout", "3"],
        &["--check", "--expect", "a=b"],
        &["--staged"],
        &["--check", "--staged", "a.ipynb"],
        &["--clean", "--staged"],
        &[],
        &["a.ipynb", "b.ipynb"],
    ];
    for arguments in cases {
        assert_eq!(xtask().arg("notebook").args(*arguments).output()?.status.code(), Some(2), "{arguments:?}");
    }
    Ok(())
}

/// People's own copies are not checked where none is named; nor does git take them.
#[test]
fn personal_copies_are_those_that_git_ignores() -> Result<()> {
    let ignored = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.gitignore"))?;
    assert!(ignored.lines().any(|line| line == "/notebooks/mon-*.ipynb"));
    Ok(())
}

#[test]
fn the_hook_refuses_what_is_staged_with_outputs() -> Result<()> {
    let Some(repository) = Repository::new()? else { return Ok(()) };
    let notebook = Path::new("notebooks/été \"1\".ipynb");
    let [dirty, clean] = [written(&with(REMOVABLE[0].0))?, written(&good())?];

    repository.stage(notebook, &dirty)?;
    // The file is clean again, but not what would be committed.
    fs::write(repository.path().join(notebook), &clean)?;
    let (committed, said) = repository.commit(&[])?;
    assert!(!committed && said.contains("cellule sum : 1 sortie enregistrée"), "{said}");
    assert!(said.contains("notebooks/été") && said.contains("Commit refusé"), "{said}");

    repository.stage(notebook, &clean)?;
    // And the other way round.
    fs::write(repository.path().join(notebook), &dirty)?;
    let (committed, said) = repository.commit(&[])?;
    assert!(committed, "{said}");

    // Here git hands the hook an index of its own.
    let (committed, said) = repository.commit(&["--all"])?;
    assert!(!committed && said.contains("1 sortie enregistrée"), "{said}");
    assert!(repository.commit(&["--all", "--no-verify"])?.0);

    // What was committed before is not this commit's business, nor is what goes away.
    repository.stage(Path::new("README.md"), "text")?;
    let (committed, said) = repository.commit(&[])?;
    assert!(committed && !said.contains("rien à signaler"), "{said}");
    let (removed, said) = repository.git(&["rm", "--quiet", "--force", "-r", "notebooks"], &[])?;
    assert!(removed, "{said}");
    assert!(repository.commit(&[])?.0);
    Ok(())
}

#[test]
fn a_check_that_cannot_run_lets_nothing_through() -> Result<()> {
    let Some(repository) = Repository::new()? else { return Ok(()) };
    fs::remove_file(repository.home.path().join("bin/cargo"))?;
    repository.stage(Path::new("notebooks/a.ipynb"), &written(&good())?)?;
    // A stand-in that fails, so that no cargo of this machine takes its place.
    write_program(&repository.home.path().join("bin/cargo"), "exit 127")?;
    let (committed, said) = repository.commit(&[])?;
    assert!(!committed && said.contains("n'a pas pu avoir lieu"), "{said}");
    // Nothing to check, nothing to wait for.
    let (removed, said) = repository.git(&["rm", "--quiet", "--cached", "notebooks/a.ipynb"], &[])?;
    assert!(removed, "{said}");
    repository.stage(Path::new("README.md"), "text")?;
    assert!(repository.commit(&[])?.0);
    Ok(())
}

/// A git repository with the hook, and a `cargo` that runs this program where the hook looks for one.
struct Repository {
    folder: tempfile::TempDir,
    home: tempfile::TempDir,
}

impl Repository {
    /// `None` where there is no git: the project can be used without.
    fn new() -> Result<Option<Self>> {
        if Command::new("git").arg("--version").output().is_err() {
            writeln!(std::io::stderr(), "xtask/tests/clean.rs, test non exécuté : git n'est pas installé.")?;
            return Ok(None);
        }
        let repository = Self { folder: tempfile::tempdir()?, home: tempfile::tempdir()? };
        repository.git(&["init", "--quiet"], &[])?;
        let hook = repository.path().join(".git/hooks/pre-commit");
        fs::create_dir_all(repository.path().join(".git/hooks"))?;
        write_program(&hook, include_str!("../src/pre-commit.sh"))?;
        fs::create_dir(repository.home.path().join("bin"))?;
        let program = env!("CARGO_BIN_EXE_xtask");
        let stand_in = format!("[ \"$1 $2\" = '--quiet xtask' ] || exit 9; shift 2; exec '{program}' \"$@\"");
        write_program(&repository.home.path().join("bin/cargo"), &stand_in)?;
        Ok(Some(repository))
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn stage(&self, file: &Path, contents: &str) -> Result<()> {
        let file = self.path().join(file);
        fs::create_dir_all(file.parent().context("no folder")?)?;
        fs::write(&file, contents)?;
        let (added, said) = self.git(&["add", "--"], &[file.to_str().context("name")?])?;
        assert!(added, "{said}");
        Ok(())
    }

    fn commit(&self, options: &[&str]) -> Result<(bool, String)> {
        self.git(&["commit", "--quiet", "--message", "a"], options)
    }

    /// Whether git succeeded, and all that it said. Nothing of this machine's settings takes part.
    fn git(&self, arguments: &[&str], more: &[&str]) -> Result<(bool, String)> {
        let mut command = Command::new("git");
        for variable in
            ["GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"]
        {
            command.env_remove(variable);
        }
        command.envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")]);
        command.env("CARGO_HOME", self.home.path());
        // Also a user who wants colours everywhere.
        command.args(["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "color.ui=always"]);
        let output = command.args(arguments).args(more).current_dir(self.path()).output()?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8(said)?))
    }
}

/// Another program writes it: a file that this one holds open for writing cannot be run meanwhile.
fn write_program(file: &Path, script: &str) -> Result<()> {
    const WRITE: &str = r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod +x "$1""#;
    let status = Command::new("/bin/sh").args(["-c", WRITE, "sh"]).arg(file).arg(script).status()?;
    assert!(status.success());
    Ok(())
}

/// One planted notebook in a folder of its own.
struct Folder {
    folder: tempfile::TempDir,
    file: PathBuf,
}

impl Folder {
    fn with(notebook: &Value) -> Result<Self> {
        Self::holding(written(notebook)?.as_bytes())
    }

    fn holding(contents: &[u8]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("planted.ipynb");
        fs::write(&file, contents)?;
        Ok(Self { folder, file })
    }

    fn shown(&self) -> String {
        self.file.display().to_string()
    }

    fn text(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.file)?)
    }

    /// Exit code and report.
    fn run(&self, option: &str) -> Result<(i32, String)> {
        let output = xtask().args(["notebook", option]).arg(&self.file).output()?;
        let said = [output.stderr, output.stdout].concat();
        Ok((output.status.code().context("killed")?, String::from_utf8(said)?))
    }
}

fn xtask() -> Command {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
}

fn good() -> Value {
    json!({
        "cells": [
            {"cell_type": "markdown", "id": "title", "metadata": {"tags": []}, "source": ["# Été\n", "\n", "😀 \\ \" / "]},
            {
                "cell_type": "code", "execution_count": null, "id": "sum", "metadata": {"tags": ["cpu-only"]},
                "outputs": [], "source": "1 + 1"
            },
            {
                "cell_type": "code", "execution_count": null, "id": "gpu_2", "metadata": {"tags": ["requires-gpu", "definitions"]},
                "outputs": [], "source": []
            },
        ],
        "metadata": {
            "kernelspec": {"display_name": "Rust", "language": "rust", "name": "rust"},
            "language_info": {"file_extension": ".rs", "mimetype": "text/rust", "name": "rust"},
            "license": "MIT",
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    })
}

fn with(plant: fn(&mut Value)) -> Value {
    let mut notebook = good();
    plant(&mut notebook);
    notebook
}

fn stream(text: &str) -> Value {
    json!({"name": "stdout", "output_type": "stream", "text": [text]})
}

fn image() -> Value {
    json!({"a.png": {"image/png": "AAAA"}})
}

fn ids(document: &str) -> Result<Vec<Value>> {
    let notebook: Value = serde_json::from_str(document)?;
    Ok(notebook["cells"].as_array().context("cells")?.iter().map(|cell| cell["id"].clone()).collect())
}

/// As Jupyter writes it: one space a level, names in order, letters as they are.
fn written(notebook: &Value) -> Result<String> {
    let mut bytes = Vec::new();
    notebook.serialize(&mut Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(b" ")))?;
    Ok(String::from_utf8(bytes)? + "\n")
}
