//! Every command that a README shows is run, and prints what the README shows below it; on a difference the
//! expected text is printed, ready to be put in. The three languages say the same: line by line, the same
//! blocks, inline code, numbers, links, headings, lists and tables.
#![cfg(unix)]

mod common;

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::StandIn;
use common::exploration::Outcome;
use iteragpu_lab::Measurement;
use serde_json::Value;

/// The first is the one that the others translate.
const READMES: [&str; 3] = ["README.md", "README.en.md", "README.ja.md"];

/// Stands before a block whose command finds no GPU, and which shows what it says on stderr.
const WITHOUT_GPU: &str = "<!-- sortie d'erreur, sans GPU -->";

/// Checked by xtask's own tests: they install, or build everything.
const CARGO: &str = "cargo ";

fn read(path: &str) -> std::io::Result<String> {
    fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR")))
}

/// A fenced block: its first line, its body, and the line before it.
struct Block<'a> {
    opening: &'a str,
    body: Vec<&'a str>,
    before: &'a str,
}

/// What a document is made of, fenced blocks apart.
#[derive(Default)]
struct Document<'a> {
    blocks: Vec<Block<'a>>,
    prose: Vec<&'a str>,
}

impl<'a> Document<'a> {
    fn parse(text: &'a str) -> Outcome<Self> {
        let (mut document, mut lines) = (Self::default(), text.lines());
        while let Some(line) = lines.next() {
            if line.starts_with("```") {
                let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
                let before = document.prose.last().copied().unwrap_or_default();
                document.blocks.push(Block { opening: line, body, before });
            } else {
                document.prose.push(line);
            }
        }
        if text.matches("```").count() != 2 * document.blocks.len() {
            return Err("a fenced block without end, or a fence inside a line".into());
        }
        Ok(document)
    }
}

/// A command as a person types it, and the lines shown below it.
#[derive(Debug, PartialEq)]
struct Example {
    command: String,
    shown: Vec<String>,
}

fn examples(block: &Block) -> Outcome<Vec<Example>> {
    let mut examples: Vec<Example> = Vec::new();
    let mut continued = false;
    for line in &block.body {
        match (line.strip_prefix("$ "), examples.last_mut()) {
            (_, Some(example)) if continued => example.command += &format!("\n{line}"),
            (Some(command), _) => examples.push(Example { command: command.to_owned(), shown: Vec::new() }),
            (None, Some(example)) => example.shown.push((*line).to_owned()),
            (None, None) => return Err(format!("no command before: {line}").into()),
        }
        continued = line.ends_with('\\');
    }
    if block.opening == "```console" { Ok(examples) } else { Err(format!("what is {}?", block.opening).into()) }
}

/// A folder in which the README's commands find what they name, and their programs.
struct Shell {
    stand_in: StandIn,
}

impl Shell {
    fn new(behaviour: &str) -> Outcome<Self> {
        let stand_in = StandIn::new(behaviour)?;
        symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs"), stand_in.beside("docs"))?;
        Ok(Self { stand_in })
    }

    fn run(&self, command: &str) -> Outcome<Output> {
        let programs = Path::new(env!("CARGO_BIN_EXE_mesure-memoire")).parent().ok_or("no folder")?;
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([programs.to_owned()].into_iter().chain(env::split_paths(&path)))?;
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(self.stand_in.beside(""));
        Ok(shell.env("PATH", path).env("ITERAGPU_WORKER", self.stand_in.program()).output()?)
    }
}

/// Where what is shown is not what the command prints, and what that is.
fn faults(block: &Block) -> Outcome<Vec<String>> {
    let refused = block.before == WITHOUT_GPU;
    let shell = Shell::new(if refused { "no-gpu" } else { "obliging" })?;
    let mut faults = Vec::new();
    for Example { command, shown } in examples(block)? {
        if command.starts_with(CARGO) && shown.is_empty() {
            continue;
        }
        let output = shell.run(&command)?;
        let (code, printed) = if refused { (2, &output.stderr) } else { (0, &output.stdout) };
        let printed = String::from_utf8_lossy(printed);
        if output.status.code() != Some(code) || !printed.lines().eq(shown.iter()) {
            let words = String::from_utf8_lossy(&output.stderr);
            faults.push(format!("$ {command}\n{printed}({}) {words}", output.status));
        }
    }
    Ok(faults)
}

fn all_faults(readme: &str) -> Outcome<String> {
    let document = Document::parse(readme)?;
    assert!(document.blocks.len() > 5, "{} blocks", document.blocks.len());
    let faults: Result<Vec<_>, _> = document.blocks.iter().map(faults).collect();
    Ok(faults?.concat().join("\n"))
}

/// One for all three: their blocks are equal, byte for byte.
#[test]
fn every_command_of_the_readme_prints_what_is_shown_below_it() -> Outcome {
    let faults = all_faults(&read(READMES[0])?)?;
    assert!(faults.is_empty(), "README.md should show:\n{faults}");
    Ok(())
}

#[test]
fn a_typed_output_or_a_broken_command_is_found() -> Outcome {
    let readme = read(READMES[0])?;
    for (right, wrong) in [
        ("\"theoretical_weight_bytes\": 14000000000", "\"theoretical_weight_bytes\": 14000000001"),
        ("--bits 16", "--bits 15"),
        ("--width 1024 --repeats 40", "--width 1024 --repeat 40"),
        ("Pas de repli vers le CPU.\n```", "\n```"),
        ("\"identical\": true", "\"identical\": false"),
        ("h200-exploration.jsonl --output", "h200-explorations.jsonl --output"),
        (WITHOUT_GPU, ""),
    ] {
        assert!(readme.contains(right), "{right}");
        assert!(!all_faults(&readme.replacen(right, wrong, 1))?.is_empty(), "{wrong}");
    }
    assert!(all_faults(&readme.replacen("```console", "```json", 1)).is_err());
    Ok(())
}

/// The figures of the prose, from the measurements that are kept.
#[test]
fn the_readmes_figures_are_those_of_the_kept_measurements() -> Outcome {
    let simulated: Value = serde_json::from_str(&read("docs/mesures/h200-simulation.json")?)?;
    let cases = simulated["cases"].as_array().ok_or("no cases")?;
    assert!(cases.iter().all(|case| case["identical"] == true));

    let mut golden = common::measurements()?;
    let count = golden.len();
    let environment = golden.swap_remove(0).environment;
    let (driver, torch) =
        (environment.driver_version.ok_or("no driver")?, environment.torch_version.ok_or("no torch")?);
    let pictured: Measurement = serde_json::from_str(&read("docs/mesures/h200-notebook.json")?)?;
    let readme = read(READMES[0])?;
    for expected in [
        format!("Sur un H200, {} configurations tirées au sort", cases.len()),
        format!("(pilote {driver}, PyTorch {torch}), {count} configurations"),
        format!("temps de {} passages", pictured.configuration.chosen.repeats),
        format!("que sur H200, pilote {driver}"),
    ] {
        assert!(readme.contains(&expected), "README.md should hold: {expected}");
    }
    Ok(())
}

/// What has to be the same on a line, whatever its language.
#[derive(Debug, PartialEq)]
struct Skeleton<'a> {
    /// Heading, list item, table row, comment or paragraph.
    start: String,
    columns: usize,
    code: Vec<&'a str>,
    links: Vec<&'a str>,
    bold: usize,
    numbers: Vec<String>,
}

/// In French a comma stands before the decimals and a space between thousands; in English and in Japanese, a
/// full stop and a comma.
fn skeleton<'a>(line: &'a str, french: bool) -> Skeleton<'a> {
    let parts: Vec<&str> = line.split('`').collect();
    let mut code: Vec<&str> = parts.iter().skip(1).step_by(2).copied().collect();
    let mut words = parts.iter().step_by(2).copied().collect::<Vec<_>>().join(" ");
    let targets = |text: &'a str| text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let mut links: Vec<&str> = targets(line).collect();
    for link in &links {
        words = words.replace(&format!("]({link})"), "]");
    }
    let mut numbers = numbers(&words, french);
    code.sort_unstable();
    links.sort_unstable();
    numbers.sort_unstable();
    Skeleton {
        start: start(line),
        columns: if line.starts_with('|') { line.matches('|').count() } else { 0 },
        code,
        links,
        bold: words.matches("**").count(),
        numbers,
    }
}

/// The marks that a line begins with, all of it where it has no words of a language.
fn start(line: &str) -> String {
    if line.starts_with("<!--") || line.starts_with("| ---") {
        return line.to_owned();
    }
    let marks: String = line.chars().take_while(|c| "#-|![ ".contains(*c)).collect();
    if line.is_empty() { "nothing".to_owned() } else { marks }
}

/// Groups of digits with what joins them, written the same in each language.
fn numbers(text: &str, french: bool) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let digit = |place: usize| chars.get(place).is_some_and(char::is_ascii_digit);
    let three_digits_from = |place: usize| (place..place + 3).all(digit) && !digit(place + 3);
    let (thousands, decimals): (&[char], char) =
        if french { (&[' ', '\u{a0}', '\u{202f}'], ',') } else { (&[','], '.') };
    let mut found = vec![String::new()];
    for (place, &c) in chars.iter().enumerate() {
        let number = found.last_mut();
        match number {
            Some(number) if c.is_ascii_digit() => number.push(c),
            Some(number) if !number.is_empty() && thousands.contains(&c) && three_digits_from(place + 1) => {}
            Some(number) if !number.is_empty() && (c == decimals || c == '.') && digit(place + 1) => number.push('.'),
            _ => found.push(String::new()),
        }
    }
    found.retain(|number| !number.is_empty());
    found
}

/// Where a translation does not say what the original says.
fn disagreements(original: &str, translation: &str) -> Outcome<Vec<String>> {
    let (of, by) = (Document::parse(original)?, Document::parse(translation)?);
    let mut found = Vec::new();
    if of.prose.len() != by.prose.len() || of.blocks.len() != by.blocks.len() {
        found.push(format!("{} lines and {} lines of prose", of.prose.len(), by.prose.len()));
    }
    for (right, other) in of.blocks.iter().zip(&by.blocks) {
        if (right.opening, &right.body) != (other.opening, &other.body) {
            found.push(format!("{}\nis not\n{}", other.body.join("\n"), right.body.join("\n")));
        }
    }
    for (right, other) in of.prose.iter().zip(&by.prose) {
        let (expected, seen) = (skeleton(right, true), skeleton(other, false));
        if expected != seen {
            found.push(format!("{other}\nis not\n{right}\n{seen:?}\n{expected:?}"));
        }
    }
    Ok(found)
}

#[test]
fn the_three_languages_say_the_same() -> Outcome {
    let original = read(READMES[0])?;
    for name in &READMES[1..] {
        let found = disagreements(&original, &read(name)?)?;
        assert!(found.is_empty(), "{name}:\n{}", found.join("\n\n"));
    }
    Ok(())
}

#[test]
fn a_readme_that_says_something_else_is_found() -> Outcome {
    let original = read(READMES[0])?;
    for name in &READMES[1..] {
        let translation = read(name)?;
        for (right, wrong) in [
            ("4.7", "4,7"),
            ("4.7", "4.8"),
            ("320", "3２0"),
            ("13.0", "13"),
            ("`--resume`", "`--resumes`"),
            ("`--resume`", "--resume"),
            ("](docs/noyau.md)", "](docs/kernel.md)"),
            ("[docs/noyau.md](docs/noyau.md)", "docs/noyau.md"),
            ("$ cargo xtask test\n", ""),
            ("--lots 2", "--lots 3"),
            ("\"total_gpus\": 4", "\"total_gpus\": 2"),
            ("\n### ", "\n## "),
            ("\n- ", "\n"),
            (" |\n| [CHANGELOG.md]", " | |\n| [CHANGELOG.md]"),
            ("\n| [CHANGELOG.md]", "\n\n| [CHANGELOG.md]"),
            ("**", ""),
            ("](docs/captures/mesure-h200.png)", "](docs/captures/forfait.png)"),
            (WITHOUT_GPU, "<!-- stderr -->"),
        ] {
            assert!(translation.contains(right), "{name} {right}");
            let planted = translation.replacen(right, wrong, 1);
            assert!(!disagreements(&original, &planted)?.is_empty(), "{name}: {wrong} instead of {right}");
        }
        assert!(disagreements(&original, &translation.replacen("\n```\n", "\n", 1)).is_err(), "{name}: an open fence");
    }
    Ok(())
}

#[test]
fn numbers_are_read_as_each_language_writes_them() {
    let text = "H200, 33 554 432 octets, 4,7 Go, 2.11.0+cu130, 1 Gio, 10^9, batch 2, 128 ou 3 7";
    let read = ["200", "33554432", "4.7", "2.11.0", "130", "1", "10", "9", "2", "128", "3", "7"];
    assert_eq!(numbers(text, true), read);
    let text = "H200, 33,554,432 bytes, 4.7 GB, 2.11.0+cu130, 1 GiB, 10^9, batch 2, 128 or 3 7";
    assert_eq!(numbers(text, false), read);
}

/// The README and every document, each with the folder that its links start from.
fn documents(folder: &Path) -> Outcome<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(documents(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push((folder.to_owned(), fs::read_to_string(&path)?));
        }
    }
    Ok(found)
}

#[test]
fn what_the_documents_link_to_exists() -> Outcome {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = documents(&root.join("docs"))?;
    all.push((root.to_owned(), read(READMES[0])?));
    let (mut links, mut missing) = (0, Vec::new());
    for (folder, text) in &all {
        for link in text.lines().flat_map(|line| skeleton(line, true).links) {
            let file = link.split('#').next().unwrap_or_default();
            links += 1;
            if !link.starts_with("https://") && !folder.join(file).exists() {
                missing.push(link);
            }
        }
    }
    assert!(links > 60, "{links} links");
    assert!(missing.is_empty(), "{missing:?}");
    Ok(())
}
