//! Just enough SVG for a chart. It brings its own background, to be legible on any page.

use std::fmt::Write as _;

/// Told apart by most eyes, on white.
pub(super) const COLOURS: [&str; 10] = [
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#e377c2",
    "#7f7f7f", "#bcbd22",
];

pub(super) struct Svg {
    text: String,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Svg {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"DejaVu Sans, Verdana, Arial, sans-serif\" font-size=\"13\" \
             fill=\"#222222\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
        );
        Svg { text }
    }

    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    pub(super) fn title(&mut self, x: f64, y: f64, text: &str) {
        self.write(x, y, "start", " font-size=\"16\" font-weight=\"bold\"", text);
    }

    pub(super) fn label_left(&mut self, x: f64, y: f64, text: &str) {
        self.write(x, y, "end", "", text);
    }

    pub(super) fn label_below(&mut self, x: f64, y: f64, text: &str) {
        self.write(x, y, "middle", "", text);
    }

    pub(super) fn label_right(&mut self, x: f64, y: f64, text: &str) {
        self.write(x, y, "start", "", text);
    }

    pub(super) fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        let _ = writeln!(
            self.text,
            "<rect class=\"bar\" width=\"{width:.1}\" x=\"{x:.1}\" y=\"{y:.1}\" \
             height=\"{height:.1}\" fill=\"{colour}\"/>"
        );
    }

    pub(super) fn grid(&mut self, from: f64, to: f64, y: f64) {
        let _ = writeln!(
            self.text,
            "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>"
        );
    }

    pub(super) fn line(&mut self, points: &[(f64, f64)], colour: &str) {
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for (x, y) in points {
            let _ = writeln!(
                self.text,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"
            );
        }
    }

    pub(super) fn legend(&mut self, x: f64, y: f64, colour: &str, text: &str) {
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>",
            y - 6.0
        );
        self.write(x + 22.0, y, "start", "", text);
    }

    fn write(&mut self, x: f64, y: f64, anchor: &str, extra: &str, text: &str) {
        let text = escaped(text);
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{extra}>{text}</text>"
        );
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}
