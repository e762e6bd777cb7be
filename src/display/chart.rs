//! Charts of a measurement as SVG. Lines and letters take the page's own text colour, so that a
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
const INK: RGBColor = RGBColor(1, 2, 3);
const FONT: (&str, i32) = ("sans-serif", 13);

/// The six counters in the order of the bars, each with a colour that is told apart on white and on black.
const BARS: [(&str, RGBColor); 6] = [
    ("alloué avant", RGBColor(147, 197, 253)),
    ("alloué à la fin", RGBColor(59, 130, 246)),
    ("alloué, pic", RGBColor(29, 78, 216)),
    ("réservé avant", RGBColor(253, 186, 116)),
    ("réservé à la fin", RGBColor(234, 118, 24)),
    ("réservé, pic", RGBColor(154, 62, 12)),
];

/// More dots are thinned out evenly, and the chart says so.
const MAX_DOTS: usize = 1_000;

/// The axis of times goes a little beyond the longest.
const HEADROOM: f64 = 1.1;

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Counters side by side, one group a phase: baseline, end and peak of allocated, then of reserved.
/// None where there is nothing to draw.
pub fn memory_chart(phases: &[(String, [u64; 6])]) -> Option<String> {
    let largest = phases.iter().flat_map(|(_, counters)| *counters).max().filter(|largest| *largest > 0)?;
    let title = "Mémoire par phase, barres côte à côte : « alloué » est une partie de « réservé »";
    drawing(title, |area| draw_memory(area, title, phases, largest))
}

fn draw_memory(area: &Area<'_>, title: &str, phases: &[(String, [u64; 6])], largest: u64) -> Drawn {
    let (unit, size) = unit_of(largest);
    let top = largest as f64 / size as f64 * 1.05;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 14).into_font().color(&INK))
        .margin(8)
        .margin_right(150)
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
    let beside = TextStyle::from(FONT.into_font()).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    for (position, (name, colour)) in BARS.iter().enumerate() {
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
    drawing(&title, |area| draw_times(area, &title, seconds, step, largest))
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

/// Phase, allocated and reserved bytes after each event, as two lines that move in steps.
/// None where there is nothing to draw.
pub fn timeline_chart(moments: &[(&str, u64, u64)]) -> Option<String> {
    let largest = moments.iter().map(|(_, allocated, reserved)| *allocated.max(reserved)).max();
    let largest = largest.filter(|largest| *largest > 0)?;
    if moments.len() > MAX_DOTS {
        return None;
    }
    let title = "Alloué et réservé après chaque allocation ou libération simulée";
    drawing(title, |area| draw_timeline(area, title, moments, largest))
}

fn draw_timeline(area: &Area<'_>, title: &str, moments: &[(&str, u64, u64)], largest: u64) -> Drawn {
    let (unit, size) = unit_of(largest);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 14).into_font().color(&INK))
        .margin(8)
        .margin_right(100)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..moments.len() as f64, 0.0..largest as f64 / size as f64 * 1.05)?;
    in_ink(chart.configure_mesh().x_labels(0).y_desc(format!("mémoire ({unit})"))).draw()?;
    let beside = TextStyle::from(FONT.into_font()).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    let lines = [("réservé", BARS[4].1), ("alloué", BARS[1].1)];
    for (place, (name, colour)) in lines.into_iter().enumerate() {
        let height = |moment: &(&str, u64, u64)| (if place == 0 { moment.2 } else { moment.1 }) as f64 / size as f64;
        let steps = moments.iter().enumerate();
        let steps = steps.flat_map(|(x, moment)| [(x as f64, height(moment)), (x as f64 + 1.0, height(moment))]);
        chart.draw_series([PathElement::new(steps.collect::<Vec<_>>(), colour.stroke_width(2))])?;
        let (x, y) = (SIZE.0 as i32 - 92, 60 + 22 * place as i32);
        area.draw(&Rectangle::new([(x, y - 6), (x + 12, y + 6)], colour.filled()))?;
        area.draw(&Text::new(name, (x + 18, y), beside.clone()))?;
    }
    // Short phases stand close together: their names take turns on two lines.
    let below = TextStyle::from(FONT.into_font()).color(&INK).pos(Pos::new(HPos::Left, VPos::Top));
    let starts = (0..moments.len()).filter(|place| *place == 0 || moments[*place].0 != moments[*place - 1].0);
    for (turn, place) in starts.enumerate() {
        let (x, y) = chart.backend_coord(&(place as f64, 0.0));
        area.draw(&PathElement::new([(x, y), (x, y + 5 + 16 * (turn % 2) as i32)], INK))?;
        area.draw(&Text::new(one_line(moments[place].0), (x + 2, y + 5 + 16 * (turn % 2) as i32), below.clone()))?;
    }
    Ok(())
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

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The picture that `draw` makes, in the page's colours and described by `title`.
fn drawing(title: &str, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Option<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw(&area).and_then(|()| Ok(area.present()?)).ok()?;
    }
    let opening = format!(
        "<svg role=\"img\" aria-label=\"{}\" style=\"max-width:100%;height:auto;display:block;margin:0.6em 0\" ",
        escaped(title)
    );
    Some(svg.replacen("<svg ", &opening, 1).replace("#010203", "currentColor"))
}

fn unit_of(bytes: u64) -> (&'static str, u64) {
    [("Gio", 1 << 30), ("Mio", 1 << 20), ("Kio", 1 << 10)]
        .into_iter()
        .find(|(_, size)| bytes >= *size)
        .unwrap_or(("octets", 1))
}

/// An axis label: as many decimals as it needs, with a decimal comma.
fn plain(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').replace('.', ",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases() -> Vec<(String, [u64; 6])> {
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
    fn every_time_is_a_dot_until_there_are_too_many() {
        let dots = |count: usize| times_chart(&vec![0.001; count]).map(|svg| svg.matches("<circle").count());
        assert_eq!([dots(0), dots(1), dots(1000)], [None, Some(1), Some(1000)]);
        assert_eq!(dots(200_000), Some(1000));
        assert_eq!(times_chart(&[1.7e305]), None, "its axis would have no end");
        assert!(times_chart(&[1e300]).is_some() && times_chart(&[f64::MIN_POSITIVE]).is_some());
        assert!(times_chart(&vec![0.001; 2001]).is_some_and(|svg| svg.contains("un point sur 3")));
    }

    #[test]
    fn a_timeline_moves_in_steps_and_ends_somewhere() {
        let moments = [("model_load", 512, 2048), ("inputs", 1024, 2048), ("cold_forward", 512, 2048)];
        let svg = timeline_chart(&moments).unwrap_or_default();
        let lines: Vec<&str> =
            svg.lines().filter(|line| line.starts_with("<polyline") && line.contains("stroke-width=\"2\"")).collect();
        assert_eq!(lines.len(), 2, "{svg}");
        let heights = |line: &str| -> Vec<String> {
            let points = line.split("points=\"").nth(1).unwrap_or_default().split('"').next().unwrap_or_default();
            points.split_whitespace().filter_map(|point| Some(point.split_once(',')?.1.to_owned())).collect()
        };
        let [reserved, allocated] = [heights(lines[0]), heights(lines[1])];
        assert_eq!((reserved.len(), allocated.len()), (6, 6));
        assert!(reserved.iter().all(|height| *height == reserved[0]));
        assert!(allocated[0] == allocated[1] && allocated[1] != allocated[2] && allocated[4] == allocated[0]);
        for name in ["model_load", "inputs", "cold_forward"] {
            assert!(svg.contains(name), "{name}");
        }
        assert_eq!(timeline_chart(&[]), None);
        assert_eq!(timeline_chart(&[("inputs", 0, 0)]), None);
        assert!(timeline_chart(&[("x", u64::MAX, u64::MAX)]).is_some());
        assert_eq!(timeline_chart(&vec![("x", 1, 1); 100_000]), None, "too many to be drawn");
    }

    #[test]
    fn a_chart_takes_the_pages_colours_and_runs_nothing() {
        let svg = memory_chart(&[("<script>\u{1b}".to_owned(), [1; 6])]).unwrap_or_default();
        assert!(svg.contains("currentColor") && !svg.contains("#010203") && !svg.contains("<script"), "{svg}");
        assert!(!svg.contains("href") && !svg.contains('\u{1b}'));
        assert_eq!(memory_chart(&[]), None);
    }
}
