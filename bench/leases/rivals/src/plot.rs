//! The plots: throughput by batch, what a loaded disk does to it, latency at half of the peak, cost in processor time.

use crate::report::{Figures, Kept};
use crate::results::{DEFAULT, Entry, NO_LOAD, Results};
use crate::svg::{Anchor, BOTTOM, LEFT, LogAxis, Page, RIGHT, TOP, count, number};

/// The paper's greatest throughputs, in leases per second: of 30 machines that ask, and three servers for ZooKeeper.
const PAPER: [(&str, f64); 2] = [
    ("the paper's Flease, 30 machines: 51,029", 51_029.0),
    ("the paper's ZooKeeper, 33 machines: 7,336", 7_336.0),
];

/// Conditions that bars stand for: experiment, load, and what to call them.
const CONDITIONS: [(&str, &str, &str); 4] = [
    (DEFAULT, NO_LOAD, "idle disk"),
    (DEFAULT, "paper", "512 KiB writes, 7 ms pause"),
    (DEFAULT, "fsync", "fio, fsync per write"),
    ("tmpfs", NO_LOAD, "data on tmpfs"),
];

/// Everything that can be drawn from `results`, with names for the files.
pub(crate) fn plots(results: &Results) -> Vec<(&'static str, String)> {
    vec![
        ("batches.svg", batches(results)),
        ("disk-load.svg", bars(results, &DISK_LOAD)),
        ("half-of-peak.svg", bars(results, &HALF_OF_PEAK)),
        ("cpu.svg", bars(results, &CPU)),
        ("kept.svg", kept(results)),
    ]
}

/// How a system is drawn, everywhere the same.
fn class_of(system: &str) -> &'static str {
    match system {
        "etcd" => "a",
        "zookeeper" => "b",
        "fleasefs" => "c",
        _ => "d",
    }
}

fn title_of(system: &str) -> &str {
    match system {
        "zookeeper" => "ZooKeeper",
        other => other,
    }
}

/// Throughput over the size of a batch, single requests and batched ones.
fn batches(results: &Results) -> String {
    let curves: Vec<&Entry> = results
        .results
        .iter()
        .filter(|entry| entry.load == NO_LOAD && [DEFAULT, "batched"].contains(&entry.experiment.as_str()))
        .filter(|entry| !entry.batches.is_empty())
        .collect();
    let figures = || curves.iter().flat_map(|entry| &entry.batches);
    let sizes = || figures().map(size);
    let (least, most) = (sizes().fold(1e9, f64::min), sizes().fold(1.0, f64::max));
    // Room for the names of the paper's figures before the first, and for half a label behind the last.
    let across = LogAxis::between(least / 7.0, most * 1.5, (LEFT, RIGHT));
    let rates = figures().map(|batch| batch.leases_per_second).chain(PAPER.map(|(_, rate)| rate));
    let up = LogAxis::over(rates, (BOTTOM, TOP));
    let note = "Distinct leases asked for as fast as they are granted, three servers and the driver on one machine. \
                Higher is better.\nSolid: one lease per request. Dashed: many leases in one transaction.";
    let mut page = Page::new("Leases per second by size of batch", note);
    scale(&mut page, &up);
    page.axis_names("leases in the batch", "leases per second");
    for (name, rate) in PAPER {
        let y = up.place(rate);
        page.line((LEFT, y), (RIGHT, y), "reference");
        page.text((LEFT + 6.0, y - 5.0), Anchor::Start, "quiet", name);
    }
    for entry in &curves {
        let dashed = if entry.experiment == DEFAULT { "" } else { " dashed" };
        let point = |batch| (across.place(size(batch)), up.place(batch.leases_per_second));
        let points: Vec<(f64, f64)> = entry.batches.iter().map(point).collect();
        page.curve(&points, &format!("{}{dashed}", class_of(&entry.system)));
    }
    label_columns(&mut page, figures().map(|batch| (across.place(size(batch)), batch)), &up);
    let singles: Vec<&&Entry> = curves.iter().filter(|entry| entry.experiment == DEFAULT).collect();
    let names: Vec<String> =
        singles.iter().map(|entry| format!("{} {}", title_of(&entry.system), entry.version)).collect();
    page.legend(names.iter().map(String::as_str).zip(singles.iter().map(|entry| class_of(&entry.system))));
    page.finish()
}

/// How many leases are kept alive, by how long one lasts.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn kept(results: &Results) -> String {
    let kept = results.kept();
    let seconds = |kept: &Kept| kept.t_max_ms as f64 / 1_000.0;
    let least = kept.first().map_or(1.0, |kept| seconds(kept));
    let most = kept.last().map_or(10.0, |kept| seconds(kept));
    let across = LogAxis::between(least / 1.5, most * 1.5, (LEFT, RIGHT));
    let up = LogAxis::over(kept.iter().map(|kept| kept.leases as f64), (BOTTOM, TOP));
    let note = "Leases that three daemons on one machine, all of them members of each, kept alive with none lost.\n\
                In brackets: processor time of daemons and client in percent of the machine. Higher is better.";
    let mut page = Page::new("Leases kept by how long one lasts", note);
    scale(&mut page, &up);
    page.axis_names("seconds that a lease lasts", "leases kept");
    let points: Vec<(f64, f64)> =
        kept.iter().map(|kept| (across.place(seconds(kept)), up.place(kept.leases as f64))).collect();
    page.curve(&points, class_of("fleasefs"));
    for (kept, &(x, y)) in kept.iter().zip(&points) {
        page.text((x, BOTTOM + 20.0), Anchor::Middle, "", &number(seconds(kept)));
        let lost =
            if kept.lost == 0 { String::new() } else { format!(", {} lost", number(kept.lost as f64)) };
        let figures = format!("{} ({:.0} %{lost})", number(kept.leases as f64), kept.cpu_percent_of_machine);
        page.text((x, y - 10.0), Anchor::Middle, "quiet", &figures);
    }
    page.finish()
}

/// Names each size of batch below the axis, and writes each throughput above its point or above the one written last.
fn label_columns<'a>(page: &mut Page, batches: impl Iterator<Item = (f64, &'a Figures)>, up: &LogAxis) {
    const LINE: f64 = 14.0;
    let mut batches: Vec<(f64, &Figures)> = batches.collect();
    batches.sort_by(|(_, a), (_, b)| {
        a.leases.cmp(&b.leases).then(a.leases_per_second.total_cmp(&b.leases_per_second))
    });
    for column in batches.chunk_by(|(_, a), (_, b)| a.leases == b.leases) {
        let x = column[0].0;
        page.line((x, BOTTOM), (x, BOTTOM + 6.0), "axis");
        page.text((x, BOTTOM + 20.0), Anchor::Middle, "", &number(size(column[0].1)));
        let mut above = BOTTOM;
        for (_, batch) in column {
            above = (up.place(batch.leases_per_second) - 9.0).min(above - LINE);
            page.text((x, above), Anchor::Middle, "quiet", &number(batch.leases_per_second.round()));
        }
    }
}

/// Bars for each system under each condition.
struct Bars {
    title: &'static str,
    note: &'static str,
    unit: &'static str,
    pick: fn(&Entry) -> Option<Bar>,
}

/// How high a bar is, and a remark that stands above it.
type Bar = (f64, Option<String>);

const DISK_LOAD: Bars = Bars {
    title: "Leases per second at peak, by what the disk has to do besides",
    note: "The largest batch, one lease per request. Higher is better.",
    unit: "leases per second",
    pick: |entry| entry.batches.last().map(|batch| (batch.leases_per_second, None)),
};

const HALF_OF_PEAK: Bars = Bars {
    title: "Latency at half of each system's own peak",
    note: "99th percentile from when a request was due. In brackets: share of the leases offered that were granted \
           in time.\nLower is better.",
    unit: "milliseconds",
    pick: |entry| {
        let rated = entry.rated.as_ref()?;
        Some((rated.p99_us / 1_000.0, rated.achieved_percent.map(|percent| format!("({percent:.0} %)"))))
    },
};

const CPU: Bars = Bars {
    title: "Processor time of the servers for 1,000 leases",
    note: "User and system time of all three, the largest batch, one lease per request. Lower is better.",
    unit: "seconds of processor time",
    pick: |entry| entry.batches.last().map(|batch| (batch.servers_cpu_s_per_1000, None)),
};

fn bars(results: &Results, bars: &Bars) -> String {
    let systems = results.systems();
    let value = |experiment: &str, load: &str, system: &str| {
        results.find(experiment, load, system).and_then(bars.pick).filter(|(value, _)| *value > 0.0)
    };
    let shown: Vec<&(&str, &str, &str)> = CONDITIONS
        .iter()
        .filter(|(experiment, load, _)| {
            systems.iter().any(|system| value(experiment, load, system).is_some())
        })
        .collect();
    let values = shown.iter().flat_map(|(experiment, load, _)| {
        systems.iter().filter_map(|system| value(experiment, load, system)).map(|(value, _)| value)
    });
    // A bar of the least value still has some height, and its label room.
    let values: Vec<f64> = values.flat_map(|value| [value * 0.7, value * 1.3]).collect();
    let up = LogAxis::over(values, (BOTTOM, TOP));
    let mut page = Page::new(bars.title, bars.note);
    scale(&mut page, &up);
    page.axis_names("", bars.unit);
    let stretch = (RIGHT - LEFT) / count(shown.len().max(1));
    let width = (stretch * 0.8 / count(systems.len().max(1))).min(90.0);
    for (position, (experiment, load, name)) in shown.iter().enumerate() {
        let middle = LEFT + stretch * (count(position) + 0.5);
        page.text((middle, BOTTOM + 20.0), Anchor::Middle, "", name);
        let first = middle - width * count(systems.len()) / 2.0;
        for (position, system) in systems.iter().enumerate() {
            let Some((value, remark)) = value(experiment, load, system) else { continue };
            let (x, top) = (first + width * count(position), up.place(value));
            page.bar(x + 3.0, width - 6.0, top, class_of(system));
            let label = (x + width / 2.0, top - if remark.is_some() { 20.0 } else { 6.0 });
            page.text(label, Anchor::Middle, "", &number(value));
            if let Some(remark) = remark {
                page.text((x + width / 2.0, top - 6.0), Anchor::Middle, "quiet", &remark);
            }
        }
    }
    page.legend(systems.iter().map(|system| (title_of(system), class_of(system))));
    page.finish()
}

/// The axis on the left with its lines across.
fn scale(page: &mut Page, up: &LogAxis) {
    for (value, is_power) in up.ticks() {
        let y = up.place(value);
        page.line((LEFT, y), (RIGHT, y), "grid");
        if is_power {
            page.text((LEFT - 8.0, y + 4.5), Anchor::End, "", &number(value));
        }
    }
    page.line((LEFT, BOTTOM), (RIGHT, BOTTOM), "axis");
    page.line((LEFT, TOP), (LEFT, BOTTOM), "axis");
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn size(batch: &Figures) -> f64 {
    batch.leases as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{keeping, measurement, save};

    #[test]
    fn every_figure_stands_in_its_plot() {
        let folder = tempfile::tempdir().unwrap();
        let etcd = measurement("etcd", &[(1_000, 1_111.0), (50_000, 1_234.0)]);
        save(folder.path(), "default.none.etcd.1.json", &etcd);
        save(
            folder.path(),
            "default.fsync.zookeeper.1.json",
            &measurement("zookeeper", &[(50_000, 4_321.0)]),
        );
        save(folder.path(), "kept-2s.none.fleasefs.1.json", &keeping(100_000, 2_000));
        let results = Results::collect(folder.path()).unwrap();
        let plots = plots(&results);
        let plot = |name: &str| &plots.iter().find(|(found, _)| *found == name).unwrap().1;
        assert!(plot("batches.svg").contains("1,111") && plot("batches.svg").contains("51,029"));
        assert!(plot("disk-load.svg").contains("4,321") && plot("disk-load.svg").contains("1,234"));
        assert!(plot("cpu.svg").contains(">0.25<"));
        assert!(plot("kept.svg").contains("100,000 (60 %)"));
    }

    #[test]
    fn nothing_measured_is_an_empty_plot() {
        let folder = tempfile::tempdir().unwrap();
        let results = Results::collect(folder.path()).unwrap();
        assert!(plots(&results).iter().all(|(_, plot)| plot.ends_with("</svg>\n") && !plot.contains("NaN")));
    }
}
