//! Prometheus' text format, version 0.0.4: for each family a line of help, one with its type, and its samples.
//!
//! Names and labels are ours and need no escaping.

use std::fmt::Display;

use base::Span;

/// What every name begins with.
const PREFIX: &str = "fleasefs_";

/// A text in the making.
#[derive(Default)]
pub(super) struct Text(String);

impl Text {
    /// A number that only grows.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) {
        let name = self.family(&format!("{name}_total"), help, "counter");
        self.sample(&name, value);
    }

    /// Numbers that only grow, told apart by a label.
    pub(super) fn counters<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        let name = self.family(&format!("{name}_total"), help, "counter");
        for (which, value) in values {
            self.sample(&format!("{name}{{{label}=\"{which}\"}}"), value);
        }
    }

    /// A number that goes up and down.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) {
        let name = self.family(name, help, "gauge");
        self.sample(&name, value);
    }

    /// A span as a gauge.
    pub(super) fn seconds(&mut self, name: &str, help: &str, span: Span) {
        let name = self.family(&format!("{name}_seconds"), help, "gauge");
        self.sample(&name, span.as_secs_f64());
    }

    /// Upper bounds with the number of spans in each bucket, one more for those that are longer, and the sum of all.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        (bounds, counts): (&[Span], &[u64]),
        sum: Span,
    ) {
        assert_eq!(counts.len(), bounds.len() + 1, "one bucket is without a bound");
        let name = self.family(&format!("{name}_seconds"), help, "histogram");
        let bounds = bounds.iter().map(|bound| bound.as_secs_f64().to_string());
        let mut so_far = 0;
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(counts) {
            so_far += count;
            self.sample(&format!("{name}_bucket{{le=\"{bound}\"}}"), so_far);
        }
        self.sample(&format!("{name}_sum"), sum.as_secs_f64());
        self.sample(&format!("{name}_count"), so_far);
    }

    /// The text.
    pub(super) fn finish(self) -> String {
        self.0
    }

    /// Begins a family, and returns its full name.
    fn family(&mut self, name: &str, help: &str, kind: &str) -> String {
        let name = format!("{PREFIX}{name}");
        self.0.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        name
    }

    fn sample(&mut self, name: &str, value: impl Display) {
        self.0.push_str(&format!("{name} {value}\n"));
    }
}
