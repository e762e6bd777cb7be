//! What a person sees of an exploration's report: in a notebook, as the command's table, as a page.

use std::collections::BTreeMap;

use chrono::DateTime;

use super::Present;
use super::exploration_charts::{Line, MAX_LINES, Room, memory_chart, time_chart};
use super::figures::{counted, integer, microseconds, signed};
use super::grid::{Cell, Column, Grid, numbers, words};
use super::plan_views::with_plan;
use super::view::View;
use super::views::{MAX_ROWS, PART_NOTE, bytes, environment_grid, shape, warning};
use crate::explore::report::{ExplorationReport, Extremes, PointReport, Report, SampledTimes};
use crate::explore::{Dimension, Value};
use crate::measure::MeasureConfig;

/// Explorations on a page, and in a notebook: more would not open on a phone.
const MAX_ON_PAGE: usize = 200;
const MAX_IN_NOTEBOOK: usize = 20;

/// Rows of all tables on a page, and of one that is alone.
const MAX_PAGE_ROWS: usize = 20_000;
const MAX_TABLE_ROWS: usize = 2_000;

impl Present for Report {
    fn view(&self) -> View {
        let limits =
            Limits { explorations: MAX_IN_NOTEBOOK, rows: MAX_ROWS, rest: "le JSON les contient", pictures: true };
        self.parts(&limits).json(self)
    }
}

impl Report {
    /// Tables and notes as plain text, every point and every failure included.
    pub fn table(&self) -> String {
        let all = Limits { explorations: usize::MAX, rows: usize::MAX, rest: "", pictures: false };
        self.parts(&all).text().trim_end().to_owned()
    }

    /// A complete HTML page with tables and charts: it runs nothing and loads nothing.
    pub fn page(&self) -> String {
        let explorations = self.explorations.iter().take(MAX_ON_PAGE);
        let tables: usize = explorations.map(|exploration| exploration.plan.vary.len()).sum();
        let rows = (MAX_PAGE_ROWS / tables.max(1)).clamp(20, MAX_TABLE_ROWS);
        let rest = "la commande « mesure-memoire explore report » les affiche";
        self.parts(&Limits { explorations: MAX_ON_PAGE, rows, rest, pictures: true }).page()
    }

    fn parts(&self, limits: &Limits) -> View {
        let mut view = View::new(self.title()).note(format!("Fichier « {} ».", self.file));
        if self.last_line_cut {
            view = view.note("Sa dernière ligne est coupée, comme la laisse une interruption : elle n'a pas été lue.");
        }
        let shown = &self.explorations[..self.explorations.len().min(limits.explorations)];
        let room = Room::among(2 * shown.iter().map(|exploration| exploration.plan.vary.len()).sum::<usize>());
        for exploration in shown {
            view = with_exploration(view, exploration, limits, room);
        }
        if let more @ 1.. = self.explorations.len() - shown.len() {
            let more = counted(more as u64, "exploration n'est pas montrée", "explorations ne sont pas montrées");
            view = view.note(format!("{more} ici ; {}.", limits.rest));
        }
        view = view.heading(2, "Ce qu'on ne peut pas en conclure");
        self.not_concluded().into_iter().fold(view, View::note)
    }

    fn title(&self) -> String {
        match self.explorations.as_slice() {
            [one] => format!("Exploration mesurée sur {}", device(one)),
            several => format!("{} explorations mesurées, chacune à part", integer(several.len() as u64)),
        }
    }

    /// What readers may be tempted to conclude, and why these measurements do not say it.
    fn not_concluded(&self) -> Vec<String> {
        let any = |holds: fn(&ExplorationReport) -> bool| self.explorations.iter().any(holds);
        let one_trial = any(|exploration| exploration.plan.trials == 1);
        let several_trials = any(|exploration| exploration.plan.trials > 1);
        let cases = [
            (
                true,
                "Un autre GPU, une autre carte du même modèle, un autre pilote, une autre version de PyTorch ou d'autres réglages peuvent donner autre chose : rien n'y a été mesuré.",
            ),
            (
                self.explorations.len() > 1,
                "Une machine n'est pas meilleure qu'une autre parce que ses chiffres le sont ici : chaque exploration a son environnement et son plan, et une seule carte ne représente pas son modèle.",
            ),
            (
                true,
                "Un LLM, un entraînement ou une autre charge ne se déduisent pas de ces chiffres : le réseau mesuré n'a que deux couches linéaires et GELU, sans attention ni cache KV.",
            ),
            (
                true,
                "Entre deux valeurs mesurées, ou au-delà, rien n'est connu : les traits des graphiques joignent des points pour l'œil, et un seuil peut s'y trouver.",
            ),
            (
                several_trials,
                "Un écart plus petit que celui qui sépare les essais d'un même point, ou ses passages, peut ne rien devoir à ce qui varie.",
            ),
            (
                one_trial,
                "Là où un point n'a qu'un essai, l'écart d'un essai à l'autre n'est pas connu : un écart entre deux points peut en venir.",
            ),
            (
                any(|exploration| exploration.plan.product && exploration.plan.vary.len() > 1),
                "Entre deux points qui diffèrent par plusieurs dimensions, rien ne dit laquelle fait l'écart ; seuls se comparent ceux qui ne diffèrent que par une.",
            ),
            (
                any(|exploration| !exploration.plan.product && exploration.plan.vary.len() > 1),
                "L'effet de deux dimensions à la fois n'est pas mesuré : chacune a varié seule autour de la base, et deux effets ne s'ajoutent pas forcément.",
            ),
            (
                true,
                "Le temps d'un passage n'est pas celui du travail du GPU : à l'horloge de la machine, il comprend le lancement et l'attente.",
            ),
            (
                any(|exploration| exploration.plan.device_passes.is_some()),
                "Les temps à l'horloge du GPU viennent d'autres passages, faits après : ils ne se soustraient pas du temps d'un passage.",
            ),
            (
                true,
                "Ces pics ne sont pas toute la mémoire prise sur le GPU : ce sont les compteurs de l'allocateur de PyTorch, dans un seul processus, sans le contexte CUDA ni les autres processus.",
            ),
            (
                any(|exploration| exploration.points.iter().any(|point| point.simulated.is_some())),
                "« Identique » vaut pour les pics de ces points ; ailleurs, la simulation peut se tromper.",
            ),
            (
                any(|exploration| exploration.failed_runs > 0),
                "Un point en échec n'échouerait pas forcément une autre fois : la raison est celle de cet essai, à ce moment.",
            ),
            (
                any(|exploration| !exploration.is_finished()),
                "Les points d'une exploration inachevée n'ont pas tous leurs essais : ceux qui manquent auraient pu changer les médianes.",
            ),
        ];
        cases.into_iter().filter(|(applies, _)| *applies).map(|(_, words)| words.to_owned()).collect()
    }
}

/// How much is shown.
struct Limits {
    explorations: usize,
    /// Rows of a table.
    rows: usize,
    /// Where the other rows are.
    rest: &'static str,
    pictures: bool,
}

impl Limits {
    fn cut(&self, view: View, rows: usize) -> View {
        match rows.saturating_sub(self.rows) {
            0 => view,
            more => {
                view.note(format!("{} autres lignes ne sont pas montrées ici ; {}.", integer(more as u64), self.rest))
            }
        }
    }
}

fn device(exploration: &ExplorationReport) -> &str {
    exploration.environment.selected_device_name.as_deref().unwrap_or(&exploration.plan.base.device)
}

fn with_exploration(view: View, exploration: &ExplorationReport, limits: &Limits, room: Room) -> View {
    let ExplorationReport { exploration_id, started_at_utc, plan, environment, .. } = exploration;
    let view = view
        .heading(2, format!("{}, exploration {exploration_id}", device(exploration)))
        .note(format!("Commencée le {}. Base : {}.", date(started_at_utc), shape(&plan.base)))
        .note(progress(exploration));
    let view = warning(view, environment);
    let series = plan.series();
    let view = if plan.product {
        let dimensions: Vec<Dimension> = plan.vary.iter().map(|variation| variation.dimension).collect();
        series.iter().fold(view, |view, points| with_series(view, exploration, &dimensions, points, limits, room))
    } else {
        plan.vary.iter().zip(&series).fold(view, |view, (variation, points)| {
            with_series(view, exploration, &[variation.dimension], points, limits, room)
        })
    };
    let view = view.note(TABLE_NOTE).note(PART_NOTE);
    let view = if has_device_time(exploration) { view.note(DEVICE_NOTE) } else { view };
    let view = with_simulation_notes(view, exploration);
    let view = with_failures(view, exploration, limits);
    let view = with_plan(view.heading(3, "Plan"), plan);
    let view = view.heading(3, "Environnement").grid(environment_grid(environment));
    view.note(environment.driver_note.as_str())
}

const TABLE_NOTE: &str = "Temps : la médiane, puis le plus court et le plus long, de l'opération et de sa synchronisation, à l'horloge de la machine. \
     Pics : le plus grand de toutes les phases, puis, quand les essais diffèrent, le plus petit et le plus grand des essais. \
     « Identique » : les deux pics simulés sont ceux de chaque essai, à l'octet près ; sinon, le plus grand écart des essais, mesuré moins simulé.";

const DEVICE_NOTE: &str = "« GPU au repos », « GPU, graphe » : à l'horloge du GPU, sur d'autres passages ; la médiane des médianes des essais, puis la plus petite et la plus grande. \
     Au repos, un passage à la fois, y compris les instants où le GPU attend la machine ; en graphe, le plancher, sans ces attentes.";

fn has_device_time(exploration: &ExplorationReport) -> bool {
    exploration.points.iter().any(|point| point.device_forward.is_some())
}

/// To the second; as it is where it is no date.
fn date(text: &str) -> String {
    let date = DateTime::parse_from_rfc3339(text);
    date.map_or_else(|_| text.to_owned(), |date| date.to_utc().format("%Y-%m-%d à %H:%M:%S UTC").to_string())
}

/// How much of the plan is there.
fn progress(exploration: &ExplorationReport) -> String {
    let planned = exploration.plan.runs.len() as u64;
    let mut text = format!(
        "{} : {}, {}.",
        counted(planned, "mesure prévue", "mesures prévues"),
        counted(exploration.measured_runs, "faite", "faites"),
        counted(exploration.failed_runs, "en échec", "en échec")
    );
    if !exploration.is_finished() {
        let missing = counted(exploration.missing_runs, "mesure manque", "mesures manquent");
        text += &format!(
            " Exploration inachevée : {missing} ; la même commande avec --resume, ou la même cellule, la continue sur la machine où elle a commencé."
        );
    }
    text
}

fn with_series(
    view: View,
    exploration: &ExplorationReport,
    dimensions: &[Dimension],
    points: &[usize],
    limits: &Limits,
    room: Room,
) -> View {
    let Some((along, others)) = dimensions.split_first() else { return view };
    let names: Vec<&str> = dimensions.iter().map(|dimension| dimension.name()).collect();
    let mut view = view.heading(3, format!("Ce qui varie : {}", names.join(", ")));
    if limits.pictures {
        let lines = lines(exploration, others, points);
        let times = time_chart(exploration, *along, &lines, room);
        let memory = memory_chart(exploration, *along, &lines, room);
        view = [times, memory].into_iter().flatten().fold(view, View::picture);
        if lines.len() > MAX_LINES {
            view = view.note(format!(
                "Les graphiques montrent {MAX_LINES} combinaisons sur {} ; le tableau les a toutes.",
                integer(lines.len() as u64)
            ));
        }
    }
    let grid = series_grid(exploration, dimensions, &points[..points.len().min(limits.rows)]);
    let kept = |times: &SampledTimes| times.observations.len() as u64 != times.count;
    let reports = points.iter().filter_map(|point| exploration.points.get(*point));
    let thinned = reports.filter_map(|point| point.warm_forward.as_ref()).any(kept);
    let view = limits.cut(view.grid(grid), points.len());
    if thinned {
        return view.note("≈ : trop de passages pour les garder tous ; la médiane est celle d'un passage sur 2, 4, 8 ou plus, régulièrement choisis, le plus court et le plus long restant ceux de tous.");
    }
    view
}

/// Points that differ in the first dimension only, one line for each combination of the others.
fn lines(exploration: &ExplorationReport, others: &[Dimension], points: &[usize]) -> Vec<Line> {
    let mut places: BTreeMap<Vec<Value>, usize> = BTreeMap::new();
    let mut lines: Vec<Line> = Vec::new();
    for point in points {
        let Some(config) = exploration.plan.points.get(*point) else { continue };
        let key: Vec<Value> = others.iter().map(|dimension| dimension.of(config)).collect();
        let place = *places.entry(key).or_insert(lines.len());
        if place == lines.len() {
            lines.push(Line { name: combination(others, config), points: Vec::new() });
        }
        lines[place].points.push(*point);
    }
    lines
}

fn combination(dimensions: &[Dimension], config: &MeasureConfig) -> String {
    let parts: Vec<String> =
        dimensions.iter().map(|dimension| format!("{} {}", dimension.name(), dimension.of(config))).collect();
    parts.join(", ")
}

/// A column's title, and what its cells hold for a point.
type Figure = (&'static str, fn(&PointReport) -> Cell);

const FIGURES: [Figure; 7] = [
    ("Passages", |point| point.warm_forward.as_ref().map_or("0".into(), |times| integer(times.count).into())),
    ("Un passage à chaud (µs)", |point| time(point.warm_forward.as_ref())),
    ("GPU au repos (µs)", |point| time(point.device_forward.as_ref())),
    ("GPU, graphe (µs)", |point| time(point.device_graph_replay.as_ref())),
    ("Alloué, pic (octets)", |point| peak(point.peak_allocated_bytes)),
    ("Réservé, pic (octets)", |point| peak(point.peak_reserved_bytes)),
    ("Simulé", simulated),
];

fn series_grid(exploration: &ExplorationReport, dimensions: &[Dimension], points: &[usize]) -> Grid {
    let has_device = has_device_time(exploration);
    let figures = || FIGURES.iter().filter(|(title, _)| has_device || !title.starts_with("GPU"));
    let varied = dimensions.iter().map(|dimension| match dimension {
        Dimension::Dtype => words(dimension.name()),
        _ => numbers(dimension.name()),
    });
    let titles = figures().map(|(title, _)| numbers(title));
    let columns: Vec<Column> = varied.chain([numbers("Essais")]).chain(titles).collect();
    let mut grid = Grid::new(&columns);
    for place in points {
        let (Some(config), Some(point)) = (exploration.plan.points.get(*place), exploration.points.get(*place)) else {
            continue;
        };
        let varied = dimensions.iter().map(|dimension| match dimension.of(config) {
            // A seed is copied, not counted.
            Value::Number(number) if *dimension != Dimension::Seed => integer(number).into(),
            value => value.to_string().into(),
        });
        let trials = format!("{}/{}", integer(point.measured_runs), integer(exploration.plan.trials));
        let trials = match point.failed_runs {
            0 => trials.into(),
            failed => Cell::with(trials, counted(failed, "échec", "échecs")),
        };
        grid.push_cells(varied.chain([trials]).chain(figures().map(|(_, cell)| cell(point))).collect());
    }
    grid
}

/// The median, and the extremes where there are several.
fn time(times: Option<&SampledTimes>) -> Cell {
    let Some(times) = times else { return "—".into() };
    let about = if times.observations.len() as u64 == times.count { "" } else { "≈ " };
    let median = format!("{about}{}", microseconds(times.median_seconds));
    match times.count {
        1 => median.into(),
        _ => Cell::with(median, format!("{} à {}", microseconds(times.min_seconds), microseconds(times.max_seconds))),
    }
}

fn peak(extremes: Option<Extremes>) -> Cell {
    match extremes {
        None => "—".into(),
        Some(Extremes { min, max }) if min == max => bytes(max),
        Some(Extremes { min, max }) => Cell::with(integer(max), format!("{} à {}", integer(min), integer(max))),
    }
}

fn simulated(point: &PointReport) -> Cell {
    let (Some(allocated), Some(reserved), Some(peaks)) =
        (point.peak_allocated_bytes, point.peak_reserved_bytes, point.simulated)
    else {
        return "—".into();
    };
    let pairs = [(allocated, peaks.peak_allocated_bytes), (reserved, peaks.peak_reserved_bytes)];
    if pairs.iter().all(|(Extremes { min, max }, simulated)| min == simulated && max == simulated) {
        return "identique".into();
    }
    let farthest = |(Extremes { min, max }, simulated): (Extremes, u64)| {
        let [low, high] = [min, max].map(|bytes| i128::from(bytes) - i128::from(simulated));
        signed(if low.abs() > high.abs() { low } else { high })
    };
    let [allocated, reserved] = pairs.map(farthest);
    Cell::with(format!("alloué {allocated}"), format!("réservé {reserved}"))
}

/// Each reason for which something was not simulated, once.
fn with_simulation_notes(view: View, exploration: &ExplorationReport) -> View {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for reason in exploration.points.iter().filter_map(|point| point.simulation_note.as_deref()) {
        *counts.entry(reason).or_default() += 1;
    }
    let shown = counts.len().min(MAX_ROWS);
    let view = counts.iter().take(shown).fold(view, |view, (reason, count)| {
        view.note(format!("{} sans simulation. {reason}", counted(*count, "point", "points")))
    });
    match counts.len() - shown {
        0 => view,
        more => view.note(format!("D'autres raisons de ne pas simuler : {}.", integer(more as u64))),
    }
}

fn with_failures(view: View, exploration: &ExplorationReport, limits: &Limits) -> View {
    if exploration.failures.is_empty() {
        return view;
    }
    let mut grid = Grid::new(&[words("Point"), numbers("Essai"), words("Raison")]);
    let varied: Vec<Dimension> = exploration.plan.vary.iter().map(|variation| variation.dimension).collect();
    for failure in exploration.failures.iter().take(limits.rows) {
        let config = exploration.plan.points.get(failure.point);
        let point = config.map(|config| combination(&varied, config)).unwrap_or_default();
        grid.push([point.into(), integer(failure.trial).into(), failure.reason.as_str().into()]);
    }
    limits.cut(view.heading(3, "Échecs").grid(grid), exploration.failures.len())
}
