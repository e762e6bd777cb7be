//! Explorations by the command, with a stand-in for the GPU: nothing is lost, nothing is measured twice.
#![cfg(unix)]

mod common;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use common::StandIn;
use iteragpu_lab::explore::{PlanRecord, RunRecord};
use serde_json::Value;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// A stand-in for the worker, and the file of an exploration beside it.
struct Laboratory {
    stand_in: StandIn,
}

const SMALL: &[&str] = &["--vary", "width=1,2,3", "--base", "repeats=2,batch=1", "--trials", "2"];

impl Laboratory {
    fn new() -> std::io::Result<Self> {
        Ok(Self { stand_in: StandIn::new("explorer")? })
    }

    fn file(&self) -> PathBuf {
        self.stand_in.beside("exploration.jsonl")
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mesure-memoire"));
        command.arg("explore").args(options).arg("--output").arg(self.file());
        command.env("ITERAGPU_WORKER", self.stand_in.program()).stdin(Stdio::null());
        command
    }

    fn explore(&self, options: &[&str]) -> std::io::Result<Output> {
        self.command(options).output()
    }

    /// The numbers that the stand-in has noted, one a measurement.
    fn noted(&self, name: &str) -> std::io::Result<Vec<u64>> {
        let text = fs::read_to_string(self.stand_in.beside(name))?;
        Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
    }

    fn put(&self, name: &str) -> std::io::Result<()> {
        fs::write(self.stand_in.beside(name), "")
    }

    fn take_away(&self, name: &str) -> std::io::Result<()> {
        fs::remove_file(self.stand_in.beside(name))
    }

    /// The plan and the runs, each line a complete record.
    fn records(&self) -> Result<(PlanRecord, Vec<RunRecord>), Box<dyn std::error::Error>> {
        let text = fs::read_to_string(self.file())?;
        assert!(text.ends_with('\n'));
        let mut lines = text.lines();
        let plan = serde_json::from_str(lines.next().ok_or("empty")?)?;
        Ok((plan, lines.map(serde_json::from_str).collect::<Result<_, _>>()?))
    }

    /// Every planned run once, each with the configuration of its point.
    fn assert_complete(&self) -> Outcome {
        let (plan, runs) = self.records()?;
        let mut indices: Vec<u64> = runs.iter().map(|run| run.run_index).collect();
        indices.sort_unstable();
        assert_eq!(indices, (1..=plan.plan.runs.len() as u64).collect::<Vec<_>>());
        for run in &runs {
            let planned = plan.plan.runs[run.run_index as usize - 1];
            assert_eq!((run.trial, &run.configuration), (planned.trial, &plan.plan.points[planned.point]));
            assert_eq!(run.measurement.is_none(), run.reason.is_some());
        }
        Ok(())
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Says how many of six runs are kept, and not that there is nothing.
fn stopped_at(output: &Output, kept: usize) -> bool {
    let text = said(output);
    let is_denied = ["Aucune mesure", "Rien n'a été"].iter().any(|words| text.contains(words));
    text.contains(&format!("Arrêt à {kept}/6, dans «")) && text.contains("garde les mesures faites.") && !is_denied
}

#[test]
fn each_run_is_on_the_disk_before_the_next_one_starts() -> Outcome {
    let laboratory = Laboratory::new()?;
    let output = laboratory.explore(SMALL)?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(output.stdout.is_empty());
    laboratory.assert_complete()?;
    // The plan's line, then one more before each run.
    assert_eq!(laboratory.noted("lines")?, [1, 2, 3, 4, 5, 6]);
    let (plan, _) = laboratory.records()?;
    let planned: Vec<u64> = plan.plan.runs.iter().map(|run| plan.plan.points[run.point].width).collect();
    assert_eq!(laboratory.noted("asked")?, planned, "in the order that was drawn");
    let text = said(&output);
    for line in
        ["Plan : 3 points, 2 essais", "\n1/6, reste environ ", "6/6 : essai 2", "contient les 6 mesures du plan."]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains('\r') && !text.contains('\u{1b}'), "plain lines where there is no terminal");
    Ok(())
}

#[test]
fn what_is_kept_is_what_measure_gives() -> Outcome {
    let laboratory = Laboratory::new()?;
    laboratory.explore(&["--vary", "width=2", "--base", "repeats=2", "--device-time", "3"])?;
    let mut measure = Command::new(env!("CARGO_BIN_EXE_mesure-memoire"));
    measure.args(["measure", "--width", "2", "--repeats", "2", "--device-time", "3"]);
    let alone = measure.env("ITERAGPU_WORKER", laboratory.stand_in.program()).output()?;
    let (mut alone, mut kept): (Value, Value) =
        (serde_json::from_slice(&alone.stdout)?, serde_json::to_value(&laboratory.records()?.1)?);
    let mut kept = kept[0]["measurement"].take();
    assert_eq!(kept["device_time"]["passes"], 3);
    for measurement in [&mut alone, &mut kept] {
        measurement["measured_at_utc"].take();
    }
    assert_eq!(alone, kept);
    Ok(())
}

#[test]
fn a_point_that_fails_is_a_record_and_the_rest_goes_on() -> Outcome {
    let laboratory = Laboratory::new()?;
    let output = laboratory.explore(&["--vary", "width=1,1000,2", "--base", "repeats=2", "--trials", "2"])?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    laboratory.assert_complete()?;
    let (_, runs) = laboratory.records()?;
    for run in runs {
        let failed = run.reason.as_deref().is_some_and(|reason| reason.contains("la mémoire du GPU ne suffit pas"));
        assert_eq!(failed, run.configuration.width == 1000);
    }
    assert!(said(&output).contains("échecs, chacun avec sa raison : 2."), "{}", said(&output));
    // A failed point is no point to do again.
    let before = fs::read(laboratory.file())?;
    let again =
        laboratory.explore(&["--vary", "width=1,1000,2", "--base", "repeats=2", "--trials", "2", "--resume"])?;
    assert!(again.status.success() && said(&again).contains("dont 6 faites auparavant"), "{}", said(&again));
    assert_eq!(fs::read(laboratory.file())?, before);
    Ok(())
}

#[test]
fn a_gpu_that_goes_away_ends_the_exploration_and_that_run_is_still_to_be_done() -> Outcome {
    let laboratory = Laboratory::new()?;
    let options = ["--vary", "width=1,77,2", "--base", "repeats=2", "--trials", "2", "--order-seed", "1"];
    let output = laboratory.explore(&options)?;
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("Aucun GPU n'est visible"), "{}", said(&output));
    let kept = laboratory.records()?.1;
    assert!((1..6).contains(&kept.len()) && kept.iter().all(|run| run.measurement.is_some()));
    assert!(stopped_at(&output, kept.len()), "{}", said(&output));
    // Still gone: nothing is done and nothing lost.
    let resumed = [&options[..], &["--resume"]].concat();
    assert_eq!(laboratory.explore(&resumed)?.status.code(), Some(2));
    assert_eq!(laboratory.records()?.1, kept);
    Ok(())
}

#[test]
fn without_a_gpu_there_is_no_file() -> Outcome {
    let laboratory = Laboratory::new()?;
    laboratory.put("gone")?;
    for options in [SMALL, &[SMALL, &["--resume"]].concat()] {
        assert_eq!(laboratory.explore(options)?.status.code(), Some(2));
        assert!(!laboratory.file().exists());
    }
    Ok(())
}

#[test]
fn a_killed_exploration_is_gone_on_with_until_it_is_complete() -> Outcome {
    let laboratory = Laboratory::new()?;
    laboratory.put("slow")?;
    let options = ["--vary", "width=1,2,3,4,5,6", "--base", "repeats=2", "--trials", "3", "--resume"];
    let mut kills = 0;
    for round in 0..200_u64 {
        let mut child = laboratory.command(&options).stderr(Stdio::null()).spawn()?;
        // Later each time, so that it gets further even on a slow machine.
        thread::sleep(Duration::from_millis(150 + 37 * round));
        if let Some(status) = child.try_wait()? {
            assert!(status.success());
            break;
        }
        child.kill()?;
        child.wait()?;
        kills += 1;
    }
    laboratory.assert_complete()?;
    assert!(kills > 0, "nothing was interrupted");
    let asked = laboratory.noted("asked")?.len() as u64;
    assert!(
        (18..=18 + kills).contains(&asked),
        "{asked} measurements after {kills} kills: a finished one was repeated"
    );
    Ok(())
}

#[test]
fn a_file_cut_anywhere_is_gone_on_with() -> Outcome {
    let laboratory = Laboratory::new()?;
    laboratory.explore(SMALL)?;
    let whole = fs::read(laboratory.file())?;
    let resume = [SMALL, &["--resume"]].concat();
    let plan_ends = whole.iter().position(|byte| *byte == b'\n').ok_or("no line")? + 1;
    let cuts = (plan_ends..whole.len()).step_by(997).chain([plan_ends + 1, whole.len() - 1]);
    for cut in cuts {
        fs::write(laboratory.file(), &whole[..cut])?;
        let output = laboratory.explore(&resume)?;
        assert!(output.status.success(), "cut at {cut}: {}", said(&output));
        laboratory.assert_complete()?;
    }
    // What a power cut may leave: room for a line, and zeros in it.
    fs::write(laboratory.file(), [&whole[..plan_ends], &[0; 100]].concat())?;
    assert!(laboratory.explore(&resume)?.status.success());
    laboratory.assert_complete()
}

#[test]
fn a_file_is_gone_on_with_only_by_its_own_plan_where_it_began() -> Outcome {
    let laboratory = Laboratory::new()?;
    laboratory.explore(SMALL)?;
    let whole = fs::read(laboratory.file())?;
    let refused = |options: &[&str], words: &str| -> Outcome {
        let output = laboratory.explore(options)?;
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(said(&output).contains(words), "{words}: {}", said(&output));
        Ok(())
    };
    refused(SMALL, "existe déjà")?;
    let resume = [SMALL, &["--resume"]].concat();
    for (other, key) in [
        (vec!["--order-seed", "5"], "order_seed"),
        (vec!["--device-time", "5"], "device_passes"),
        (vec!["--product"], "product"),
        (vec!["--vary", "batch=1,2"], "(vary)"),
        (vec!["--device", "cuda:1"], "(base.device)"),
    ] {
        refused(&[&resume[..], &other[..]].concat(), key)?;
    }
    laboratory.put("other-gpu")?;
    refused(&resume, "autre environnement (selected_device_pci_bus_id)")?;
    laboratory.take_away("other-gpu")?;
    assert_eq!(fs::read(laboratory.file())?, whole, "a refused file is left as it is");

    // Another writer.
    let held = fs::File::options().append(true).open(laboratory.file())?;
    held.lock()?;
    refused(&resume, "une autre exploration y écrit")?;
    drop(held);

    // Damage anywhere but at the end.
    let text = String::from_utf8(whole.clone())?;
    let lines: Vec<&str> = text.lines().collect();
    let damaged = [
        (String::new(), "aucun plan"),
        ("bonjour\n".to_owned(), "ligne 1"),
        (lines[1..].join("\n") + "\n", "ligne 1"),
        (format!("{}\n{{}}\n{}\n", lines[0], lines[1]), "ligne 2"),
        (format!("{}\n{}\n{}\n", lines[0], lines[1], lines[1]), "ligne 3"),
        (format!("{}\n{}\n", lines[0], lines[0]), "ligne 2"),
        (format!("{}\n{}\n", lines[0], lines[1].replace("\"trial\":1", "\"trial\":2")), "ligne 2"),
        (format!("{}\n{}\n", lines[0], lines[1].replace("\"measurement\":{", "\"other\":{")), "ligne 2"),
        (format!("{}\n", lines[0].replace("\"trials\":2", "\"trials\":3")), "ligne 1"),
    ];
    for (content, words) in damaged {
        fs::write(laboratory.file(), &content)?;
        refused(&resume, words)?;
        assert_eq!(fs::read_to_string(laboratory.file())?, content);
    }

    // A line too long to be one, and what follows it, is no line that was cut.
    let mut too_long = whole.clone();
    too_long.resize(whole.len() + (64 << 20), b' ');
    too_long.extend_from_slice(b"\n");
    fs::write(laboratory.file(), &too_long)?;
    refused(&resume, "la ligne 8 est trop longue")?;
    assert_eq!(fs::metadata(laboratory.file())?.len(), too_long.len() as u64);
    Ok(())
}

#[test]
fn a_plan_of_one_and_what_became_of_it_are_told_in_the_singular() -> Outcome {
    let laboratory = Laboratory::new()?;
    let single = ["--vary", "width=64", "--device-time", "1"];
    let text = said(&laboratory.explore(&single)?);
    assert!(text.contains("1 passage de plus par mesure.") && text.contains("contient la mesure du plan."), "{text}");
    let text = said(&laboratory.explore(&[&single[..], &["--resume"]].concat())?);
    assert!(text.contains("contient la mesure du plan, faite auparavant."), "{text}");
    Ok(())
}

#[test]
fn a_run_that_cannot_be_kept_is_no_half_line() -> Outcome {
    let laboratory = Laboratory::new()?;
    laboratory.explore(&[SMALL, &["--dry-run"]].concat())?;
    let mut limited = Command::new("sh");
    // Files of at most 8 KiB: the plan fits, not all runs.
    limited.args(["-c", "ulimit -f 16; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_mesure-memoire"), "explore"]);
    limited.args(SMALL).arg("--output").arg(laboratory.file());
    let output = limited.env("ITERAGPU_WORKER", laboratory.stand_in.program()).output()?;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("limite de taille"), "{}", said(&output));
    let kept = laboratory.records()?.1.len();
    assert!(kept < 6);
    assert!(stopped_at(&output, kept), "{}", said(&output));
    assert!(laboratory.explore(&[SMALL, &["--resume"]].concat())?.status.success());
    laboratory.assert_complete()
}

/// Whoever takes the file away while it is written to: nothing more is measured into a file without a name,
/// and what another program has put there is not touched.
#[test]
fn a_file_that_somebody_else_takes_or_changes_ends_the_exploration() -> Outcome {
    let options = ["--vary", "width=1,2,3", "--base", "repeats=2", "--trials", "100"];
    let changes: [fn(&Path) -> std::io::Result<()>; 4] = [
        |path| fs::remove_file(path),
        |path| fs::write(path, ""),
        |path| writeln!(fs::File::options().append(true).open(path)?, "added"),
        |path| fs::copy(path, path.with_extension("copy")).and_then(|_| fs::rename(path.with_extension("copy"), path)),
    ];
    for (number, change) in changes.iter().enumerate() {
        let laboratory = Laboratory::new()?;
        laboratory.put("slow")?;
        let child = laboratory.command(&options).stderr(Stdio::piped()).spawn()?;
        // Some runs are there.
        while fs::read_to_string(laboratory.file()).unwrap_or_default().lines().count() < 3 {
            thread::sleep(Duration::from_millis(10));
        }
        change(&laboratory.file())?;
        let after = fs::read(laboratory.file()).ok();
        let output = child.wait_with_output()?;
        assert_eq!(output.status.code(), Some(1), "{number}: {}", said(&output));
        let words = "un autre programme l'a retiré, remplacé ou modifié. L'exploration n'est pas finie.";
        assert!(said(&output).contains(words), "{number}: {}", said(&output));
        // At most the run that was under way when it was copied.
        let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
        match (after, fs::read(laboratory.file()).ok()) {
            (None, None) => {}
            (Some(after), Some(now)) => {
                assert!(now.starts_with(&after) && lines(&now) <= lines(&after) + 1, "{number}")
            }
            _ => return Err(format!("{number}: the file came or went").into()),
        }
        assert!(laboratory.noted("asked")?.len() < 300, "{number}: it went on to the end");
    }
    Ok(())
}

#[test]
fn another_gpu_in_the_middle_ends_the_exploration_and_its_run_is_not_kept() -> Outcome {
    let laboratory = Laboratory::new()?;
    laboratory.put("slow")?;
    let options = ["--vary", "width=1,2,3", "--base", "repeats=2", "--trials", "100"];
    let child = laboratory.command(&options).stderr(Stdio::piped()).spawn()?;
    while fs::read_to_string(laboratory.file()).unwrap_or_default().lines().count() < 3 {
        thread::sleep(Duration::from_millis(10));
    }
    laboratory.put("other-gpu")?;
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let words = "l'environnement a changé (selected_device_pci_bus_id). L'exploration n'est pas finie.";
    assert!(said(&output).contains(words), "{}", said(&output));
    assert!(!fs::read_to_string(laboratory.file())?.contains("0000:3C"));
    Ok(())
}

/// Found before anything is measured, whether or not it was to go on with a file.
#[cfg(target_os = "linux")]
#[test]
fn a_place_that_takes_no_file_is_an_argument_to_correct() -> Outcome {
    let laboratory = Laboratory::new()?;
    laboratory.explore(SMALL)?;
    let resume = [SMALL, &["--resume"]].concat();
    let tried = |place: &Path, options: &[&str]| -> Outcome {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mesure-memoire"));
        command.arg("explore").args(options).arg("--output").arg(place);
        let output = command.env("ITERAGPU_WORKER", laboratory.stand_in.program()).output()?;
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        let words = "» : il ne peut pas être écrit (";
        assert!(
            said(&output).contains(words) && said(&output).contains("Rien n'a été mesuré ni écrit."),
            "{}",
            said(&output)
        );
        Ok(())
    };
    for options in [SMALL, &resume] {
        tried(Path::new("/proc/exploration.jsonl"), options)?;
        tried(&laboratory.file().join("inside-a-file"), options)?;
    }
    Ok(())
}

/// What a refused call must not do: to cut a line off, or to take what follows an endless one for its rest.
#[test]
fn a_refused_file_keeps_its_last_line_and_all_that_follows_a_long_one() -> Outcome {
    let laboratory = Laboratory::new()?;
    laboratory.explore(SMALL)?;
    let whole = fs::read(laboratory.file())?;
    let resume = [SMALL, &["--resume"]].concat();
    fs::write(laboratory.file(), &whole[..whole.len() - 5])?;
    let refused = laboratory.explore(&[&resume[..], &["--order-seed", "5"]].concat())?;
    assert_eq!((refused.status.code(), fs::read(laboratory.file())?.len()), (Some(2), whole.len() - 5));

    // The plan, a line of 64 MiB and a half, then all runs.
    let plan_ends = whole.iter().position(|byte| *byte == b'\n').ok_or("no line")? + 1;
    let mut long = whole[..plan_ends].to_vec();
    long.resize(plan_ends + (64 << 20) + (1 << 19), b' ');
    long.push(b'\n');
    long.extend(&whole[plan_ends..]);
    fs::write(laboratory.file(), &long)?;
    let refused = laboratory.explore(&resume)?;
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains("la ligne 2 est trop longue"), "{}", said(&refused));
    assert_eq!(fs::metadata(laboratory.file())?.len(), long.len() as u64, "a refused file is left as it is");
    Ok(())
}

/// The line of the most repetitions that a plan takes can be read again, whatever its numbers.
#[test]
fn a_run_of_the_most_repetitions_is_gone_on_with() -> Outcome {
    let laboratory = Laboratory::new()?;
    let options = ["--vary", "repeats=100000", "--base", "width=4", "--device-time", "10000"];
    let refused = laboratory.explore(&["--vary", "repeats=100001"])?;
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("valeur de repeats : « 100001 » refusé"), "{}", said(&refused));
    laboratory.put("largest")?;
    let output = laboratory.explore(&options)?;
    assert!(output.status.success(), "{}", said(&output));
    let length = fs::metadata(laboratory.file())?.len();
    assert!((32 << 20..64 << 20).contains(&length), "{length}");
    let again = laboratory.explore(&[&options[..], &["--resume"]].concat())?;
    assert!(again.status.success() && said(&again).contains("la mesure du plan, faite auparavant"), "{}", said(&again));
    Ok(())
}

/// A terminal without control sequences draws no bar: it gets lines, as a log file does.
#[test]
fn a_terminal_is_told_how_far_it_is_whatever_it_can_draw() -> Outcome {
    let laboratory = Laboratory::new()?;
    for (terminal, lines) in [("dumb", true), ("xterm", false)] {
        let mut command = Command::new("script");
        command.args([
            "-qec",
            "\"$PROGRAM\" explore --vary width=1,2 --base repeats=2 --output \"$FILE\"",
            "/dev/null",
        ]);
        command.env("PROGRAM", env!("CARGO_BIN_EXE_mesure-memoire")).env("FILE", laboratory.file());
        command.env("TERM", terminal).env("ITERAGPU_WORKER", laboratory.stand_in.program()).stdin(Stdio::null());
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => {
                writeln!(std::io::stderr(), "nothing tried: no terminal to pretend ({error})")?;
                return Ok(());
            }
        };
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{shown}");
        assert_eq!(shown.contains("2/2 : essai 1, batch 2"), lines, "{terminal}: {shown}");
        assert_eq!(shown.contains('\u{1b}'), !lines, "{terminal}: {shown}");
        laboratory.take_away("exploration.jsonl")?;
    }
    Ok(())
}

#[test]
fn a_plan_alone_touches_nothing() -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mesure-memoire"));
    command.args(["explore", "--vary", "width=64,128,256", "--vary", "batch=1,2", "--product", "--trials", "4"]);
    let output = command.args(["--dry-run"]).env("ITERAGPU_WORKER", "/nonexistent").output()?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = String::from_utf8(output.stdout)?;
    assert!(
        text.contains("6 points, 4 essais de chacun, 24 mesures") && text.contains("Toutes les combinaisons"),
        "{text}"
    );
    Ok(())
}

#[test]
fn wrong_options_are_refused_by_name() -> Outcome {
    let laboratory = Laboratory::new()?;
    let cases: &[(&[&str], &str)] = &[
        (&[], "--vary"),
        (&["--vary", "width=64,64"], "valeur de width : « 64 » refusé"),
        (&["--vary", "width=0"], "valeur de width : « 0 » refusé"),
        (&["--vary", "dtype=int8"], "valeur de dtype : « int8 » refusé"),
        (&["--vary", "repeats=5,100001"], "valeur de repeats : « 100001 » refusé"),
        (&["--vary", "width=1", "--base", "repeats=100001"], "valeur de repeats : « 100001 » refusé"),
        (&["--vary", "width=64", "--vary", "width=128"], "--vary"),
        (&["--vary", "hauteur=64"], "nom de dimension"),
        (&["--vary", "width=1", "--base", "batch"], "--base"),
        (&["--vary", "width=1", "--trials", "0"], "--trials"),
        (&["--vary", "width=1", "--device", "cpu"], "--device"),
        (&["--vary", "width=1", "--device-time", "10001"], "--device-time"),
        (&["--vary", "width=1", "--order-seed", "-1"], "--order-seed"),
    ];
    for (options, name) in cases {
        let output = laboratory.explore(options)?;
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(said(&output).contains(name), "{options:?}: {}", said(&output));
    }
    assert!(!laboratory.file().exists());
    writeln!(std::io::stderr(), "{} refusals", cases.len())?;
    Ok(())
}
