//! `cargo xtask lab --git-hook`: an offer, for those who commit, to check notebooks before each commit.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use iteragpu_lab::NewFile;

use crate::workspace;

const HOOK: &str = include_str!("pre-commit.sh");
/// What the hook runs, for those who have one of their own.
const CHECK: &str = "cargo xtask notebook --check --staged";

/// Installs the hook in the checkout `root`. Another hook is never touched.
pub fn install(root: &Path) -> Result<ExitCode> {
    let hook = place(root)?;
    let shown = hook.display();
    match fs::read(&hook) {
        Ok(present) if present == HOOK.as_bytes() => println!("Le contrôle avant commit est déjà installé : {shown}"),
        Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(&hook).is_err() => {
            write(&hook)?;
            println!("Contrôle avant commit installé : {shown}");
        }
        _ => bail!(
            "{shown} existe déjà et n'est pas le contrôle de cette version : rien n'a été changé. \
             Ajoutez-y vous-même la ligne « {CHECK} || exit 1 », ou retirez ce fichier et recommencez."
        ),
    }
    make_executable(&hook)?;
    println!("Un commit qui contient un notebook avec des sorties sera refusé. Pour l'enlever : rm '{shown}'");
    Ok(ExitCode::SUCCESS)
}

/// Whether the offer is worth a line: in a checkout of the user's, without any such hook.
pub fn is_missing(root: &Path) -> bool {
    place(root).is_ok_and(|hook| fs::symlink_metadata(hook).is_err())
}

/// Where git looks for the hook of this checkout.
fn place(root: &Path) -> Result<PathBuf> {
    let asked = ["rev-parse", "--show-toplevel", "--git-common-dir", "--git-path", "hooks"];
    let answer =
        workspace::output_of(git_in(root).args(asked)).context("Ce dossier n'est pas un dépôt git utilisable")?;
    let lines: Vec<_> = answer.lines().collect();
    let [top, common, hooks] = lines[..] else { bail!("réponse inattendue de git : {answer:?}") };
    let root = root.canonicalize()?;
    if Path::new(top).canonicalize()? != root {
        bail!("Ce dossier fait partie d'un autre dépôt git, {top} : le contrôle avant commit n'y est pas proposé.");
    }
    let common = root.join(common).canonicalize()?;
    let hooks = resolved(&root.join(hooks))?;
    // A folder that the user has set for every repository would refuse the commits of all of them.
    if !hooks.starts_with(&root) && !hooks.starts_with(&common) {
        bail!(
            "git cherche les contrôles de ce dépôt dans {} (core.hooksPath), hors du dépôt : rien n'a été changé. \
             La commande à y lancer, pour ce dépôt seulement : {CHECK}",
            hooks.display()
        );
    }
    Ok(hooks.join("pre-commit"))
}

/// git for the repository of `folder`, also where a hook of another one has started this program.
fn git_in(folder: &Path) -> Command {
    let mut command = Command::new("git");
    for variable in
        ["GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"]
    {
        command.env_remove(variable);
    }
    command.current_dir(folder);
    command
}

/// Without links; the last folder may be missing.
fn resolved(folder: &Path) -> Result<PathBuf> {
    if let Ok(folder) = folder.canonicalize() {
        return Ok(folder);
    }
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        bail!("dossier impossible : {}", folder.display());
    };
    let parent = parent.canonicalize().with_context(|| format!("dossier introuvable : {}", parent.display()))?;
    Ok(parent.join(name))
}

fn write(hook: &Path) -> Result<()> {
    if let Some(folder) = hook.parent() {
        fs::create_dir_all(folder)?;
    }
    NewFile::check(hook)?.write(HOOK.as_bytes())?;
    Ok(())
}

/// Whoever may read the hook may run it; git ignores one that cannot be run.
fn make_executable(hook: &Path) -> Result<()> {
    let mode = fs::metadata(hook)?.permissions().mode();
    fs::set_permissions(hook, Permissions::from_mode(mode | (mode & 0o444) >> 2))?;
    Ok(())
}

/// Name and contents of each notebook that the next commit adds or changes. In the current folder, the top
/// of the work tree: there git runs its hooks, and what it tells them about the index may be relative.
pub fn staged_notebooks() -> Result<Vec<(String, Vec<u8>)>> {
    let diff = ["-c", "diff.relative=false", "diff", "--cached", "--name-only", "--diff-filter=d", "-z"];
    let names = git(diff.into_iter().chain(["--", ":(top)*.ipynb"]).map(OsStr::new))?;
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| Ok((String::from_utf8_lossy(name).into_owned(), staged(name)?))).collect()
}

/// The staged contents of a file, as they will be committed.
fn staged(name: &[u8]) -> Result<Vec<u8>> {
    let object = [b":0:", name].concat();
    git([OsStr::new("cat-file"), OsStr::new("blob"), OsStr::from_bytes(&object)])
}

fn git<'a>(arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<Vec<u8>> {
    let mut command = Command::new("git");
    let output = command.args(arguments).stdin(Stdio::null()).output().context("impossible de lancer git")?;
    if !output.status.success() {
        bail!("git a refusé : {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A repository that nothing on this machine configures.
    fn repository() -> Result<tempfile::TempDir> {
        let folder = tempfile::tempdir()?;
        workspace::succeed(git_in(folder.path()).args(["init", "--quiet", "--template="]))?;
        configure(folder.path(), ".git/hooks")?;
        Ok(folder)
    }

    /// The project can be used without git, and so can its tests.
    fn git_is_missing() -> Result<bool> {
        let missing = Command::new("git").arg("--version").output().is_err();
        if missing {
            writeln!(std::io::stderr(), "xtask/src/git_hook.rs, test non exécuté : git n'est pas installé.")?;
        }
        Ok(missing)
    }

    fn configure(root: &Path, hooks: &str) -> Result<()> {
        workspace::succeed(git_in(root).args(["config", "core.hooksPath", hooks]))
    }

    fn refusal(root: &Path) -> String {
        install(root).err().map(|error| format!("{error:#}")).unwrap_or_default()
    }

    #[test]
    fn the_hook_is_installed_once_and_can_be_run() -> Result<()> {
        if git_is_missing()? {
            return Ok(());
        }
        let folder = repository()?;
        assert!(is_missing(folder.path()));
        let hook = folder.path().join(".git/hooks/pre-commit");
        for _ in 0..2 {
            install(folder.path())?;
            assert_eq!(fs::read_to_string(&hook)?, HOOK);
            assert_eq!(fs::metadata(&hook)?.permissions().mode() & 0o100, 0o100);
            // Were it not executable, git would pass over it: the next call mends that.
            fs::set_permissions(&hook, Permissions::from_mode(0o644))?;
        }
        assert!(!is_missing(folder.path()));
        Ok(())
    }

    #[test]
    fn another_hook_stays_and_is_no_occasion_for_the_offer() -> Result<()> {
        if git_is_missing()? {
            return Ok(());
        }
        let folder = repository()?;
        let hook = folder.path().join(".git/hooks/pre-commit");
        fs::create_dir(folder.path().join(".git/hooks"))?;
        fs::write(&hook, "#!/bin/sh\nexit 0\n")?;
        assert!(refusal(folder.path()).contains("rien n'a été changé"));
        assert_eq!(fs::read_to_string(&hook)?, "#!/bin/sh\nexit 0\n");
        assert!(!is_missing(folder.path()));
        fs::remove_file(&hook)?;
        symlink("nowhere", &hook)?;
        assert!(refusal(folder.path()).contains("rien n'a été changé"));
        assert!(fs::symlink_metadata(&hook)?.is_symlink());
        Ok(())
    }

    #[test]
    fn hooks_of_the_repository_are_found_and_those_of_every_repository_left_alone() -> Result<()> {
        if git_is_missing()? {
            return Ok(());
        }
        let (folder, elsewhere) = (repository()?, tempfile::tempdir()?);
        configure(folder.path(), "own-hooks")?;
        install(folder.path())?;
        assert!(folder.path().join("own-hooks/pre-commit").exists());
        for outside in [elsewhere.path().to_string_lossy().as_ref(), "../elsewhere", "/dev/null"] {
            configure(folder.path(), outside)?;
            assert!(refusal(folder.path()).contains("core.hooksPath"), "{outside}: {}", refusal(folder.path()));
            assert!(!is_missing(folder.path()));
        }
        assert_eq!(fs::read_dir(elsewhere.path())?.count(), 0);
        Ok(())
    }

    #[test]
    fn a_linked_work_tree_shares_the_hook() -> Result<()> {
        if git_is_missing()? {
            return Ok(());
        }
        let folder = repository()?;
        configure(folder.path(), &folder.path().join(".git/hooks").to_string_lossy())?;
        let commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "-m", "a"];
        workspace::succeed(git_in(folder.path()).args(commit))?;
        let tree = folder.path().join("tree");
        workspace::succeed(git_in(folder.path()).args(["worktree", "add", "--quiet", "tree"]))?;
        install(&tree)?;
        assert!(folder.path().join(".git/hooks/pre-commit").exists());
        Ok(())
    }

    #[test]
    fn outside_a_checkout_there_is_no_offer() -> Result<()> {
        if git_is_missing()? {
            return Ok(());
        }
        let folder = tempfile::tempdir()?;
        assert!(!is_missing(folder.path()));
        assert!(refusal(folder.path()).contains("dépôt git"), "{}", refusal(folder.path()));
        let repository = repository()?;
        let inside = repository.path().join("inside");
        fs::create_dir(&inside)?;
        assert!(!is_missing(&inside));
        assert!(refusal(&inside).contains("autre dépôt git"), "{}", refusal(&inside));
        Ok(())
    }
}
