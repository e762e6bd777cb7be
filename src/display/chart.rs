//! Charts of a measurement or a simulation as SVG. Lines and letters take the page's own text colour, so that a
//! chart reads in a light and in a dark theme.

use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figures::integer;
use super::view::{escaped, one_line};

const SIZE: (u32, u32) = (780, 330);
/// Stands for the page's text colour while plotters draws; nothing else has this colour.
pub(super) const INK: RGBColor = RGBColor(1, 2, 3);
pub(super) const FONT: (&str, i32) = ("sans-serif", 13);

/// The six counters in the order of the bars, each with a colour that is told apart on white and on black.
const BARS: [(&str, RGBColor); 6] = [
    ("alloué avant", RGBColor(147, 197, 253)),
    ("alloué à la fin", RGBColor(59, 130, 246)),
    ("alloué, pic", RGBColor(29, 78, 216)),
    ("réservé avant", RGBColor(253, 186, 116)),
    ("réservé à la fin", RGBColor(234, 118, 24)),
    ("réservé, pic", RGBColor(154, 62, 12)),
];

/// Width of the margin that holds the names of the colours.
const LEGEND: u32 = 150;

/// More dots are thinned out evenly, and the chart says so.
const MAX_DOTS: usize = 1_000;

/// The axis of times goes a little beyond the longest.
const HEADROOM: f64 = 1.1;

pub(super) type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A phase's name and its counters, in the order of [`BARS`].
pub type Bars = (String, [u64; 6]);

/// Counters side by side, one group a phase: baseline, end and peak of allocated, then of reserved.
/// None where there is nothing to draw.
pub fn memory_chart(phases: &[Bars]) -> Option<String> {
    let largest = phases.iter().flat_map(|(_, counters)| *counters).max().filter(|largest| *largest > 0)?;
    let title = "Mémoire par phase, barres côte à côte : « alloué » est une partie de « réservé »";
    drawing(SIZE, title, |area| draw_memory(area, title, phases, largest))
}

fn draw_memory(area: &Area<'_>, title: &str, phases: &[Bars], largest: u64) -> Drawn {
    let (unit, size) = unit_of(largest);
    let top = largest as f64 / size as f64 * 1.05;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 14).into_font().color(&INK))
        .margin(8)
        .margin_right(LEGEND)
        .x_label_area_size(24)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..phases.len() as f64, 0.0..top)?;
    in_ink(chart.configure_mesh().x_labels(0).y_desc(format!("mémoire ({unit})"))).draw()?;
    for (group, (_, counters)) in phases.iter().enumerate() {
        chart.draw_series(counters.iter().zip(BARS).enumerate().map(|(bar, (bytes, (_, colour)))| {
            let left = group as f64 + 0.08 + bar as f64 * 0.14;
            Rectangle::new([(left, 0.0), (left + 0.12, *bytes as f64 / size as f64)], colour.filled())
        }))?;
    }
    let below = TextStyle::from(FONT.into_font()).color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
    for (group, (name, _)) in phases.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(group as f64 + 0.5, 0.0));
        area.draw(&Text::new(one_line(name), (x, y + 7), below.clone()))?;
    }
    legend(area, &BARS)
}

/// Names beside their colours, in the margin on the right.
fn legend(area: &Area<'_>, entries: &[(&str, RGBColor)]) -> Drawn {
    let beside = TextStyle::from(FONT.into_font()).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    for (position, (name, colour)) in entries.iter().enumerate() {
        let (x, y) = (SIZE.0 as i32 - 140, 60 + 22 * position as i32);
        area.draw(&Rectangle::new([(x, y - 6), (x + 12, y + 6)], colour.filled()))?;
        area.draw(&Text::new(*name, (x + 18, y), beside.clone()))?;
    }
    Ok(())
}

/// The time of each repetition as a dot, from zero on, in milliseconds.
/// None where there is nothing to draw.
pub fn times_chart(seconds: &[f64]) -> Option<String> {
    let largest = seconds.iter().copied().fold(0.0, f64::max) * 1000.0;
    // An axis without end cannot be divided: plotters would try for ever.
    if largest <= 0.0 || !(largest * HEADROOM).is_finite() {
        return None;
    }
    let step = seconds.len().div_ceil(MAX_DOTS);
    let thinned = match step {
        1 => String::new(),
        _ => format!(" (un point sur {})", integer(step as u64)),
    };
    let title = format!("Temps de chaque passage à chaud{thinned}");
    drawing(SIZE, &title, |area| draw_times(area, &title, seconds, step, largest))
}

fn draw_times(area: &Area<'_>, title: &str, seconds: &[f64], step: usize, largest: f64) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 14).into_font().color(&INK))
        .margin(8)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(0.5..seconds.len() as f64 + 0.5, 0.0..largest * HEADROOM)?;
    in_ink(
        chart
            .configure_mesh()
            .x_desc("numéro du passage")
            .y_desc("temps (ms)")
            .x_labels(seconds.len().clamp(3, 10))
            .x_label_formatter(&|value| if value.fract() == 0.0 { integer(value.abs() as u64) } else { String::new() }),
    )
    .draw()?;
    let dots = seconds.iter().enumerate().step_by(step);
    chart.draw_series(
        dots.map(|(index, time)| Circle::new((index as f64 + 1.0, time * 1000.0), 4, BARS[1].1.filled())),
    )?;
    Ok(())
}

/// Later events are left out, and the chart says so: thinning them could hide a peak.
const MAX_EVENTS: usize = 1_000;

/// More phases than that cannot be named below the chart.
const MAX_NAMES: usize = 12;

/// Allocated and reserved after each event as step lines, with a mark where a phase begins: its name, then
/// the two counters of each event. None where there is nothing to draw.
pub fn timeline_chart(events: &[(&str, [u64; 2])]) -> Option<String> {
    let shown = &events[..events.len().min(MAX_EVENTS)];
    let largest = shown.iter().flat_map(|(_, counters)| *counters).max().filter(|largest| *largest > 0)?;
    let cut = match events.len() - shown.len() {
        0 => String::new(),
        _ => format!(" (les {} premières sur {})", integer(MAX_EVENTS as u64), integer(events.len() as u64)),
    };
    let title = format!("Mémoire simulée après chaque allocation ou libération{cut}");
    drawing(SIZE, &title, |area| draw_timeline(area, &title, shown, largest))
}

fn draw_timeline(area: &Area<'_>, title: &str, events: &[(&str, [u64; 2])], largest: u64) -> Drawn {
    let (unit, size) = unit_of(largest);
    let in_unit = |bytes: u64| bytes as f64 / size as f64;
    let top = in_unit(largest) * HEADROOM;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 14).into_font().color(&INK))
        .margin(8)
        .margin_right(LEGEND)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..events.len() as f64, 0.0..top)?;
    in_ink(chart.configure_mesh().x_labels(0).y_desc(format!("mémoire ({unit})"))).draw()?;
    let lines = [("alloué", BARS[1].1), ("réservé", BARS[4].1)];
    for (counter, (_, colour)) in lines.iter().enumerate() {
        let steps = events.iter().enumerate().flat_map(|(event, (_, counters))| {
            let height = in_unit(counters[counter]);
            [(event as f64, height), (event as f64 + 1.0, height)]
        });
        chart.draw_series([PathElement::new(steps.collect::<Vec<_>>(), colour.stroke_width(2))])?;
    }
    let below = TextStyle::from(FONT.into_font()).color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
    for (position, (name, start, end)) in spans(events).into_iter().take(MAX_NAMES).enumerate() {
        chart.draw_series([PathElement::new([(start, 0.0), (start, top)], INK.mix(0.35))])?;
        let (x, y) = chart.backend_coord(&(f64::midpoint(start, end), 0.0));
        // Neighbours stand on two lines: short phases have long names.
        let line = 18 * (position as i32 % 2);
        area.draw(&Text::new(one_line(name), (x, y + 7 + line), below.clone()))?;
    }
    legend(area, &lines)
}

/// Where each phase starts and ends, in events.
fn spans<'a>(events: &[(&'a str, [u64; 2])]) -> Vec<(&'a str, f64, f64)> {
    let mut start = 0;
    let phases = events.chunk_by(|(one, _), (next, _)| one == next);
    let places = phases.map(|phase| {
        let end = start + phase.len();
        let span = (phase[0].0, start as f64, end as f64);
        start = end;
        span
    });
    places.collect()
}

/// What the charts have in common: horizontal lines only, and all of it in the page's text colour.
fn in_ink<'m, 'a, 'b, DB: DrawingBackend>(mesh: &'m mut Mesh<'a, 'b, DB>) -> &'m mut Mesh<'a, 'b, DB> {
    mesh.disable_x_mesh()
        .y_label_formatter(&|value| plain(*value))
        .label_style(FONT.into_font().color(&INK))
        .axis_style(INK)
        .bold_line_style(INK.mix(0.2))
        .light_line_style(INK.mix(0.0))
}

type Mesh<'a, 'b, DB> = MeshStyle<'a, 'b, RangedCoordf64, RangedCoordf64, DB>;

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The picture that `draw` makes, in the page's colours and described by `title`.
pub(super) fn drawing(size: (u32, u32), title: &str, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Option<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area).and_then(|()| Ok(area.present()?)).ok()?;
    }
    let opening = format!(
        "<svg role=\"img\" aria-label=\"{}\" style=\"max-width:100%;height:auto;display:block;margin:0.6em 0\" ",
        escaped(title)
    );
    Some(svg.replacen("<svg ", &opening, 1).replace("#010203", "currentColor"))
}

pub(super) fn unit_of(bytes: u64) -> (&'static str, u64) {
    [("Eio", 1 << 60), ("Pio", 1 << 50), ("Tio", 1 << 40), ("Gio", 1 << 30), ("Mio", 1 << 20), ("Kio", 1 << 10)]
        .into_iter()
        .find(|(_, size)| bytes >= *size)
        .unwrap_or(("octets", 1))
}

/// An axis label: as many decimals as it needs, with a decimal comma.
pub(super) fn plain(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').replace('.', ",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases() -> Vec<Bars> {
        vec![
            ("model_load".to_owned(), [0, 33_792, 33_792, 0, 2_097_152, 2_097_152]),
            ("cold_forward".to_owned(), [37_888, 34_644_992, 34_649_088, 2_097_152, 35_651_584, 35_651_584]),
        ]
    }

    #[test]
    fn bars_stand_side_by_side_and_as_high_as_their_counters() {
        let svg = memory_chart(&phases()).unwrap_or_default();
        let bars: Vec<(f64, f64, f64)> = svg.lines().filter(|line| is_bar(line)).filter_map(position).collect();
        assert_eq!(bars.len(), 2 * 6 + 6, "{svg}");
        let [allocated_peak, reserved_peak] = [bars[8], bars[11]];
        assert!((allocated_peak.2 / reserved_peak.2 - 34_649_088.0 / 35_651_584.0).abs() < 0.01);
        for pair in bars[..12].windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "bars overlap: {pair:?}");
        }
    }

    fn is_bar(line: &str) -> bool {
        line.starts_with("<rect")
            && BARS.iter().any(|(_, RGBColor(r, g, b))| line.contains(&format!("#{r:02X}{g:02X}{b:02X}")))
    }

    /// Left edge, width and height.
    fn position(line: &str) -> Option<(f64, f64, f64)> {
        let number = |name: &str| line.split(&format!(" {name}=\"")).nth(1)?.split('"').next()?.parse().ok();
        Some((number("x")?, number("width")?, number("height")?))
    }

    #[test]
    fn steps_go_as_high_as_their_counters_and_phases_are_marked() {
        let events = [("a", [0, 100]), ("a", [50, 100]), ("b", [100, 100]), ("b", [0, 100])];
        let svg = timeline_chart(&events).unwrap_or_default();
        let lines: Vec<Vec<(f64, f64)>> =
            svg.lines().filter(|line| line.starts_with("<polyline")).map(points).collect();
        let [allocated, reserved] = [&lines[lines.len() - 4], &lines[lines.len() - 3]];
        assert_eq!((allocated.len(), reserved.len()), (8, 8), "{svg}");
        // The last two lines are the marks of both phases; the second one is where its first step begins.
        assert_eq!((lines[lines.len() - 1][0].0, lines[lines.len() - 2][0].0), (allocated[4].0, allocated[0].0));
        let (bottom, top, half) = (allocated[0].1, reserved[0].1, allocated[2].1);
        assert!(bottom > half && half > top && ((bottom - half) - (half - top)).abs() <= 1.0, "{svg}");
        assert!(allocated.chunks(2).all(|step| step[0].1 == step[1].1) && allocated[4].1 == top);
    }

    fn points(line: &str) -> Vec<(f64, f64)> {
        let points = line.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        let pair = |point: &str| point.split_once(',').and_then(|(x, y)| Some((x.parse().ok()?, y.parse().ok()?)));
        points.split_whitespace().filter_map(pair).collect()
    }

    #[test]
    fn a_timeline_may_be_short_long_or_absurd() {
        assert_eq!([timeline_chart(&[]), timeline_chart(&[("a", [0, 0])])], [None, None]);
        assert!(timeline_chart(&[("a", [1, 1])]).is_some());
        let absurd = timeline_chart(&[("a", [u64::MAX, 1]), ("b", [1, u64::MAX])]).unwrap_or_default();
        assert!(absurd.contains("mémoire (Eio)") && !absurd.contains("mémoire (Gio)"), "{absurd}");
        let names: Vec<String> = (0..200_000).map(|event| format!("phase {event}")).collect();
        let events: Vec<(&str, [u64; 2])> = names.iter().map(|name| (name.as_str(), [1, 2])).collect();
        let long = timeline_chart(&events).unwrap_or_default();
        assert!(
            long.contains("les 1\u{202f}000 premières sur 200\u{202f}000") && long.len() < 100_000,
            "{}",
            long.len()
        );
        assert_eq!((long.contains("phase 11"), long.contains("phase 12")), (true, false));
    }

    #[test]
    fn every_time_is_a_dot_until_there_are_too_many() {
        let dots = |count: usize| times_chart(&vec![0.001; count]).map(|svg| svg.matches("<circle").count());
        assert_eq!([dots(0), dots(1), dots(1000)], [None, Some(1), Some(1000)]);
        assert_eq!(dots(200_000), Some(1000));
        assert_eq!(times_chart(&[1.7e305]), None, "its axis would have no end");
        assert!(times_chart(&[1e300]).is_some() && times_chart(&[f64::MIN_POSITIVE]).is_some());
        assert!(times_chart(&vec![0.001; 2001]).is_some_and(|svg| svg.contains("un point sur 3")));
    }

    #[test]
    fn a_chart_takes_the_pages_colours_and_runs_nothing() {
        let svg = memory_chart(&[("<script>\u{1b}".to_owned(), [1; 6])]).unwrap_or_default();
        assert!(svg.contains("currentColor") && !svg.contains("#010203") && !svg.contains("<script"), "{svg}");
        assert!(!svg.contains("href") && !svg.contains('\u{1b}'));
        assert_eq!(memory_chart(&[]), None);
    }
}
