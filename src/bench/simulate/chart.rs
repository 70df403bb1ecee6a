//! SVG chart of a simulation: calibration on the left, utility on the right.

use std::fmt::Write as _;

use super::{closed, metrics::ForecastBin, predict, report::SimulationReport};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 440.0;
/// Side of the calibration's square, and its left and upper edge.
const SIDE: f64 = 300.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 70.0;
/// Left edge of the bars, and their length at the oracle's utility.
const BARS_LEFT: f64 = 640.0;
const BARS_LENGTH: f64 = 230.0;
const BAR: f64 = 26.0;
/// Color of each forecaster, safe for color blindness (Okabe and Ito).
const COLOURS: [&str; predict::FORECASTERS] = ["#d55e00", "#e69f00", "#56b4e9", "#0072b2"];
const INK: &str = "#222222";
const GRID: &str = "#dddddd";

/// The figures as a self-contained SVG.
pub(crate) fn draw(report: &SimulationReport) -> String {
    let mut svg = Svg(String::new());
    let view = format!("width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\"");
    svg.push_line(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" {view} font-family=\"sans-serif\" font-size=\"13\">"
    ));
    svg.push_line(&format!("<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>"));
    if let Some(rows) = &report.predict {
        calibration(&mut svg, rows);
    }
    if let Some(rows) = &report.closed {
        utility(&mut svg, rows);
    }
    svg.push_line("</svg>");
    svg.0
}

struct Svg(String);

impl Svg {
    fn push_line(&mut self, text: &str) {
        self.0.push_str(text);
        self.0.push('\n');
    }

    /// `anchor` aligns the text at `x`: `start`, `middle` or `end`.
    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        self.push_line(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{INK}\">{text}</text>"
        ));
    }

    fn stroke(&mut self, from: (f64, f64), to: (f64, f64), style: &str) {
        let ends = format!("x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"", from.0, from.1, to.0, to.1);
        self.push_line(&format!("<line {ends} {style}/>"));
    }

    fn title(&mut self, x: f64, text: &str) {
        self.push_line(&format!("<text x=\"{x:.1}\" y=\"36\" font-size=\"16\" fill=\"{INK}\">{text}</text>"));
    }
}

fn calibration(svg: &mut Svg, rows: &[predict::ForecasterRow]) {
    let at = |p: f64, share: f64| (LEFT + p * SIDE, TOP + (1.0 - share) * SIDE);
    svg.title(LEFT, "Predicted against observed success of retries");
    for tick in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let grid = format!("stroke=\"{GRID}\"");
        svg.stroke(at(tick, 0.0), at(tick, 1.0), &grid);
        svg.stroke(at(0.0, tick), at(1.0, tick), &grid);
        svg.text(at(tick, 0.0).0, TOP + SIDE + 20.0, "middle", &format!("{:.0} %", tick * 100.0));
        svg.text(LEFT - 10.0, at(0.0, tick).1 + 4.0, "end", &format!("{:.0} %", tick * 100.0));
    }
    svg.text(LEFT + SIDE / 2.0, TOP + SIDE + 42.0, "middle", "predicted");
    svg.text(LEFT, TOP - 12.0, "end", "observed");
    svg.stroke(at(0.0, 0.0), at(1.0, 1.0), "stroke=\"#999999\" stroke-dasharray=\"5 5\"");
    for ((row, colour), i) in rows.iter().zip(COLOURS).zip(0..) {
        let parts = || row.score.calibration.iter().filter(|part| part.n > 0);
        let mut path = String::new();
        for ForecastBin { predicted, observed, .. } in parts() {
            let (x, y) = at(*predicted, *observed);
            let _ = write!(path, "{x:.1},{y:.1} ");
        }
        let path = path.trim_end();
        svg.push_line(&format!("<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"));
        for ForecastBin { predicted, observed, n } in parts() {
            let (x, y) = at(*predicted, *observed);
            // The area shows the number of retries.
            let radius = 2.0 + 9.0 * (*n as f64 / row.score.n.max(1) as f64).sqrt();
            let circle = format!("cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"{colour}\"");
            svg.push_line(&format!("<circle {circle} fill-opacity=\"0.7\"/>"));
        }
        let y = TOP + SIDE - 88.0 + 22.0 * f64::from(i);
        let x = LEFT + SIDE + 20.0;
        svg.push_line(&format!("<rect x=\"{x}\" y=\"{}\" width=\"11\" height=\"11\" fill=\"{colour}\"/>", y - 10.0));
        svg.text(x + 17.0, y, "start", row.forecaster);
    }
}

fn utility(svg: &mut Svg, rows: &[closed::PolicyRow]) {
    svg.title(BARS_LEFT - 10.0, "Worth of obeyed advice, of the oracle's");
    for (row, i) in rows.iter().zip(0..) {
        let y = TOP + 52.0 * f64::from(i);
        let length = row.of_oracle.max(0.0) * BARS_LENGTH;
        let colour = if row.policy.contains("flag") { COLOURS[0] } else { COLOURS[3] };
        svg.text(BARS_LEFT, y, "start", row.policy);
        let bar = format!("x=\"{BARS_LEFT}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{BAR}\"", y + 6.0);
        svg.push_line(&format!("<rect {bar} fill=\"{colour}\" fill-opacity=\"0.85\"/>"));
        svg.text(BARS_LEFT + length + 8.0, y + 24.0, "start", &format!("{:.0} %", row.of_oracle * 100.0));
    }
}
