//! The stalls of all rounds on one page: a row for each event, a dot for each round, a bar for what is allowed.

use std::fmt::Write as _;

use super::Figures;

/// The page, and where in it the figures are; in pixels.
const WIDTH: f64 = 800.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 780.0;
const TOP: f64 = 84.0;
const ROW: f64 = 44.0;
const FOOT: f64 = 74.0;
/// The axis goes from one power of ten to another, in milliseconds.
const DECADES: [i32; 2] = [0, 4];

/// In colours that read on white paper and, where the reader prefers it, on black.
const STYLE: &str = "
text { font: 13px system-ui, sans-serif; fill: #1c1c1c }
.title { font-size: 16px; font-weight: 600 }
.quiet { fill: #5c5c5c; font-size: 12px }
.page { fill: #ffffff }
.grid { stroke: #e2e2e2 }
.bound { stroke: #1c1c1c; stroke-width: 2.5 }
.writer { fill: #1f6fb4; fill-opacity: 0.7 } .reader { fill: #b3560e; fill-opacity: 0.7 }
@media (prefers-color-scheme: dark) {
text { fill: #ececec } .quiet { fill: #a8a8a8 } .page { fill: #16181b }
.grid { stroke: #34383d } .bound { stroke: #ececec }
.writer { fill: #6db3f2 } .reader { fill: #f0a25c }
}
";

/// A page as a file in SVG.
pub fn plot(all: &[Figures]) -> String {
    let bottom = (0..all.len()).fold(TOP, |bottom, _| bottom + ROW);
    let mut page = Page(String::new());
    page.text((16.0, 26.0), "start", ("title", "Longest stalls when something happens to a daemon"));
    let rounds = all.iter().map(|figures| figures.rounds).max().unwrap_or_default();
    let over = all.first().map_or("mount", |figures| figures.over);
    let note =
        format!("A dot for each of up to {rounds} rounds over the {over}; the bar is what is allowed.");
    page.text((16.0, 46.0), "start", ("quiet", &note));
    for decade in DECADES[0]..=DECADES[1] {
        let x = place(10_f64.powi(decade));
        page.line((x, TOP - 8.0), (x, bottom), "grid");
        page.text((x, bottom + 18.0), "middle", ("", &format!("{} ms", 10_u32.pow(decade.unsigned_abs()))));
    }
    let mut y = TOP + ROW / 2.0;
    for figures in all {
        page.text((LEFT - 12.0, y + 4.0), "end", ("", figures.event.name()));
        for &[writer, same, other] in &figures.stalls_ms {
            page.dot((place(writer), y - 8.0), "writer");
            page.dot((place(same.max(other)), y + 8.0), "reader");
        }
        let bound = place(figures.bound_ms);
        page.line((bound, y - 16.0), (bound, y + 16.0), "bound");
        y += ROW;
    }
    let foot = bottom + FOOT - 18.0;
    page.dot((LEFT, foot - 4.0), "writer");
    page.text((LEFT + 12.0, foot), "start", ("", "4 KiB written and synced"));
    page.dot((LEFT + 220.0, foot - 4.0), "reader");
    page.text((LEFT + 232.0, foot), "start", ("", "opened, read and closed"));
    page.finish(bottom + FOOT)
}

/// Where a stall of so many milliseconds stands.
fn place(ms: f64) -> f64 {
    let [from, to] = DECADES.map(f64::from);
    LEFT + (ms.max(1.0).log10().clamp(from, to) - from) / (to - from) * (RIGHT - LEFT)
}

/// Elements one after the other. Writing to a string does not fail.
struct Page(String);

impl Page {
    fn text(&mut self, (x, y): (f64, f64), anchor: &str, (class, text): (&str, &str)) {
        let _ = writeln!(
            self.0,
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{text}</text>"#
        );
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let _ = writeln!(
            self.0,
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#
        );
    }

    fn dot(&mut self, (x, y): (f64, f64), class: &str) {
        let _ = writeln!(self.0, r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" class="{class}"/>"#);
    }

    fn finish(self, height: f64) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\">\n<style>{STYLE}</style>\n<rect class=\"page\" width=\"{WIDTH}\" \
             height=\"{height}\"/>\n{}</svg>\n",
            self.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_stands_where_the_axis_says() {
        assert_eq!([0.0, 1.0, 100.0, 10_000.0, 1e9].map(place), [LEFT, LEFT, 438.0, RIGHT, RIGHT]);
    }
}
