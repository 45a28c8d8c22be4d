//! Plots: bars beside each other, and lines over time.

use std::cell::Cell;

use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::Serialize;

use super::page::data;

/// What a mark stands for: its colour, on light and dark ground.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shade {
    /// What is compared with: the reference, the recording.
    Given,
    /// What the model says.
    Model,
    /// A second thing that is compared with, in the same plot.
    OtherGiven,
    /// What the model says of that.
    OtherModel,
    /// A watermark.
    Low,
    /// Another one.
    High,
    /// One of many alike, by its place among them: 0 the first, 255 the last.
    Graded(u8),
    /// One of some bounds, by its place among them.
    Bound(u8),
}

/// Colours that grades lie between.
const GRADES: [(u8, u8, u8); 5] = [
    (0x2f, 0x88, 0xd8),
    (0x1f, 0xa0, 0x98),
    (0x5a, 0xa0, 0x2c),
    (0xc7, 0x93, 0x17),
    (0xd0, 0x4f, 0x3b),
];

fn graded(place: u8) -> (u8, u8, u8) {
    let steps = GRADES.len() as u32 - 1;
    let scaled = u32::from(place) * steps;
    let (at, rest) = ((scaled / 255).min(steps - 1), scaled - (scaled / 255).min(steps - 1) * 255);
    let mix =
        |from: u8, to: u8| ((u32::from(from) * (255 - rest) + u32::from(to) * rest) / 255) as u8;
    let ((r, g, b), (to_r, to_g, to_b)) = (GRADES[at as usize], GRADES[at as usize + 1]);
    (mix(r, to_r), mix(g, to_g), mix(b, to_b))
}

impl Shade {
    fn rgb(self) -> (u8, u8, u8) {
        match self {
            Self::Given => (0x84, 0x8f, 0x9b),
            Self::Model => (0x2f, 0x88, 0xd8),
            Self::OtherGiven => (0xd9, 0xae, 0x7c),
            Self::OtherModel => (0xcc, 0x6a, 0x16),
            Self::Low => (0xd6, 0x5a, 0x4a),
            Self::High => (0x3c, 0xa0, 0x5f),
            Self::Graded(place) => graded(place),
            Self::Bound(place) => {
                let grey = 0x50 + (255 - place) / 2;
                (grey, grey, grey)
            }
        }
    }

    fn color(self) -> RGBColor {
        let (red, green, blue) = self.rgb();
        RGBColor(red, green, blue)
    }

    /// Pixels: what the model says lies upon what it is compared with, and must not hide it.
    fn line_width(self) -> u32 {
        match self {
            Self::Given | Self::OtherGiven => 5,
            Self::Model | Self::OtherModel => 2,
            Self::Low | Self::High | Self::Graded(_) | Self::Bound(_) => 1,
        }
    }

    /// As style sheets write it.
    fn hex(self) -> String {
        let (red, green, blue) = self.rgb();
        format!("#{red:02x}{green:02x}{blue:02x}")
    }
}

/// Two bars a row: what is given, and what the model says.
pub(super) struct Bars<'a> {
    pub title: &'a str,
    /// What the two are called.
    pub names: [&'a str; 2],
    pub rows: Vec<Pair<'a>>,
}

/// A row of [`Bars`].
pub(super) struct Pair<'a> {
    pub name: &'a str,
    pub given: Option<f64>,
    pub model: Option<f64>,
}

/// Lines over moments.
#[derive(Clone, Debug)]
pub struct Lines {
    /// What is drawn.
    pub title: String,
    /// What the moments are.
    pub moments: &'static str,
    /// The lines.
    pub series: Vec<Series>,
}

/// A line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name; the legend leaves out those without.
    pub name: String,
    /// Its colour.
    pub shade: Shade,
    /// Moments and values, ascending by moment.
    pub points: Vec<(f64, f64)>,
}

/// Points and lines, both axes logarithmic.
#[derive(Clone, Debug)]
pub(super) struct Scatter {
    /// What is drawn.
    pub title: String,
    /// What the axes are: across, then up.
    pub axes: [&'static str; 2],
    /// Lines; one of a single point is a mark. What is not above 0 is left out.
    pub series: Vec<Series>,
}

/// Pixels of a plot's own, before it is fitted to the page.
const WIDTH: u32 = 480;
const LINES_HEIGHT: u32 = 240;
const ROW_HEIGHT: u32 = 40;
const BAR_HEIGHT: i32 = 15;
const FONT: i32 = 14;
/// About as wide as a letter of it.
const LETTER_WIDTH: u32 = 7;
const MARGIN: u32 = 8;
const AXIS_HEIGHT: u32 = 24;
/// A name beside a bar takes no more, in letters; it is whole in the table.
const NAME_LETTERS_MOST: usize = 26;
/// Room for a figure behind the longest bar, as a part of the axis.
const FIGURE_ROOM: f64 = 0.22;

type Failed = DrawingAreaErrorKind<std::io::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Bars with their figures.
pub(super) fn bars(bars: &Bars<'_>) -> Markup {
    let height = bars.rows.len() as u32 * ROW_HEIGHT + 2 * MARGIN + AXIS_HEIGHT;
    let svg = svg((WIDTH, height), |area| draw_bars(area, bars));
    let [given, model] = bars.names;
    let legend = [(given, Shade::Given), (model, Shade::Model)];
    html! { figure { (drawing(bars.title, legend.into_iter(), svg)) } }
}

/// Lines. The page's script draws them anew, so that they can be zoomed into.
pub(super) fn lines(lines: &Lines) -> Markup {
    let svg = svg((WIDTH, LINES_HEIGHT), |area| draw_lines(area, lines));
    let drawn = Drawn {
        moments: lines.moments,
        series: lines.series.iter().map(DrawnSeries::of).collect(),
    };
    html! { figure.lines { (inside(&lines.title, &lines.series, svg)) (data("lines", &drawn)) } }
}

/// What the page's script has of lines.
#[derive(Serialize)]
struct Drawn<'a> {
    moments: &'a str,
    series: Vec<DrawnSeries<'a>>,
}

#[derive(Serialize)]
struct DrawnSeries<'a> {
    name: &'a str,
    colour: String,
    width: u32,
    x: Vec<f64>,
    y: Vec<f64>,
}

impl DrawnSeries<'_> {
    fn of(line: &Series) -> DrawnSeries<'_> {
        let finite = || line.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
        DrawnSeries {
            name: &line.name,
            colour: line.shade.hex(),
            width: line.shade.line_width(),
            x: finite().map(|(x, _)| rounded(*x)).collect(),
            y: finite().map(|(_, y)| rounded(*y)).collect(),
        }
    }
}

/// To what a plot can show.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// Lines and points, both axes logarithmic. A series of one point is drawn as a mark; what is not above 0 is left out.
/// `figures` are the names of what is across and up in the data of a sweep: the page's script marks the chosen point.
pub(super) fn scatter(scatter: &Scatter, figures: Option<[&str; 2]>) -> Markup {
    let Scatter { title, axes, series } = scatter;
    let places = Cell::new([0.0; 8]);
    let svg = svg((WIDTH, LINES_HEIGHT), |area| draw_scatter(area, *axes, series, &places));
    let places = places.get().map(|place| place.to_string()).join(" ");
    match figures {
        None => html! { figure { (inside(title, series, svg)) } },
        Some([x, y]) => html! {
            figure.scatter data-axes=(places) data-x=(x) data-y=(y) { (inside(title, series, svg)) }
        },
    }
}

/// Title, legend and drawing of series.
fn inside(title: &str, series: &[Series], svg: PreEscaped<String>) -> Markup {
    let named = series.iter().filter(|line| !line.name.is_empty());
    drawing(title, named.map(|line| (&*line.name, line.shade)), svg)
}

fn drawing<'a>(
    title: &str,
    legend: impl Iterator<Item = (&'a str, Shade)>,
    svg: PreEscaped<String>,
) -> Markup {
    html! {
        figcaption {
            b { (title) }
            @for (name, shade) in legend { span { i style=(format!("background:{}", shade.hex())) {} (name) } " " }
        }
        div role="img" aria-label=(title) { (svg) }
    }
}

/// What is drawn into a string cannot fail.
fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<(), Failed>) -> PreEscaped<String> {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
    draw(&area).and_then(|()| area.present()).expect("a string takes whatever is drawn");
    drop(area);
    PreEscaped(text)
}

fn draw_bars(area: &Area<'_>, bars: &Bars<'_>) -> Result<(), Failed> {
    let names: Vec<String> = bars.rows.iter().map(|row| shortened(row.name)).collect();
    let letters = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let names_width = letters as u32 * LETTER_WIDTH + 2 * MARGIN;
    let (low, high) = bounds(bars.rows.iter().flat_map(|row| [row.given, row.model]).flatten());
    let room = (high - low) * FIGURE_ROOM;
    let low = if low < 0.0 { low - room } else { low };
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .x_label_area_size(AXIS_HEIGHT)
        .y_label_area_size(names_width)
        .build_cartesian_2d(low..high + room, 0.0..bars.rows.len() as f64)?;
    axes(&mut chart, 0)?;
    for (at, (row, name)) in bars.rows.iter().zip(&names).enumerate() {
        let middle = bars.rows.len() as f64 - at as f64 - 0.5;
        let (left, y) = chart.backend_coord(&(low, middle));
        area.draw(&Text::new(&**name, (left - 6, y), label(HPos::Right)))?;
        for (value, shade, up) in [(row.given, Shade::Given, 1), (row.model, Shade::Model, 0)] {
            let Some(value) = value.filter(|value| value.is_finite()) else { continue };
            let ((zero, _), (end, _)) =
                (chart.backend_coord(&(0.0, middle)), chart.backend_coord(&(value, middle)));
            let top = y - up * (BAR_HEIGHT + 1) + 1;
            let corners = [(zero.min(end), top), (zero.max(end).max(zero + 1), top + BAR_HEIGHT)];
            area.draw(&Rectangle::new(corners, shade.color().filled()))?;
            let side = if value < 0.0 { HPos::Right } else { HPos::Left };
            let beside = if value < 0.0 { end - 4 } else { end + 4 };
            let at = (beside, top + BAR_HEIGHT / 2);
            area.draw(&Text::new(short(value), at, label(side)))?;
        }
    }
    Ok(())
}

fn draw_lines(area: &Area<'_>, lines: &Lines) -> Result<(), Failed> {
    let points = || lines.series.iter().flat_map(|line| line.points.iter().copied());
    let (_, high) = bounds(points().map(|(_, value)| value));
    let first = points().map(|(moment, _)| moment).fold(f64::INFINITY, f64::min).min(0.0);
    let last = points().map(|(moment, _)| moment).fold(first, f64::max);
    let last = if last > first { last } else { first + 1.0 };
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .margin_right(2 * MARGIN)
        .x_label_area_size(2 * AXIS_HEIGHT)
        .y_label_area_size(56)
        .build_cartesian_2d(first..last, 0.0..high * 1.05)?;
    chart
        .configure_mesh()
        .x_desc(lines.moments)
        .x_labels(8)
        .y_labels(5)
        .max_light_lines(0)
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short(*value))
        .bold_line_style(BLACK.mix(0.15))
        .axis_style(BLACK.mix(0.6))
        .label_style(("sans-serif", FONT))
        .draw()?;
    for line in &lines.series {
        let style = line.shade.color().stroke_width(line.shade.line_width());
        chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
    }
    Ok(())
}

/// Tells in `places` where the ends of the axes are: least and most across and their pixels, then of what is up.
fn draw_scatter(
    area: &Area<'_>,
    axes: [&str; 2],
    series: &[Series],
    places: &Cell<[f64; 8]>,
) -> Result<(), Failed> {
    let is_drawn = |point: &(f64, f64)| point.0 > 0.0 && point.1 > 0.0;
    let points = || series.iter().flat_map(|line| &line.points).copied().filter(is_drawn);
    let range = |value: fn((f64, f64)) -> f64| {
        let (low, high) = points()
            .map(value)
            .fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
        if low <= high { (low / 1.3, high * 1.3) } else { (1.0, 10.0) }
    };
    let (x, y) = (range(|point| point.0), range(|point| point.1));
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .margin_right(2 * MARGIN)
        .x_label_area_size(2 * AXIS_HEIGHT)
        .y_label_area_size(56)
        .build_cartesian_2d((x.0..x.1).log_scale(), (y.0..y.1).log_scale())?;
    let (left, bottom) = chart.backend_coord(&(x.0, y.0));
    let (right, top) = chart.backend_coord(&(x.1, y.1));
    let [left, right, bottom, top] = [left, right, bottom, top].map(f64::from);
    places.set([x.0, x.1, left, right, y.0, y.1, bottom, top]);
    chart
        .configure_mesh()
        .x_desc(axes[0])
        .y_desc(axes[1])
        .x_labels(6)
        .y_labels(6)
        .max_light_lines(0)
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short(*value))
        .bold_line_style(BLACK.mix(0.15))
        .axis_style(BLACK.mix(0.6))
        .label_style(("sans-serif", FONT))
        .draw()?;
    for line in series {
        let drawn: Vec<(f64, f64)> = line.points.iter().copied().filter(is_drawn).collect();
        if let [point] = drawn[..] {
            chart.draw_series([Circle::new(point, 5, line.shade.color().filled())])?;
        } else {
            chart.draw_series(LineSeries::new(drawn, line.shade.color().stroke_width(2)))?;
        }
    }
    Ok(())
}

fn axes(chart: &mut Chart<'_, '_>, y_labels: usize) -> Result<(), Failed> {
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(y_labels)
        .x_labels(5)
        .max_light_lines(0)
        .x_label_formatter(&|value| short(*value))
        .bold_line_style(BLACK.mix(0.15))
        .axis_style(BLACK.mix(0.6))
        .label_style(("sans-serif", FONT))
        .draw()
}

fn label(side: HPos) -> TextStyle<'static> {
    ("sans-serif", FONT).into_font().color(&BLACK).pos(Pos::new(side, VPos::Center))
}

/// The least and the most, 0 among them, and never the same.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) =
        finite.fold((0.0f64, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    if low == high { (low, low + 1.0) } else { (low, high) }
}

/// A name without its middle, where it is too long: names that begin alike end otherwise.
fn shortened(name: &str) -> String {
    let letters = name.chars().count();
    if letters <= NAME_LETTERS_MOST {
        return name.to_owned();
    }
    let begin = NAME_LETTERS_MOST / 2;
    let end = name.chars().skip(letters - (NAME_LETTERS_MOST - 1 - begin));
    name.chars().take(begin).chain(['…']).chain(end).collect()
}

/// A figure in at most seven letters or so.
fn short(value: f64) -> String {
    let scaled = |by: f64, unit: &str| {
        let value = value / by;
        let digits = if value.abs() >= 100.0 { 0 } else { 1 };
        format!("{value:.digits$}{unit}").replace(".0", "")
    };
    match value.abs() {
        size if size >= 1e9 => scaled(1e9, "G"),
        size if size >= 1e6 => scaled(1e6, "M"),
        size if size >= 1e4 => scaled(1e3, "k"),
        size if size >= 100.0 || value == value.trunc() => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.3}").trim_end_matches('0').to_owned(),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let cases = [(0.0, "0"), (2.17, "2.17"), (-12.34, "-12.3"), (1234.0, "1234")];
        let large = [(10_000.0, "10k"), (123_456.0, "123k"), (2_500_000.0, "2.5M"), (4e9, "4G")];
        for (value, expected) in cases.into_iter().chain(large) {
            assert_eq!(short(value), expected);
        }
        assert_eq!(short(0.001), "1.0e-3");
    }

    #[test]
    fn grades_go_from_the_first_colour_to_the_last() {
        assert_eq!(graded(0), GRADES[0]);
        assert_eq!(graded(255), GRADES[GRADES.len() - 1]);
        assert!((0..255).all(|place| graded(place) != graded(place + 1)), "each step is seen");
    }

    #[test]
    fn names_are_cut_between_letters() {
        assert_eq!(shortened("12 GB"), "12 GB");
        assert_eq!(shortened(&"ä".repeat(40)).chars().count(), NAME_LETTERS_MOST);
        assert_eq!(shortened("lmbench3 AF_UNIX 16 pairs, patch 5"), "lmbench3 AF_U…irs, patch 5");
    }

    #[test]
    fn bars_of_any_figures_are_drawn_and_names_escaped() {
        let row = |name, given, model| Pair { name, given, model };
        let rows = vec![
            row("<b>&", Some(3.0), Some(-2.0)),
            row("", None, Some(f64::NAN)),
            row("zero", Some(0.0), Some(f64::INFINITY)),
        ];
        let figure = bars(&Bars { title: "t", names: ["a", "b"], rows }).into_string();
        assert!(figure.contains("&lt;b&gt;&amp;") && !figure.contains("<b>&"), "{figure}");
        roxmltree::Document::parse(&figure).unwrap();
        let none = bars(&Bars { title: "t", names: ["a", "b"], rows: Vec::new() });
        roxmltree::Document::parse(&none.into_string()).unwrap();
    }

    #[test]
    fn points_on_logarithmic_axes_are_drawn_and_what_has_no_place_is_left_out() {
        let of = |points: Vec<(f64, f64)>| Series { name: "s".into(), shade: Shade::Low, points };
        let all = [vec![], vec![(5.0, 7.0)], vec![(0.0, 1.0), (10.0, 1e6), (1e5, 2.0)]].map(of);
        for series in [&all[..], &all[..1], &[]] {
            let all =
                Scatter { title: "t".into(), axes: ["pages", "holds"], series: series.to_vec() };
            let figure = scatter(&all, None).into_string();
            roxmltree::Document::parse(&figure).unwrap();
            assert_eq!(figure.matches("<circle").count(), usize::from(series.len() == 3));
        }
    }

    #[test]
    fn lines_of_any_length_are_drawn() {
        for length in [0, 1, 3] {
            let points = (0..length).map(|at| (f64::from(at), 7.0)).collect();
            let series = vec![Series { name: "s".into(), shade: Shade::Model, points }];
            let all = Lines { title: "t".into(), moments: "sample", series };
            roxmltree::Document::parse(&lines(&all).into_string()).unwrap();
        }
    }
}
