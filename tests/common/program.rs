//! Programs that a test writes and runs.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script that can be run at once. Another process writes it: were this one to have it open for
/// writing while another thread starts a process, that process would inherit it for a moment, in which the
/// system runs no program that somebody can still write to.
pub fn write_program(path: &Path, text: &str) -> io::Result<()> {
    let mut shell = Command::new("sh");
    shell.args(["-c", "cat > \"$1\" && chmod +x \"$1\"", "sh"]).arg(path).stdin(Stdio::piped());
    let mut child = shell.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(text.as_bytes())?;
    }
    if child.wait()?.success() { Ok(()) } else { Err(io::Error::other("the script was not written")) }
}
