//! Merging files of explorations: nothing is lost, mixed or there twice, whatever the order of the files;
//! what is damaged is refused by its line, and then nothing is written.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{measurements, plan_record};
use iteragpu_lab::explore::{Merged, Plan, PlanOptions, RunRecord, merge};
use iteragpu_lab::{LabError, Measurement};
use proptest::prelude::*;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const COMMAND: &str = env!("CARGO_BIN_EXE_mesure-memoire");

/// Runs of each exploration here.
const RUNS: u64 = 4;

/// A measured configuration, and a machine's name that is made up around it.
fn measured(id: u64) -> Outcome<Measurement> {
    let mut measurement = measurements()?.swap_remove(0);
    measurement.environment.selected_device_name = Some(format!("GPU {id}"));
    Ok(measurement)
}

/// The lines of an exploration: its plan, then its runs in their order. One point is measured, the other
/// one failed.
fn exploration(id: u64) -> Outcome<Vec<String>> {
    let measurement = measured(id)?;
    let options = PlanOptions { trials: RUNS / 2, order_seed: id, ..PlanOptions::default() };
    let plan = Plan::new(measurement.configuration.chosen.clone(), &["width=64,128"], &options)?;
    let record = plan_record(id, &measurement, plan);
    let mut lines = vec![serde_json::to_string(&record)? + "\n"];
    for (planned, run_index) in record.plan.runs.iter().zip(1..) {
        let configuration = record.plan.points[planned.point].clone();
        let is_measured = configuration == measurement.configuration.chosen;
        let run = RunRecord {
            kind: "exploration_run".to_owned(),
            exploration_id: record.exploration_id.clone(),
            run_index,
            trial: planned.trial,
            configuration,
            ended_at_utc: measurement.measured_at_utc.clone(),
            measurement: is_measured.then(|| measurement.clone()),
            reason: (!is_measured).then(|| "la mémoire du GPU ne suffit pas".to_owned()),
        };
        lines.push(serde_json::to_string(&run)? + "\n");
    }
    assert_eq!(lines.len() as u64, 1 + RUNS);
    Ok(lines)
}

/// Files, and a name for what becomes of them.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Outcome<Self> {
        Ok(Self { folder: tempfile::tempdir()? })
    }

    fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Outcome<PathBuf> {
        let path = self.at(name);
        fs::write(&path, contents)?;
        Ok(path)
    }

    /// Merges, and gives what is said and what is in the merged file.
    fn merged(&self, inputs: &[PathBuf], output: &str) -> Outcome<(Merged, String)> {
        let merged = merge(inputs, &self.at(output))?;
        Ok((merged, fs::read_to_string(self.at(output))?))
    }

    /// What is said when merging is refused; nothing must have been written.
    fn refused(&self, inputs: &[PathBuf]) -> Outcome<String> {
        let before = fs::read_dir(self.folder.path())?.count();
        let refused = merge(inputs, &self.at("refused.jsonl"));
        assert_eq!(fs::read_dir(self.folder.path())?.count(), before);
        match refused {
            Ok(merged) => Err(format!("accepted: {merged}").into()),
            Err(error) => Ok(error.to_string()),
        }
    }
}

fn counted(merged: &Merged) -> (u64, u64, u64, u64) {
    (merged.explorations, merged.runs, merged.duplicates, merged.cut_lines)
}

#[test]
fn machines_stay_apart_and_in_the_order_of_their_start() -> Outcome {
    let place = Place::new()?;
    let (one, two) = (exploration(1)?, exploration(2)?);
    let files = [place.file("one.jsonl", one.concat())?, place.file("two.jsonl", two.concat())?];
    let (merged, text) = place.merged(&files, "all.jsonl")?;
    // The second began before the first.
    assert_eq!(text, two.concat() + &one.concat());
    assert_eq!(counted(&merged), (2, 2 * RUNS, 0, 0));
    for (line, id) in text.lines().zip([2, 2, 2, 2, 2, 1, 1, 1, 1, 1]) {
        assert!(line.contains(&format!("\"{id:016x}\"")) && !line.contains(&format!("GPU {}", 3 - id)), "{line}");
    }
    Ok(())
}

/// An earlier copy of an exploration that went on, the same file under two names, and a merged file.
#[test]
fn lines_that_are_the_same_are_there_once() -> Outcome {
    let place = Place::new()?;
    let (one, two) = (exploration(1)?, exploration(2)?);
    let file = place.file("one.jsonl", one.concat())?;
    let earlier = place.file("earlier.jsonl", one[..3].concat() + &one[3][..100])?;
    let (merged, text) = place.merged(&[earlier, file.clone(), file.clone()], "once.jsonl")?;
    assert_eq!((counted(&merged), text), ((1, RUNS, 3 + 5, 1), one.concat()));

    let both = place.file("both.jsonl", [one.concat(), two.concat(), one.concat()].concat())?;
    let (merged, text) = place.merged(&[both, file], "both-once.jsonl")?;
    assert_eq!((counted(&merged), &text), ((2, 2 * RUNS, 10, 0), &(two.concat() + &one.concat())));
    let (again, same) = place.merged(&[place.at("both-once.jsonl")], "again.jsonl")?;
    assert_eq!((counted(&again), same), ((2, 2 * RUNS, 0, 0), text));
    Ok(())
}

#[test]
fn a_folder_stands_for_its_jsonl_files() -> Outcome {
    let place = Place::new()?;
    let inside = place.at("inside");
    fs::create_dir(&inside)?;
    fs::write(inside.join("b.jsonl"), exploration(1)?.concat())?;
    fs::write(inside.join("a.jsonl"), exploration(2)?.concat())?;
    fs::write(inside.join("notes.txt"), "not an exploration")?;
    let (merged, _) = place.merged(std::slice::from_ref(&inside), "all.jsonl")?;
    assert_eq!(merged.explorations, 2);
    // The merged file may be in the folder, and is itself merged the next time.
    assert_eq!(merge(std::slice::from_ref(&inside), &inside.join("all.jsonl"))?.duplicates, 0);
    assert_eq!(merge(&[inside], &place.at("again.jsonl"))?.duplicates, 10);
    Ok(())
}

#[test]
fn where_two_lines_contradict_each_other_both_are_named() -> Outcome {
    let place = Place::new()?;
    let lines = exploration(1)?;
    let first = place.file("first.jsonl", lines.concat())?;
    let failed = lines.iter().position(|line| line.contains("ne suffit pas")).ok_or("no failed run")?;
    let cases =
        [("T00:00:59", "T00:00:58", 0, "le plan"), ("suffit", "manque", failed, &format!("la mesure {failed}"))];
    for (old, new, number, subject) in cases {
        let mut changed = lines.clone();
        changed[number] = changed[number].replace(old, new);
        assert_ne!(changed, lines);
        let other = place.file("other.jsonl", changed.concat())?;
        let (line, place_of) = (number + 1, |path: &Path| path.display().to_string());
        for [earlier, later] in [[&first, &other], [&other, &first]] {
            let said = place.refused(&[earlier.clone(), later.clone()])?;
            let expected = format!(
                "Le fichier « {} » : la ligne {line} contredit la ligne {line} de « {} » sur {subject} \
                 de l'exploration 0000000000000001. Rien n'a été mesuré ni écrit.",
                place_of(later),
                place_of(earlier)
            );
            assert_eq!(said, expected);
        }
        // In one file.
        let mut twice = lines.clone();
        twice.push(changed[number].clone());
        let said = place.refused(&[place.file("twice.jsonl", twice.concat())?])?;
        assert!(said.contains(&format!("la ligne 6 contredit la ligne {line} de ")), "{said}");
    }
    Ok(())
}

#[test]
fn damage_at_any_line_is_named_and_nothing_is_written() -> Outcome {
    let place = Place::new()?;
    let whole = place.file("whole.jsonl", exploration(3)?.concat())?;
    let lines = [exploration(1)?, exploration(2)?].concat();
    let damages: [fn(&str) -> String; 9] = [
        |_| "\n".to_owned(),
        |_| "{}\n".to_owned(),
        |_| "{\"kind\":\"exploration_run\"}\n".to_owned(),
        |_| "{\"kind\":\"exploration_plan\"}\n".to_owned(),
        |line| line[..line.len() / 2].to_owned() + "\n",
        |line| line.replace('\n', "}\n"),
        |line| line.replace("exploration_", "other_"),
        |line| line.replace("\"trial", "\"attempt"),
        |line| line.replacen("\"context\":16", "\"context\":17", 1),
    ];
    for (number, damage) in damages.iter().enumerate() {
        for position in 0..lines.len() {
            let mut damaged = lines.clone();
            damaged[position] = damage(&damaged[position]);
            assert_ne!(damaged[position], lines[position], "{number}");
            let damaged = place.file("damaged.jsonl", damaged.concat())?;
            let said = place.refused(&[whole.clone(), damaged])?;
            let expected = format!("damaged.jsonl » : la ligne {} ", position + 1);
            assert!(said.contains(&expected), "{number}: {said}");
        }
    }
    Ok(())
}

/// A run counts for the plan that its own file holds before it.
#[test]
fn a_run_without_its_plan_is_refused() -> Outcome {
    let place = Place::new()?;
    let (one, two) = (exploration(1)?, exploration(2)?);
    let whole = place.file("whole.jsonl", one.concat())?;
    let run_first = [&one[1], &one[0], &one[2]].map(String::as_str).concat();
    let no_plan = place.file("no-plan.jsonl", two[0].clone() + &one[1])?;
    for (file, line) in [(place.file("run-first.jsonl", run_first)?, 1), (no_plan, 2)] {
        let said = place.refused(&[whole.clone(), file])?;
        assert!(said.contains(&format!("la ligne {line} n'est pas précédée, dans ce fichier, du plan")), "{said}");
    }
    // Measured on another machine, or with more than the plan asks for.
    let measured = one.iter().find(|line| line.contains("\"measurement\":{")).ok_or("nothing measured")?;
    let seconds =
        r#"{"device_seconds":[1.0],"min_device_seconds":1.0,"median_device_seconds":1.0,"max_device_seconds":1.0}"#;
    let device_time = format!(
        r#","device_time":{{"passes":1,"scope":"","forward":{seconds},"graph_replay":null,"graph_replay_note":""}}}}}}"#
    );
    let observed = measured.replace("}}\n", &format!("{device_time}\n"));
    let contradictory = observed.replace("\"passes\":1", "\"passes\":2");
    for (run, words) in [
        (measured.replace("GPU 1", "GPU 2"), "la ligne 2 ne suit pas le plan"),
        (observed, "la ligne 2 ne suit pas le plan"),
        (contradictory, "la ligne 2 contient une mesure incohérente"),
    ] {
        assert_ne!(run, *measured);
        let said = place.refused(&[place.file("other.jsonl", one[0].clone() + &run)?])?;
        assert!(said.contains(words), "{said}");
    }
    let misplaced = place.file("misplaced.jsonl", one[0].clone() + &one[1].replace("\"trial\":1", "\"trial\":2"))?;
    assert!(place.refused(&[misplaced])?.contains("la ligne 2 ne suit pas le plan de son exploration"));
    // Two explorations whose lines alternate are as good as one after the other.
    let mixed: String = one.iter().zip(&two).flat_map(|(one, two)| [one.as_str(), two]).collect();
    let (_, text) = place.merged(&[place.file("mixed.jsonl", mixed)?], "all.jsonl")?;
    assert_eq!(text, two.concat() + &one.concat());
    Ok(())
}

#[test]
fn a_line_that_its_writer_did_not_complete_is_left_out() -> Outcome {
    let place = Place::new()?;
    let lines = exploration(1)?;
    let text = lines.concat().into_bytes();
    let plan = lines[0].len();
    // Around the ends of lines, and in between.
    let ends: Vec<usize> = lines
        .iter()
        .scan(0, |end, line| {
            *end += line.len();
            Some(*end)
        })
        .collect();
    let cuts = ends[1..].iter().flat_map(|end| [end - 400, end - 2, end - 1, *end]).chain([plan, plan + 1]);
    for (cut, number) in cuts.zip(1..) {
        let name = format!("{number}.jsonl");
        let (merged, kept) = place.merged(&[place.file("cut.jsonl", &text[..cut])?], &name)?;
        let complete = ends.iter().rfind(|end| **end <= cut).copied().unwrap_or_default();
        assert_eq!((kept.as_bytes(), merged.cut_lines), (&text[..complete], u64::from(complete != cut)), "{cut}");
    }
    // One that has no complete line yet, or nothing at all, is no obstacle to the others.
    let (cut, empty) = (place.file("cut.jsonl", &text[..plan - 1])?, place.file("empty.jsonl", "")?);
    let whole = place.file("whole.jsonl", &text)?;
    let (merged, kept) = place.merged(&[cut.clone(), empty.clone(), whole], "whole-once.jsonl")?;
    assert_eq!((counted(&merged), kept), ((1, RUNS, 0, 1), lines.concat()));
    assert!(place.refused(&[cut, empty])?.contains("Accepté : au moins un fichier qui contient une exploration."));
    Ok(())
}

#[test]
fn there_may_be_more_files_than_can_be_open_at_once() -> Outcome {
    let place = Place::new()?;
    for id in 1..=40 {
        place.file(format!("{id}.jsonl"), exploration(id)?.concat())?;
    }
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 12; exec \"$@\"", "sh", COMMAND, "explore", "merge", "--output"]);
    let output = limited.arg(place.at("all")).arg(place.folder.path()).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(place.at("all"))?.lines().count() as u64, 40 * (1 + RUNS));
    Ok(())
}

#[test]
fn what_is_no_file_or_has_no_end_is_refused() -> Outcome {
    let place = Place::new()?;
    let whole = place.file("whole.jsonl", exploration(1)?.concat())?;
    let pipe = place.at("pipe.jsonl");
    assert!(Command::new("mkfifo").arg(&pipe).status()?.success());
    for path in [pipe, PathBuf::from("/dev/zero")] {
        let said = place.refused(&[whole.clone(), path])?;
        assert!(said.contains("» : ce n'est pas un fichier ordinaire. Rien n'a été mesuré ni écrit."), "{said}");
    }
    assert!(place.refused(&[whole.clone(), place.at("nowhere.jsonl")])?.contains("ne peut pas être lu"));
    // As long as a line may be, and longer: no newline is awaited for ever.
    let endless = place.at("endless.jsonl");
    fs::File::create(&endless)?.set_len((64 << 20) + 1)?;
    assert!(place.refused(&[whole.clone(), endless])?.contains("la ligne 1 est trop longue"));
    // The output is not one of the inputs, since it must be new.
    assert!(matches!(merge(std::slice::from_ref(&whole), &whole), Err(LabError::FileExists { .. })));
    Ok(())
}

#[test]
fn identifiers_and_dates_are_as_they_are_written() -> Outcome {
    let place = Place::new()?;
    let lines = exploration(1)?;
    let hostile = ["", "1", "000000000000000g", "+000000000000001", "00000000000000A1", "\\u001b[31mEVCXR_BEGIN"];
    for id in hostile {
        let changed: String = lines.iter().map(|line| line.replace("0000000000000001", id)).collect();
        let said = place.refused(&[place.file("changed.jsonl", changed)?])?;
        assert!(said.contains("la ligne 1 contient un plan incohérent"), "{id}: {said}");
    }
    let changed = lines.concat().replace("2026-12-01T00", "hier");
    let said = place.refused(&[place.file("changed.jsonl", changed)?])?;
    assert!(said.contains("la ligne 1 contient un plan incohérent"), "{said}");
    Ok(())
}

#[test]
fn the_command_says_what_it_did_and_writes_nothing_over_anything() -> Outcome {
    let place = Place::new()?;
    let lines = exploration(1)?;
    let names = ["a.jsonl", "line\nEVCXR_BEGIN_CONTENT.jsonl", "bidi-\u{202e}.jsonl"];
    for name in names {
        place.file(name, lines.concat())?;
    }
    let run = || {
        let mut command = Command::new(COMMAND);
        command.args(["explore", "merge", "--output", "all.jsonl"]).args(names).arg("cut.jsonl");
        command.current_dir(place.folder.path()).output()
    };
    place.file("cut.jsonl", lines[0].clone() + "{\"kind\"")?;
    let done = run()?;
    let said = "Nouveau fichier « all.jsonl » : explorations : 1 ; mesures : 4 ; doublons retirés : 11 ; \
                dernières lignes coupées, laissées de côté : 1.\n";
    assert_eq!((done.status.code(), String::from_utf8(done.stderr)?.as_str()), (Some(0), said));
    assert!(done.stdout.is_empty());
    assert_eq!(fs::read_to_string(place.at("all.jsonl"))?, lines.concat());

    let again = run()?;
    assert_eq!((again.status.code(), again.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8(again.stderr)?.contains("« all.jsonl » existe déjà"));

    fs::remove_file(place.at("all.jsonl"))?;
    for name in &names[1..] {
        place.file(name, "damaged\n")?;
        let refused = run()?;
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0));
        let said = String::from_utf8(refused.stderr)?;
        let line = said.strip_suffix('\n').ok_or("no line")?;
        assert!(line.contains("la ligne 1 n'est pas une ligne d'exploration"), "{line}");
        assert!(!line.contains(['\n', '\u{202e}']) && !line.contains("EVCXR_"), "{line:?}");
        place.file(name, lines.concat())?;
    }
    assert!(!place.at("all.jsonl").exists());
    Ok(())
}

/// One file: for each of its explorations, which runs it has and in which order, and whether the lines
/// alternate; where the file was cut.
#[derive(Clone, Debug)]
struct Sketch {
    parts: Vec<(u64, Vec<usize>)>,
    alternating: bool,
    cut: bool,
}

impl Sketch {
    fn any() -> impl Strategy<Value = Self> {
        let runs = prop::sample::subsequence((1..=RUNS as usize).collect::<Vec<_>>(), 0..=RUNS as usize);
        let parts = prop::collection::vec((1u64..5, runs.prop_shuffle()), 0..4);
        (parts, any::<bool>(), any::<bool>()).prop_map(|(parts, alternating, cut)| Self { parts, alternating, cut })
    }

    fn lines<'a>(&self, explorations: &'a [Vec<String>]) -> Vec<&'a str> {
        let mut parts: Vec<Vec<&str>> = Vec::new();
        for (id, runs) in &self.parts {
            let lines = &explorations[*id as usize];
            parts.push([0].iter().chain(runs).map(|position| lines[*position].as_str()).collect());
        }
        if !self.alternating {
            return parts.concat();
        }
        let longest = parts.iter().map(Vec::len).max().unwrap_or_default();
        (0..longest).flat_map(|row| parts.iter().filter_map(move |part| part.get(row).copied())).collect()
    }
}

fn failed(error: impl ToString) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Beside an obvious model: a map with every line in the order of the output.
    #[test]
    fn the_order_of_files_and_lines_changes_nothing(
        sketches in prop::collection::vec(Sketch::any(), 1..5), turn in any::<prop::sample::Index>()
    ) {
        let explorations = (0..5).map(exploration).collect::<Outcome<Vec<_>>>().map_err(failed)?;
        let place = Place::new().map_err(failed)?;
        let (mut files, mut expected, mut lines, mut cuts) = (Vec::new(), BTreeMap::new(), 0, 0);
        for (number, sketch) in sketches.iter().enumerate() {
            let inside = sketch.lines(&explorations);
            let tail = if sketch.cut { "{\"kind\":\"explo" } else { "" };
            let file = place.file(format!("{number}.jsonl"), inside.concat() + tail).map_err(failed)?;
            files.push(file);
            cuts += u64::from(sketch.cut);
            lines += inside.len() as u64;
            for (id, runs) in &sketch.parts {
                for position in [0].iter().chain(runs) {
                    // Later pairs of identifiers began earlier.
                    expected.insert((u64::MAX - id / 2, *id, *position), explorations[*id as usize][*position].as_str());
                }
            }
        }
        prop_assume!(!expected.is_empty());
        let (merged, text) = place.merged(&files, "all.jsonl").map_err(failed)?;
        prop_assert_eq!(&text, &expected.values().copied().collect::<String>());
        let plans = expected.keys().filter(|(_, _, position)| *position == 0).count() as u64;
        let kept = expected.len() as u64;
        prop_assert_eq!(counted(&merged), (plans, kept - plans, lines - kept, cuts));

        files.rotate_left(turn.index(sketches.len()));
        let (_, turned) = place.merged(&files, "turned.jsonl").map_err(failed)?;
        prop_assert_eq!(&turned, &text);
        files.push(place.at("all.jsonl"));
        files.reverse();
        let (_, again) = place.merged(&files, "again.jsonl").map_err(failed)?;
        prop_assert_eq!(&again, &text);
    }
}
