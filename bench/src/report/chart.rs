//! Rows as a picture: a panel for each scenario, a line for each contestant, or a bar where there is
//! only one setting. Values are on a logarithmic axis: what counts are ratios.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::svg::{COLOURS, Svg};
use crate::row::Row;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 54.0;
const PLOT_HEIGHT: f64 = 280.0;
const BOTTOM: f64 = 56.0;
const LEGEND_LINE: f64 = 20.0;
const GAP: f64 = 12.0;
const BAR_PITCH: f64 = 34.0;
/// Room for names on the left of bars, and for values on their right.
const BAR_NAMES: f64 = 100.0;
const BAR_VALUES: f64 = 100.0;

/// All rows of one scenario, which is what stands before the `/` of its name. What stands behind it
/// is on the horizontal axis; numbers of tasks then have a panel each.
#[derive(Clone)]
struct Panel<'a> {
    scenario: &'a str,
    tasks: Option<usize>,
    axis: Axis,
    rows: Vec<&'a Row>,
}

/// What is drawn, and its name.
#[derive(Clone, Copy)]
struct Axis {
    title: &'static str,
    value: fn(&Row) -> Option<f64>,
}

/// An SVG with a panel for each scenario, one below the other.
pub fn svg(rows: &[Row]) -> String {
    let panels = panels(rows);
    let palette = palette(rows);
    let mut svg = Svg::new(WIDTH, panels.iter().map(Panel::height).sum());
    let mut top = 0.0;
    for panel in &panels {
        panel.draw(&mut svg, top, &palette);
        top += panel.height();
    }
    svg.finish()
}

/// Who has which colour.
type Palette<'a> = HashMap<&'a str, &'static str>;

/// The same in every panel, and for those who are seen most the same in every picture.
fn palette(rows: &[Row]) -> Palette<'_> {
    const USUAL: [&str; 4] = ["floor", "leasehold", "rslock", "leasehold-thread"];
    let mut palette: Palette<'_> = USUAL.into_iter().zip(COLOURS).collect();
    for row in rows {
        let next = COLOURS[palette.len() % COLOURS.len()];
        palette.entry(&row.contestant).or_insert(next);
    }
    palette
}

fn panels(rows: &[Row]) -> Vec<Panel<'_>> {
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for row in rows {
        let (scenario, tasks) = match row.scenario.split_once('/') {
            Some((scenario, _)) => (scenario, Some(row.concurrency)),
            None => (row.scenario.as_str(), None),
        };
        let same = |panel: &&mut Panel<'_>| (panel.scenario, panel.tasks) == (scenario, tasks);
        match panels.iter_mut().find(same) {
            Some(panel) => panel.rows.push(row),
            None => {
                panels.push(Panel { scenario, tasks, axis: axis(scenario), rows: vec![row] });
            }
        }
    }
    panels.into_iter().flat_map(Panel::with_cost).collect()
}

impl Panel<'_> {
    /// What grows is drawn twice: how long it takes, and what it costs.
    fn with_cost(self) -> Vec<Self> {
        if !self.scenario.starts_with("growth") {
            return vec![self];
        }
        let cost = Axis {
            title: "processor µs per cycle, client and servers",
            value: |row| Some(row.client_cpu_us? + row.server_cpu_us?),
        };
        vec![self.clone(), Self { axis: cost, ..self }]
    }

    fn height(&self) -> f64 {
        let plot = match self.is_bars() {
            true => BAR_PITCH * self.contestants().len() as f64,
            false => PLOT_HEIGHT + BOTTOM,
        };
        TOP + plot + GAP
    }

    /// With one setting there is nothing to draw lines between.
    fn is_bars(&self) -> bool {
        self.xs().len() == 1
    }

    fn draw(&self, svg: &mut Svg, top: f64, palette: &Palette<'_>) {
        let tasks = match self.tasks {
            Some(1) => ", 1 task".to_owned(),
            Some(tasks) => format!(", {tasks} tasks"),
            None => String::new(),
        };
        svg.title(LEFT, top + 26.0, &format!("{}{tasks}: {}", self.scenario, self.axis.title));
        match self.is_bars() {
            true => self.draw_bars(svg, top, palette),
            false => self.draw_lines(svg, top, palette),
        }
    }

    fn draw_lines(&self, svg: &mut Svg, top: f64, palette: &Palette<'_>) {
        let values: Vec<f64> = self.rows.iter().filter_map(|row| (self.axis.value)(row)).collect();
        let scale = Scale::around(&values);
        let xs = self.xs();
        let plot_width = WIDTH - LEFT - RIGHT;
        let x_of = |at: usize| LEFT + plot_width * (at as f64 + 0.5) / xs.len() as f64;
        let y_of = |value: f64| top + TOP + PLOT_HEIGHT * (1.0 - scale.share(value));
        for tick in scale.ticks() {
            svg.grid(LEFT, WIDTH - RIGHT, y_of(tick));
            svg.label_left(LEFT - 8.0, y_of(tick) + 4.0, &number(tick));
        }
        for (at, x) in xs.iter().enumerate() {
            svg.label_below(x_of(at), top + TOP + PLOT_HEIGHT + 20.0, x);
        }
        let what = self.x_title();
        svg.label_below(LEFT + plot_width / 2.0, top + TOP + PLOT_HEIGHT + 42.0, what);
        for (at, name) in self.contestants().iter().enumerate() {
            let colour = palette[name];
            let points: Vec<(f64, f64)> = xs
                .iter()
                .enumerate()
                .filter_map(|(at, x)| Some((x_of(at), y_of(self.value(name, x)?))))
                .collect();
            svg.line(&points, colour);
            let y = top + TOP + 10.0 + LEGEND_LINE * at as f64;
            svg.legend(WIDTH - RIGHT + 18.0, y, colour, name);
        }
    }

    /// From nought, so that twice as long is twice as much.
    fn draw_bars(&self, svg: &mut Svg, top: f64, palette: &Palette<'_>) {
        let names = self.contestants();
        let value = |name: &str| self.xs().first().and_then(|x| self.value(name, x));
        let most = names.iter().filter_map(|name| value(name)).fold(f64::MIN_POSITIVE, f64::max);
        let left = LEFT + BAR_NAMES;
        let pitch = BAR_PITCH;
        for (at, name) in names.iter().enumerate() {
            let y = top + TOP + pitch * at as f64;
            let length = value(name).unwrap_or(0.0) / most * (WIDTH - left - BAR_VALUES);
            let text = value(name).map_or("did not end".to_owned(), |value| format!("{value:.0}"));
            svg.label_left(left - 8.0, y + pitch / 2.0 + 4.0, name);
            svg.bar(left, y + pitch * 0.15, length, pitch * 0.7, palette[name]);
            svg.label_right(left + length + 8.0, y + pitch / 2.0 + 4.0, &text);
        }
    }

    /// Whoever has most at the end of the axis comes first, as the lines do.
    fn contestants(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !names.contains(&row.contestant.as_str()) {
                names.push(&row.contestant);
            }
        }
        let last = |name: &str| {
            let mut rows = self.rows.iter().rev().filter(|row| row.contestant == name);
            rows.find_map(|row| (self.axis.value)(row)).unwrap_or(0.0)
        };
        names.sort_by(|a, b| last(b).total_cmp(&last(a)));
        names
    }

    fn value(&self, name: &str, x: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.contestant == name && self.x(row) == x)?;
        (self.axis.value)(row).filter(|value| *value > 0.0)
    }

    /// Where a row stands on the horizontal axis.
    fn x(&self, row: &Row) -> String {
        match row.scenario.split_once('/') {
            Some((_, x)) => x.to_owned(),
            None if self.varies_by_nodes() => row.nodes.to_string(),
            None => row.concurrency.to_string(),
        }
    }

    fn xs(&self) -> Vec<String> {
        let mut xs = Vec::new();
        for row in &self.rows {
            let x = self.x(row);
            if !xs.contains(&x) {
                xs.push(x);
            }
        }
        xs
    }

    fn x_title(&self) -> &'static str {
        match self.scenario {
            "growth-leases" => "leases held by the process meanwhile",
            "growth-waiters" => "waiters of other locks in the process meanwhile",
            "growth-fences" => "fences recorded on the node",
            _ if self.rows.iter().any(|row| row.scenario.contains('/')) => "",
            _ if self.varies_by_nodes() => "nodes",
            _ => "tasks at once",
        }
    }

    fn varies_by_nodes(&self) -> bool {
        self.rows.iter().any(|row| row.nodes != self.rows[0].nodes)
    }
}

/// Throughput, unless the scenario is about how long something takes.
fn axis(scenario: &str) -> Axis {
    let by_time = ["killed", "hung", "delays", "growth"];
    match by_time.iter().any(|name| scenario.starts_with(name)) {
        true => Axis { title: "median µs", value: |row| row.p50_us },
        false => Axis { title: "cycles per second", value: |row| row.cycles_per_s },
    }
}

/// From one power of ten to another.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn around(values: &[f64]) -> Scale {
        let positive = || values.iter().copied().filter(|value| *value > 0.0);
        let low = positive().fold(f64::INFINITY, f64::min);
        let high = positive().fold(0.0, f64::max);
        if high == 0.0 {
            return Scale { low: 0.0, high: 1.0 };
        }
        let (low, high) = (low.log10().floor(), high.log10().ceil());
        Scale { low, high: if high > low { high } else { low + 1.0 } }
    }

    fn share(&self, value: f64) -> f64 {
        (value.log10() - self.low) / (self.high - self.low)
    }

    fn ticks(&self) -> Vec<f64> {
        let powers = (self.low as i32..=self.high as i32).map(|power| 10f64.powi(power));
        let fine = self.high - self.low <= 3.0;
        powers
            .flat_map(|ten| if fine { vec![ten, 2.0 * ten, 5.0 * ten] } else { vec![ten] })
            .filter(|tick| tick.log10() <= self.high + 1e-9)
            .collect()
    }
}

fn number(value: f64) -> String {
    let mut text = String::new();
    let _ = match value {
        value if value >= 1e6 => write!(text, "{} M", value / 1e6),
        value if value >= 1e3 => write!(text, "{} k", value / 1e3),
        value => write!(text, "{value}"),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scenario: &str, contestant: &str, concurrency: usize, cycles_per_s: f64) -> Row {
        Row {
            scenario: scenario.into(),
            contestant: contestant.into(),
            nodes: 5,
            concurrency,
            cycles_per_s: Some(cycles_per_s),
            p50_us: Some(1e6 / cycles_per_s),
            client_cpu_us: Some(1e5 / cycles_per_s),
            server_cpu_us: Some(2e5 / cycles_per_s),
            ..Row::default()
        }
    }

    #[test]
    fn a_name_cannot_break_out_of_the_picture() {
        let picture = svg(&[row("a<b", "\"x\" & </text><script>", 1, 10.0)]);
        assert!(!picture.contains("<script"), "{picture}");
        assert!(picture.contains("&quot;x&quot; &amp; &lt;/text&gt;&lt;script&gt;"), "{picture}");
        assert!(picture.contains("a&lt;b: cycles per second"), "{picture}");
    }

    #[test]
    fn each_scenario_has_a_panel_and_each_contestant_a_line() {
        let picture = svg(&[
            row("uncontended", "floor", 1, 100.0),
            row("uncontended", "leasehold", 1, 80.0),
            row("uncontended", "floor", 16, 1000.0),
            row("growth-leases/1", "leasehold", 1, 100.0),
            row("growth-leases/10", "leasehold", 1, 50.0),
            row("growth-leases/1", "leasehold", 16, 10.0),
            row("growth-leases/10", "leasehold", 16, 5.0),
        ]);
        assert_eq!(picture.matches("growth-leases, 16 tasks: median µs").count(), 1);
        assert_eq!(picture.matches("cycles per second").count(), 1);
        assert_eq!(picture.matches("growth-leases, 1 task: median µs").count(), 1);
        assert_eq!(picture.matches("growth-leases, 1 task: processor µs").count(), 1);
        assert_eq!(picture.matches("<polyline").count(), 6);
        assert_eq!(picture.matches("<circle").count(), 11);
        // A point and a mark in the legend of each of its five lines.
        let of_leasehold = format!("fill=\"{}\"", COLOURS[1]);
        assert_eq!(picture.matches(&of_leasehold).count(), 14, "one colour in all panels");
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    }

    #[test]
    fn a_single_setting_is_drawn_as_bars_and_who_did_not_end_has_none() {
        let mut out = row("contended-8x1", "redlock", 8, 1.0);
        (out.cycles_per_s, out.p50_us) = (None, None);
        let picture = svg(&[
            row("contended-8x1", "rslock", 8, 200.0),
            out,
            row("contended-8x1", "leasehold", 8, 400.0),
        ]);
        assert_eq!(picture.matches("<polyline").count(), 0);
        let at = |text: &str| picture.find(text).expect(text);
        assert!(at(">leasehold<") < at(">rslock<"), "the longest bar comes first");
        assert!(at(">rslock<") < at(">redlock<"));
        assert_eq!(picture.matches("did not end").count(), 1);
        let widths: Vec<f64> = picture
            .split("class=\"bar\" width=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next()?.parse().ok())
            .collect();
        assert_eq!(widths.len(), 3);
        assert!((widths[0] - 2.0 * widths[1]).abs() < 0.2, "{widths:?}");
        assert_eq!(widths[2], 0.0);
    }

    #[test]
    fn the_scale_spans_whole_powers_of_ten() {
        let scale = Scale::around(&[30.0, 4000.0]);
        assert_eq!((scale.low, scale.high), (1.0, 4.0));
        assert_eq!(scale.share(10.0), 0.0);
        assert_eq!(scale.share(10_000.0), 1.0);
        assert_eq!(scale.ticks().first(), Some(&10.0));
        assert_eq!(scale.ticks().last(), Some(&10_000.0));
        assert_eq!(Scale::around(&[10.0]).share(10.0), 0.0);
        assert_eq!(Scale::around(&[]).ticks(), [1.0, 2.0, 5.0, 10.0]);
    }
}
