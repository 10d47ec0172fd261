//! Drawing: a page with axes, in colours that read on white paper and, where the reader prefers it, on black.

use std::fmt::Write as _;

/// The page, and the frame in it that holds the figures; in pixels.
pub(crate) const WIDTH: f64 = 800.0;
pub(crate) const HEIGHT: f64 = 480.0;
pub(crate) const LEFT: f64 = 84.0;
pub(crate) const RIGHT: f64 = 780.0;
pub(crate) const TOP: f64 = 92.0;
pub(crate) const BOTTOM: f64 = 400.0;

/// Classes `ink` and `quiet` are text and lines; `a` to `d` are colours of series.
const STYLE: &str = "
text { font: 13px system-ui, sans-serif; fill: #1c1c1c }
.title { font-size: 16px; font-weight: 600 }
.quiet { fill: #5c5c5c; font-size: 12px }
.page { fill: #ffffff }
.grid { stroke: #e2e2e2; stroke-width: 1 }
.axis { stroke: #6b6b6b; stroke-width: 1 }
.reference { stroke: #6b6b6b; stroke-width: 1.2; stroke-dasharray: 2 4 }
.line { fill: none; stroke-width: 2.2 }
.dashed { stroke-dasharray: 7 4 }
.a { stroke: #1f6fb4; fill: #1f6fb4 } .b { stroke: #b3560e; fill: #b3560e }
.c { stroke: #1c7d45; fill: #1c7d45 } .d { stroke: #7a4fa3; fill: #7a4fa3 }
.line.a, .line.b, .line.c, .line.d { fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #ececec } .quiet { fill: #a8a8a8 } .page { fill: #16181b }
.grid { stroke: #34383d } .axis, .reference { stroke: #9a9a9a }
.a { stroke: #6db3f2; fill: #6db3f2 } .b { stroke: #f0a25c; fill: #f0a25c }
.c { stroke: #63cf8e; fill: #63cf8e } .d { stroke: #c39ae8; fill: #c39ae8 }
}
";

/// Where a text is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A page that is being drawn.
pub(crate) struct Page {
    body: String,
}

impl Page {
    /// A page with its title, what it says about the figures, and a frame below.
    pub(crate) fn new(title: &str, note: &str) -> Self {
        let mut page = Self { body: String::new() };
        page.text((16.0, 26.0), Anchor::Start, "title", title);
        for (line, text) in note.lines().enumerate() {
            page.text((16.0, 46.0 + 16.0 * count(line)), Anchor::Start, "quiet", text);
        }
        page
    }

    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.add(&format!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{text}</text>"#
        ));
    }

    /// What an axis shows, along its side.
    pub(crate) fn axis_names(&mut self, below: &str, beside: &str) {
        self.text((f64::midpoint(LEFT, RIGHT), BOTTOM + 42.0), Anchor::Middle, "", below);
        let (x, y) = (22.0, f64::midpoint(TOP, BOTTOM));
        let beside = escaped(beside);
        self.add(&format!(
            r#"<text transform="translate({x:.1} {y:.1}) rotate(-90)" text-anchor="middle">{beside}</text>"#
        ));
    }

    pub(crate) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.add(&format!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#));
    }

    /// A line through points, each of them marked.
    pub(crate) fn curve(&mut self, points: &[(f64, f64)], class: &str) {
        let mut path = String::new();
        for (x, y) in points {
            // Writing to a string does not fail.
            let _ = write!(path, "{x:.1},{y:.1} ");
        }
        self.add(&format!(r#"<polyline points="{}" class="line {class}"/>"#, path.trim_end()));
        for (x, y) in points {
            self.add(&format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.6" class="{class}"/>"#));
        }
    }

    /// A bar that stands on the lower axis.
    pub(crate) fn bar(&mut self, x: f64, width: f64, top: f64, class: &str) {
        self.rectangle((x, top), (width, (BOTTOM - top).max(0.0)), class);
    }

    /// Names of series from left to right at the bottom, each with its class.
    pub(crate) fn legend<'a>(&mut self, series: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let mut x = LEFT;
        for (name, class) in series {
            let y = HEIGHT - 14.0;
            self.rectangle((x, y - 10.0), (12.0, 12.0), class);
            self.text((x + 18.0, y), Anchor::Start, "", name);
            x += 42.0 + 7.2 * count(name.chars().count());
        }
    }

    /// The page as a file.
    pub(crate) fn finish(self) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" role=\"img\">\n<style>{STYLE}</style>\n<rect class=\"page\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\"/>\n{}</svg>\n",
            self.body
        )
    }

    fn rectangle(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str) {
        self.add(&format!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" class="{class}"/>"#
        ));
    }

    fn add(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }
}

/// A logarithmic axis from one power of ten to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogAxis {
    from: f64,
    to: f64,
    /// Where the ends are drawn.
    ends: (f64, f64),
}

impl LogAxis {
    /// An axis that holds all of these values, which are above zero, between these two places.
    pub(crate) fn over(values: impl IntoIterator<Item = f64>, ends: (f64, f64)) -> Self {
        let logs = values.into_iter().filter(|value| *value > 0.0).map(f64::log10);
        let (low, high) = logs.fold((f64::MAX, f64::MIN), |(low, high), log| (low.min(log), high.max(log)));
        // Nothing to show still makes an axis.
        let (low, high) = if low > high { (0.0, 1.0) } else { (low.floor(), high.ceil()) };
        Self { from: low, to: high.max(low + 1.0), ends }
    }

    /// An axis from one value to another, which need be no powers of ten.
    pub(crate) fn between(from: f64, to: f64, ends: (f64, f64)) -> Self {
        Self { from: from.log10(), to: to.log10(), ends }
    }

    pub(crate) fn place(&self, value: f64) -> f64 {
        let share = (value.max(f64::MIN_POSITIVE).log10() - self.from) / (self.to - self.from);
        self.ends.0 + share.clamp(0.0, 1.0) * (self.ends.1 - self.ends.0)
    }

    /// The powers of ten on it, and between them what is two and five times one.
    pub(crate) fn ticks(&self) -> Vec<(f64, bool)> {
        let mut ticks = Vec::new();
        let mut power = self.from;
        while power <= self.to {
            ticks.push((10_f64.powf(power), true));
            if power < self.to {
                ticks.extend([2.0, 5.0].map(|times| (times * 10_f64.powf(power), false)));
            }
            power += 1.0;
        }
        ticks
    }
}

/// A number with commas between thousands, or with as many decimals as a small one needs.
pub(crate) fn number(value: f64) -> String {
    if value < 10.0 {
        let decimals = if value < 0.1 { 3 } else { usize::from(value.fract() != 0.0) * 2 };
        let text = format!("{value:.decimals$}");
        return if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text
        };
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[expect(clippy::cast_precision_loss, reason = "counts of things on a page")]
pub(crate) fn count(things: usize) -> f64 {
    things as f64
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_long_as_they_need_to_be() {
        let cases = [
            (0.0042, "0.004"),
            (0.25, "0.25"),
            (1.0, "1"),
            (7.5, "7.5"),
            (999.6, "1,000"),
            (51_029.0, "51,029"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn an_axis_holds_its_values_between_powers_of_ten() {
        let axis = LogAxis::over([1_100.0, 6_400.0], (400.0, 100.0));
        assert_eq!((axis.place(1_000.0), axis.place(10_000.0)), (400.0, 100.0));
        assert!(axis.place(1.0) == 400.0 && axis.place(3_162.28).round() == 250.0);
        assert_eq!(axis.ticks().iter().filter(|(_, is_power)| *is_power).count(), 2);
        assert_eq!(LogAxis::over([], (0.0, 1.0)).ticks().len(), 4);
    }

    #[test]
    fn text_cannot_break_the_page() {
        let mut page = Page::new("a < b & c", "");
        page.legend([("x", "a")]);
        let page = page.finish();
        assert!(page.contains("a &lt; b &amp; c") && page.ends_with("</svg>\n"));
    }
}
