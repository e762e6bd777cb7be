//! Charts of an exploration: times and counters against what varies. They are narrow enough for a phone,
//! where their letters can still be read.
//!
//! Every place is computed here, in pixels: values may be of any size, and no axis is divided by trial.

use std::collections::{BTreeMap, BTreeSet};

use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle, TextStyle};

use super::chart::{Area, Drawn, INK, drawing, plain, unit_of};
use super::figures::integer;
use super::view::one_line;
use crate::explore::report::{ExplorationReport, Extremes, Observation, PointReport, SampledTimes};
use crate::explore::{Dimension, Value};
use crate::measure::MeasureConfig;

const WIDTH: i32 = 480;
const PLOT_LEFT: i32 = 84;
const PLOT_RIGHT: i32 = WIDTH - 16;
const PLOT_TOP: i32 = 40;
const PLOT_BOTTOM: i32 = 290;
/// The names of values and of the axis.
const LEGEND_TOP: i32 = PLOT_BOTTOM + 68;
const LEGEND_LINE: i32 = 23;
/// The first and the last value stand off the edges.
const MARGIN: i32 = 26;
/// plotters draws it four fifths as large.
const FONT: (&str, i32) = ("sans-serif", 18);
/// Pixels of a character, a little more than most take.
const CHARACTER: i32 = 8;

/// From here on a scale is logarithmic.
const WIDE_VALUES: f64 = 8.0;
const WIDE_FIGURES: f64 = 20.0;

const MAX_TICKS: usize = 6;

/// Lines of a product; the table has the others.
pub const MAX_LINES: usize = 6;

/// Told apart on white and on black.
const COLOURS: [RGBColor; MAX_LINES] = [
    RGBColor(59, 130, 246),
    RGBColor(234, 118, 24),
    RGBColor(22, 163, 74),
    RGBColor(192, 80, 210),
    RGBColor(13, 148, 160),
    RGBColor(220, 70, 70),
];

/// How much one chart may draw; the page of many explorations has many charts.
#[derive(Clone, Copy)]
pub struct Room {
    pub dots: usize,
    pub points: usize,
}

impl Room {
    /// Shared out among `charts`.
    pub fn among(charts: usize) -> Self {
        let charts = charts.max(1);
        Self { dots: (60_000 / charts).clamp(100, 3_000), points: (20_000 / charts).clamp(40, 300) }
    }
}

/// Points of a series that differ in what varies along the horizontal axis only.
pub struct Line {
    /// The values of the other dimensions; empty where there are none.
    pub name: String,
    /// Positions in the plan.
    pub points: Vec<usize>,
}

/// The time of a pass, every observation a dot; the device's own times where there are any.
/// None where nothing was measured.
pub fn time_chart(exploration: &ExplorationReport, along: Dimension, lines: &[Line], room: Room) -> Option<String> {
    let chosen = Chosen::new(exploration, along, lines, room);
    TimeFigures::of(&chosen).and_then(|figures| chosen.drawn(&figures))
}

/// Peaks of allocated and of reserved, measured and simulated. None where nothing was measured.
pub fn memory_chart(exploration: &ExplorationReport, along: Dimension, lines: &[Line], room: Room) -> Option<String> {
    let chosen = Chosen::new(exploration, along, lines, room);
    MemoryFigures::of(&chosen).and_then(|figures| chosen.drawn(&figures))
}

/// What stands against the vertical axis.
trait Figures {
    fn title(&self) -> &'static str;
    fn scale(&self) -> &Scale;
    /// A tick of the scale, in the unit that suits the second value.
    fn label(&self, tick: f64, like: f64) -> String;
    fn legend(&self) -> Vec<Entry>;
    /// Draws a point of a line.
    fn draw(&self, area: &Area<'_>, line: usize, place: i32, point: &PointReport) -> Drawn;
    /// Each kind of figure that a line joins with those of its neighbours.
    fn joined(&self, point: &PointReport) -> Vec<Option<f64>>;
}

type Pick = fn(&PointReport) -> Option<&SampledTimes>;

const WARM_FORWARD: Pick = |point| point.warm_forward.as_ref();

/// Medians on the device's clock.
const DEVICE: [(Mark, &str, Pick); 2] = [
    (Mark::Diamond, "GPU au repos, médiane", |point| point.device_forward.as_ref()),
    (Mark::Triangle, "GPU, graphe, médiane", |point| point.device_graph_replay.as_ref()),
];

/// More dots than that are drawn smaller and paler, so that their density shows.
const MANY_DOTS: u64 = 300;

struct TimeFigures<'a> {
    chosen: &'a Chosen<'a>,
    scale: Scale,
    total: u64,
    shown: u64,
}

impl<'a> TimeFigures<'a> {
    fn of(chosen: &'a Chosen<'a>) -> Option<Self> {
        let picks = [WARM_FORWARD].into_iter().chain(DEVICE.map(|(_, _, pick)| pick));
        let times = picks.flat_map(|pick| chosen.points().filter_map(move |point| pick(point)));
        let scale = Scale::of(times.flat_map(|times| [times.min_seconds, times.max_seconds]), true, WIDE_FIGURES, UP)?;
        let sum = |count: &dyn Fn(&SampledTimes) -> u64| chosen.points().filter_map(WARM_FORWARD).map(count).sum();
        let total = sum(&|times| times.count);
        let shown = sum(&|times| dots(times, chosen.dots).count() as u64);
        Some(Self { chosen, scale, total, shown })
    }

    fn draw_observations(&self, area: &Area<'_>, colour: RGBColor, place: i32, times: &SampledTimes) -> Drawn {
        let (radius, opacity) = if self.shown > MANY_DOTS { (2, 0.4) } else { (3, 1.0) };
        for observation in dots(times, self.chosen.dots) {
            let place = (place + self.chosen.offset(observation.trial), self.scale.at(observation.seconds));
            area.draw(&Circle::new(place, radius, colour.mix(opacity).filled()))?;
        }
        if self.total != self.shown {
            stamp_bar(area, colour, place, self.scale.at(times.min_seconds), self.scale.at(times.max_seconds))?;
        }
        Ok(())
    }

    /// Of a single line the median stands out from its dots.
    fn median_colour(&self, line: usize) -> RGBColor {
        if self.chosen.lines.len() > 1 { self.chosen.colour(line, 0) } else { INK }
    }
}

impl Figures for TimeFigures<'_> {
    fn title(&self) -> &'static str {
        "Temps d'un passage"
    }

    fn scale(&self) -> &Scale {
        &self.scale
    }

    fn label(&self, seconds: f64, like: f64) -> String {
        let units = [("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)];
        let (unit, size) = units.into_iter().find(|(_, size)| like >= *size * (1.0 - 1e-9)).unwrap_or(units[3]);
        with_unit(seconds / size, unit)
    }

    fn legend(&self) -> Vec<Entry> {
        let colour = self.chosen.legend_colour(0);
        let dots = match self.total == self.shown {
            true if self.chosen.exploration.plan.trials > 1 => "chaque passage, essais côte à côte".to_owned(),
            true => "chaque passage".to_owned(),
            false => format!("{} passages sur {}", integer(self.shown), integer(self.total)),
        };
        let mut legend = vec![(Mark::Dot, colour, dots), (Mark::Dash, INK, "médiane".to_owned())];
        if self.total != self.shown {
            legend.push((Mark::Bar, colour, "du plus court au plus long".to_owned()));
        }
        for (kind, (mark, name, pick)) in (1..).zip(DEVICE) {
            if self.chosen.points().any(|point| pick(point).is_some()) {
                legend.push((mark, self.chosen.legend_colour(kind), name.to_owned()));
            }
        }
        legend
    }

    fn draw(&self, area: &Area<'_>, line: usize, place: i32, point: &PointReport) -> Drawn {
        if let Some(times) = WARM_FORWARD(point) {
            self.draw_observations(area, self.chosen.colour(line, 0), place, times)?;
            stamp(area, Mark::Dash, self.median_colour(line), (place, self.scale.at(times.median_seconds)))?;
        }
        for (kind, (mark, _, pick)) in (1..).zip(DEVICE) {
            if let Some(times) = pick(point) {
                stamp(area, mark, self.chosen.colour(line, kind), (place, self.scale.at(times.median_seconds)))?;
            }
        }
        Ok(())
    }

    fn joined(&self, point: &PointReport) -> Vec<Option<f64>> {
        let picks = [WARM_FORWARD].into_iter().chain(DEVICE.map(|(_, _, pick)| pick));
        picks.map(|pick| pick(point).map(|times| times.median_seconds)).collect()
    }
}

const MEASURED: [(Mark, &str); 2] = [(Mark::Disc, "alloué, pic"), (Mark::Square, "réservé, pic")];
const SIMULATED: [(Mark, &str); 2] = [(Mark::Ring, "alloué, simulé"), (Mark::Frame, "réservé, simulé")];

fn measured(point: &PointReport) -> [Option<Extremes>; 2] {
    [point.peak_allocated_bytes, point.peak_reserved_bytes]
}

fn simulated(point: &PointReport) -> [Option<u64>; 2] {
    let peaks = point.simulated;
    [peaks.map(|peaks| peaks.peak_allocated_bytes), peaks.map(|peaks| peaks.peak_reserved_bytes)]
}

struct MemoryFigures<'a> {
    chosen: &'a Chosen<'a>,
    scale: Scale,
}

impl<'a> MemoryFigures<'a> {
    fn of(chosen: &'a Chosen<'a>) -> Option<Self> {
        let of_point = |point| {
            let measured = measured(point).into_iter().flatten().flat_map(|Extremes { min, max }| [min, max]);
            measured.chain(simulated(point).into_iter().flatten())
        };
        let bytes = chosen.points().flat_map(of_point).map(|bytes| bytes as f64);
        let scale = Scale::of(bytes, true, WIDE_FIGURES, UP)?.in_powers_of_two();
        Some(Self { chosen, scale })
    }
}

impl Figures for MemoryFigures<'_> {
    fn title(&self) -> &'static str {
        "Pics de mémoire"
    }

    fn scale(&self) -> &Scale {
        &self.scale
    }

    fn label(&self, bytes: f64, like: f64) -> String {
        let (unit, size) = unit_of(like as u64);
        with_unit(bytes / size as f64, unit)
    }

    fn legend(&self) -> Vec<Entry> {
        let has_simulation = self.chosen.points().any(|point| point.simulated.is_some());
        let kinds = [MEASURED].into_iter().chain(has_simulation.then_some(SIMULATED));
        let entry =
            |(kind, (mark, name)): (usize, (Mark, &str))| (mark, self.chosen.legend_colour(kind), name.to_owned());
        kinds.flat_map(|kinds| kinds.into_iter().enumerate().map(entry)).collect()
    }

    fn draw(&self, area: &Area<'_>, line: usize, place: i32, point: &PointReport) -> Drawn {
        for kind in [0, 1] {
            let colour = self.chosen.colour(line, kind);
            if let Some(Extremes { min, max }) = measured(point)[kind] {
                stamp_bar(area, colour, place, self.scale.at(min as f64), self.scale.at(max as f64))?;
                stamp(area, MEASURED[kind].0, colour, (place, self.scale.at(max as f64)))?;
            }
            if let Some(bytes) = simulated(point)[kind] {
                stamp(area, SIMULATED[kind].0, colour, (place, self.scale.at(bytes as f64)))?;
            }
        }
        Ok(())
    }

    fn joined(&self, point: &PointReport) -> Vec<Option<f64>> {
        measured(point).map(|extremes| extremes.map(|extremes| extremes.max as f64)).to_vec()
    }
}

/// What a chart draws of a series.
struct Chosen<'a> {
    exploration: &'a ExplorationReport,
    along: Dimension,
    lines: &'a [Line],
    across: Across,
    /// One point in so many is drawn.
    step: usize,
    /// Dots of one point.
    dots: usize,
}

impl<'a> Chosen<'a> {
    fn new(exploration: &'a ExplorationReport, along: Dimension, lines: &'a [Line], room: Room) -> Self {
        let lines = &lines[..lines.len().min(MAX_LINES)];
        let count: usize = lines.iter().map(|line| line.points.len()).sum();
        let step = count.div_ceil(room.points).max(1);
        let dots = (room.dots / count.div_ceil(step).max(1)).max(1);
        let plan = &exploration.plan;
        let values =
            lines.iter().flat_map(|line| line.points.iter().step_by(step)).filter_map(|point| plan.points.get(*point));
        Self { across: Across::of(along, values), exploration, along, lines, step, dots }
    }

    fn points(&self) -> impl Iterator<Item = &PointReport> {
        let points = self.lines.iter().flat_map(|line| line.points.iter().step_by(self.step));
        points.filter_map(|point| self.exploration.points.get(*point))
    }

    /// Of a single line each kind of mark has a colour of its own; of several, each line has one.
    fn colour(&self, line: usize, kind: usize) -> RGBColor {
        match self.lines {
            [_] => COLOURS[kind % MAX_LINES],
            _ => COLOURS[line % MAX_LINES],
        }
    }

    /// Of a kind of mark in the legend: no line's, where there are several.
    fn legend_colour(&self, kind: usize) -> RGBColor {
        if self.lines.len() > 1 { INK } else { self.colour(0, kind) }
    }

    /// The lines by their colours, where there are several; where points are left out, that they are.
    fn legend(&self) -> Vec<Entry> {
        let several = self.lines.iter().enumerate().filter(|_| self.lines.len() > 1);
        let mut legend: Vec<_> =
            several.map(|(number, line)| (Mark::Block, COLOURS[number % MAX_LINES], line.name.clone())).collect();
        if self.step > 1 {
            legend.push((Mark::Nothing, INK, format!("un point sur {}", integer(self.step as u64))));
        }
        legend
    }

    /// Trials of a point stand side by side, as far as there is room.
    fn offset(&self, trial: u64) -> i32 {
        let trials = self.exploration.plan.trials;
        if trials < 2 {
            return 0;
        }
        let place = (trial.saturating_sub(1)) as f64 / (trials - 1) as f64;
        ((2.0 * place - 1.0) * f64::from(self.across.gap() / 3).min(10.0)).round() as i32
    }

    fn drawn(&self, figures: &dyn Figures) -> Option<String> {
        let legend = [self.legend(), figures.legend()].concat();
        let title = format!("{} selon {}{}", figures.title(), self.along.name(), figures.scale().remark());
        let height = LEGEND_TOP + LEGEND_LINE * legend_lines(&legend).len() as i32;
        drawing((WIDTH as u32, height as u32), &title, |area| {
            area.draw(&Text::new(title.clone(), (WIDTH / 2, 18), style(HPos::Center)))?;
            draw_scale(area, figures)?;
            self.across.draw(area, self.along.name())?;
            draw_legend(area, &legend)?;
            self.lines.iter().enumerate().try_for_each(|(number, line)| self.draw_line(area, number, line, figures))
        })
    }

    fn draw_line(&self, area: &Area<'_>, number: usize, line: &Line, figures: &dyn Figures) -> Drawn {
        let placed = |point: &usize| {
            let config = self.exploration.plan.points.get(*point)?;
            Some((self.across.at(self.along.of(config))?, self.exploration.points.get(*point)?))
        };
        let mut points: Vec<(i32, &PointReport)> = line.points.iter().step_by(self.step).filter_map(placed).collect();
        points.sort_by_key(|(place, _)| *place);
        if self.across.is_quantity() {
            self.join(area, number, &points, figures)?;
        }
        points.into_iter().try_for_each(|(place, point)| figures.draw(area, number, place, point))
    }

    /// Joins neighbours; at a point without a figure, such as one that has failed, a line ends.
    fn join(&self, area: &Area<'_>, line: usize, points: &[(i32, &PointReport)], figures: &dyn Figures) -> Drawn {
        let joined: Vec<(i32, Vec<Option<f64>>)> =
            points.iter().map(|(place, point)| (*place, figures.joined(point))).collect();
        let kinds = joined.first().map_or(0, |(_, figures)| figures.len());
        for kind in 0..kinds {
            let place = |(place, heights): &(i32, Vec<Option<f64>>)| Some((*place, figures.scale().at(heights[kind]?)));
            let places: Vec<Option<(i32, i32)>> = joined.iter().map(place).collect();
            let paths = places.chunk_by(|one, next| one.is_some() && next.is_some());
            for path in paths.filter(|path| path.len() > 1) {
                let style = self.colour(line, kind).mix(0.7).stroke_width(if kind == 0 { 2 } else { 1 });
                area.draw(&PathElement::new(path.iter().flatten().copied().collect::<Vec<_>>(), style))?;
            }
        }
        Ok(())
    }
}

/// The dots of a point, evenly chosen among those that were kept.
fn dots(times: &SampledTimes, room: usize) -> impl Iterator<Item = &Observation> {
    let kept = &times.observations;
    let count = kept.len().min(room);
    // From the middle of each part: a fixed step from the first one would always show the same repetition.
    (0..count).filter_map(move |part| kept.get((2 * part + 1) * kept.len() / (2 * count)))
}

/// The horizontal axis: what varies, as a quantity on a scale or as names side by side.
struct Across {
    places: BTreeMap<Value, i32>,
    scale: Option<Scale>,
}

impl Across {
    fn of<'a>(along: Dimension, points: impl Iterator<Item = &'a MeasureConfig>) -> Self {
        let values: Vec<Value> = points.map(|point| along.of(point)).collect();
        let ends = (PLOT_LEFT + MARGIN, PLOT_RIGHT - MARGIN);
        let number = |value: &Value| match (along, value) {
            // A seed is a name that happens to be a number.
            (Dimension::Seed, _) | (_, Value::Dtype(_)) => None,
            (_, Value::Number(number)) => Some(*number as f64),
        };
        let numbers: Option<Vec<f64>> = values.iter().map(number).collect();
        if let Some(scale) = numbers.and_then(|numbers| Scale::of(numbers.into_iter(), false, WIDE_VALUES, ends)) {
            let places = values.iter().filter_map(|value| Some((*value, scale.at(number(value)?)))).collect();
            return Self { places, scale: Some(scale) };
        }
        let mut names: Vec<Value> = Vec::new();
        let mut seen = BTreeSet::new();
        names.extend(values.into_iter().filter(|value| seen.insert(*value)));
        let scale = Scale { low: -0.5, high: names.len() as f64 - 0.5, is_log: false, powers_of_two: false, ends };
        let places = names.into_iter().zip(0..).map(|(value, rank)| (value, scale.at(f64::from(rank)))).collect();
        Self { places, scale: None }
    }

    fn is_quantity(&self) -> bool {
        self.scale.is_some()
    }

    fn at(&self, value: Value) -> Option<i32> {
        self.places.get(&value).copied()
    }

    /// Pixels between the two nearest values.
    fn gap(&self) -> i32 {
        let mut places: Vec<i32> = self.places.values().copied().collect();
        places.sort_unstable();
        places.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(PLOT_RIGHT - PLOT_LEFT)
    }

    fn label(&self, value: &Value) -> String {
        match value {
            Value::Number(number) if self.is_quantity() => integer(*number),
            name => name.to_string(),
        }
    }

    /// Only values that were measured are named: as many as there is room for, the first and the last always.
    fn draw(&self, area: &Area<'_>, name: &str) -> Drawn {
        area.draw(&PathElement::new([(PLOT_LEFT, PLOT_BOTTOM), (PLOT_RIGHT, PLOT_BOTTOM)], INK.stroke_width(1)))?;
        let mut places: Vec<(i32, String)> =
            self.places.iter().map(|(value, place)| (*place, self.label(value))).collect();
        places.sort_unstable();
        let half = |text: &str| text.chars().count() as i32 * CHARACTER / 2 + 2;
        let last = places.last().map(|(place, text)| *place - half(text));
        let mut free = i32::MIN;
        let count = places.len();
        for (number, (place, text)) in places.into_iter().enumerate() {
            let is_last = number + 1 == count;
            let fits = place - half(&text) >= free
                && (is_last || number == 0 || last.is_none_or(|last| place + half(&text) <= last));
            area.draw(&PathElement::new([(place, PLOT_BOTTOM), (place, PLOT_BOTTOM + 4)], INK.stroke_width(1)))?;
            if fits || is_last {
                free = place + half(&text);
                let within = place.clamp(half(&text).min(WIDTH / 2), (WIDTH - half(&text)).max(WIDTH / 2));
                area.draw(&Text::new(text, (within, PLOT_BOTTOM + 18), style(HPos::Center)))?;
            }
        }
        let remark = self.scale.as_ref().map(Scale::remark).unwrap_or_default();
        area.draw(&Text::new(
            format!("{name}{remark}"),
            ((PLOT_LEFT + PLOT_RIGHT) / 2, PLOT_BOTTOM + 42),
            style(HPos::Center),
        ))?;
        Ok(())
    }
}

/// From the bottom of the plot to its top.
const UP: (i32, i32) = (PLOT_BOTTOM, PLOT_TOP);

/// Values to pixels.
#[derive(Clone)]
struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
    powers_of_two: bool,
    ends: (i32, i32),
}

impl Scale {
    /// A scale for `values`, which are not negative; logarithmic where they are all positive and the largest is
    /// `wide` times the smallest. None where there are none.
    fn of(values: impl Iterator<Item = f64>, from_zero: bool, wide: f64, ends: (i32, i32)) -> Option<Self> {
        let (min, max) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| (min.min(value), max.max(value)));
        if !min.is_finite() || !max.is_finite() {
            return None;
        }
        let is_log = min > 0.0 && max / min >= wide;
        let low = if from_zero && !is_log { 0.0 } else { min };
        Some(Self { low, high: max, is_log, powers_of_two: false, ends })
    }

    fn in_powers_of_two(self) -> Self {
        Self { powers_of_two: true, ..self }
    }

    fn at(&self, value: f64) -> i32 {
        let along = |value: f64| if self.is_log { value.ln() } else { value };
        let (low, high) = (along(self.low), along(self.high));
        // All the same: in the middle, or at the foot where that is zero.
        let share = match high - low {
            span if span > 0.0 => ((along(value) - low) / span).clamp(0.0, 1.0),
            _ if self.low == 0.0 => 0.0,
            _ => 0.5,
        };
        let (from, to) = (f64::from(self.ends.0), f64::from(self.ends.1));
        (from + share * (to - from)).round() as i32
    }

    fn remark(&self) -> &'static str {
        if self.is_log { " (échelle log.)" } else { "" }
    }

    /// A few round values between the ends.
    fn ticks(&self) -> Vec<f64> {
        if self.is_log { self.log_ticks() } else { self.linear_ticks() }
    }

    /// Whether `tick` is no farther than the end; beyond the largest float nothing is.
    fn reaches(&self, tick: f64) -> bool {
        tick.is_finite() && tick <= self.high * (1.0 + 1e-9)
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let unit = if self.powers_of_two { unit_of(self.high as u64).1 as f64 } else { 1.0 };
        let rough = self.high / unit / 4.0;
        let power = 10.0_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
        let Some(step) = step.filter(|step| step.is_normal()) else { return vec![self.low] };
        let ticks = (0..=MAX_TICKS).map(|number| number as f64 * step * unit);
        ticks.take_while(|tick| self.reaches(*tick)).collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let base: f64 = if self.powers_of_two { 2.0 } else { 10.0 };
        let within = |tick: &f64| *tick >= self.low * (1.0 - 1e-9) && self.reaches(*tick);
        let (first, last) = (self.low.log(base).floor() as i32, self.high.log(base).ceil() as i32);
        let powers: Vec<i32> = (first..=last).filter(|power| within(&base.powi(*power))).collect();
        if powers.len() > 2 || self.powers_of_two {
            let step = powers.len().div_ceil(MAX_TICKS).max(1);
            return powers.into_iter().step_by(step).map(|power| base.powi(power)).collect();
        }
        let around = (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * base.powi(power)));
        around.filter(within).collect()
    }
}

fn draw_scale(area: &Area<'_>, figures: &dyn Figures) -> Drawn {
    let scale = figures.scale();
    for tick in scale.ticks() {
        let height = scale.at(tick);
        area.draw(&PathElement::new([(PLOT_LEFT, height), (PLOT_RIGHT, height)], INK.mix(0.2).stroke_width(1)))?;
        // On a logarithmic scale each tick has the unit that suits it.
        let text = figures.label(tick, if scale.is_log { tick } else { scale.high });
        area.draw(&Text::new(text, (PLOT_LEFT - 6, height), style(HPos::Right)))?;
    }
    Ok(())
}

fn with_unit(value: f64, unit: &str) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(1e-3..1e6).contains(&value) {
        return format!("{value:.0e} {unit}");
    }
    format!("{} {unit}", plain(value))
}

fn style(side: HPos) -> TextStyle<'static> {
    TextStyle::from(FONT.into_font()).color(&INK).pos(Pos::new(side, VPos::Center))
}

/// A kind of mark; the open ones stand around the filled ones.
#[derive(Clone, Copy, PartialEq)]
enum Mark {
    Dot,
    Dash,
    Bar,
    Diamond,
    Triangle,
    Disc,
    Square,
    Ring,
    Frame,
    Block,
    Nothing,
}

fn stamp(area: &Area<'_>, mark: Mark, colour: RGBColor, (x, y): (i32, i32)) -> Drawn {
    let (full, line) = (colour.filled(), colour.stroke_width(2));
    match mark {
        Mark::Dot => area.draw(&Circle::new((x, y), 3, full))?,
        Mark::Disc => area.draw(&Circle::new((x, y), 4, full))?,
        Mark::Ring => area.draw(&Circle::new((x, y), 8, line))?,
        Mark::Square => area.draw(&square(x, y, 4, full))?,
        Mark::Frame => area.draw(&square(x, y, 7, line))?,
        Mark::Block => area.draw(&square(x, y, 6, full))?,
        Mark::Dash => area.draw(&PathElement::new([(x - 9, y), (x + 9, y)], line))?,
        Mark::Bar => stamp_bar(area, colour, x, y - 6, y + 6)?,
        Mark::Diamond => area.draw(&Polygon::new([(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)], full))?,
        Mark::Triangle => area.draw(&Polygon::new([(x, y - 6), (x + 6, y + 5), (x - 6, y + 5)], full))?,
        Mark::Nothing => {}
    }
    Ok(())
}

fn square(x: i32, y: i32, half: i32, style: ShapeStyle) -> Rectangle<(i32, i32)> {
    Rectangle::new([(x - half, y - half), (x + half, y + half)], style)
}

fn stamp_bar(area: &Area<'_>, colour: RGBColor, x: i32, from: i32, to: i32) -> Drawn {
    if from != to {
        area.draw(&PathElement::new([(x, from), (x, to)], colour.mix(0.6).stroke_width(2)))?;
    }
    Ok(())
}

type Entry = (Mark, RGBColor, String);

/// Two entries share a line where both are short.
fn legend_lines(legend: &[Entry]) -> Vec<Vec<&Entry>> {
    let is_short = |entry: &Entry| entry.2.chars().count() as i32 * CHARACTER < WIDTH / 2 - 40;
    let mut lines: Vec<Vec<&Entry>> = Vec::new();
    for entry in legend {
        match lines.last_mut() {
            Some(line) if line.len() == 1 && is_short(line[0]) && is_short(entry) => line.push(entry),
            _ => lines.push(vec![entry]),
        }
    }
    lines
}

fn draw_legend(area: &Area<'_>, legend: &[Entry]) -> Drawn {
    for (number, line) in legend_lines(legend).into_iter().enumerate() {
        let y = LEGEND_TOP + LEGEND_LINE * number as i32;
        for (column, (mark, colour, name)) in line.into_iter().enumerate() {
            let x = 26 + (WIDTH / 2 - 10) * column as i32;
            stamp(area, *mark, *colour, (x, y))?;
            area.draw(&Text::new(one_line(name), (x + 16, y), style(HPos::Left)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(values: &[f64], from_zero: bool) -> Option<Scale> {
        Scale::of(values.iter().copied(), from_zero, WIDE_FIGURES, UP)
    }

    #[test]
    fn a_scale_is_logarithmic_when_its_values_are_far_apart() {
        let is_log = |values: &[f64]| scale(values, true).map(|scale| scale.is_log);
        assert_eq!(
            [is_log(&[1.0, 19.9]), is_log(&[1.0, 20.0]), is_log(&[0.0, 20.0])].map(Option::unwrap_or_default),
            [false, true, false]
        );
        assert!(scale(&[], true).is_none() && scale(&[f64::INFINITY], true).is_none());
    }

    #[test]
    fn ends_are_at_the_edges_and_equal_values_somewhere_between() {
        for (values, places) in [
            ([10.0, 5.0], [PLOT_TOP, 165]),
            ([1.0, 100.0], [PLOT_BOTTOM, PLOT_TOP]),
            ([0.0, 0.0], [PLOT_BOTTOM, PLOT_BOTTOM]),
            ([7.0, 7.0], [PLOT_TOP, PLOT_TOP]),
            ([f64::MAX, f64::MIN_POSITIVE], [PLOT_TOP, PLOT_BOTTOM]),
        ] {
            let found = scale(&values, true).map(|scale| values.map(|value| scale.at(value)));
            assert_eq!(found, Some(places), "{values:?}");
        }
        assert_eq!(scale(&[7.0], false).map(|scale| scale.at(7.0)), Some(165));
    }

    #[test]
    fn any_scale_has_a_few_ticks_in_order_on_the_plot() {
        let values = [
            0.0,
            f64::MIN_POSITIVE,
            1e-300,
            3e-9,
            6.9e-6,
            4.1e-5,
            0.5,
            1.0,
            3.0,
            1e4,
            u64::MAX as f64,
            1e300,
            f64::MAX,
        ];
        for low in values {
            for high in values.into_iter().filter(|high| *high >= low) {
                for scale in
                    scale(&[low, high], true).into_iter().flat_map(|scale| [scale.clone(), scale.in_powers_of_two()])
                {
                    let ticks = scale.ticks();
                    assert!((1..=8).contains(&ticks.len()), "{low} {high}: {ticks:?}");
                    assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]), "{low} {high}: {ticks:?}");
                    assert!(ticks.iter().all(|tick| (PLOT_TOP..=PLOT_BOTTOM).contains(&scale.at(*tick))));
                }
            }
        }
    }

    #[test]
    fn dots_are_chosen_evenly_and_not_always_from_the_first_repetition() {
        let of = |count: u64| SampledTimes {
            count,
            min_seconds: 0.0,
            median_seconds: 0.0,
            max_seconds: 0.0,
            observations: (0..count).map(|number| Observation { trial: number, seconds: 0.0 }).collect(),
        };
        let chosen = |count, room| dots(&of(count), room).map(|dot| dot.trial).collect::<Vec<_>>();
        assert_eq!(chosen(5, 5), [0, 1, 2, 3, 4]);
        assert_eq!(chosen(5, 9), [0, 1, 2, 3, 4]);
        assert_eq!(chosen(9, 3), [1, 4, 7]);
        assert_eq!((chosen(4, 1), chosen(0, 3)), (vec![2], vec![]));
    }

    #[test]
    fn units_suit_the_figures() {
        let chosen_label = |value: f64, unit| with_unit(value, unit);
        assert_eq!([chosen_label(0.0, "s"), chosen_label(2.5, "ms"), chosen_label(3e7, "s")], ["0", "2,5 ms", "3e7 s"]);
    }
}
