//! The results as tables of the documentation.

use std::fmt::Write as _;

use crate::report::{Figures, Kept};
use crate::results::{Entry, Results};
use crate::svg::number;

/// Tables in Markdown: batches, then what was offered at a rate, then the loads.
pub(crate) fn tables(results: &Results) -> String {
    let mut text = String::new();
    let machine = &results.machine;
    line(
        &mut text,
        &format!(
            "{} processors ({}), {} GiB of memory, Linux {}\n",
            machine.processors, machine.processor, machine.memory_gib, machine.kernel
        ),
    );
    line(
        &mut text,
        "| experiment | disk load | system | batch | leases/s | p50 ms | p99 ms | servers' CPU-s per 1,000 \
         | driver's | driver % of one | others % | failed |",
    );
    line(&mut text, "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for entry in &results.results {
        for batch in &entry.batches {
            line(&mut text, &batch_row(entry, batch));
        }
    }
    line(
        &mut text,
        "\n| disk load | system | offered/s | achieved % | p50 ms | p99 ms | servers' CPU-s per 1,000 | failed |",
    );
    line(&mut text, "|---|---|--:|--:|--:|--:|--:|--:|");
    for (entry, rated) in results.results.iter().filter_map(|entry| Some((entry, entry.rated.as_ref()?))) {
        line(&mut text, &rated_row(entry, rated));
    }
    line(&mut text, "\n| lease time s | leases kept | for s | lost | renewals/s | % of the machine |");
    line(&mut text, "|--:|--:|--:|--:|--:|--:|");
    for kept in results.kept() {
        line(&mut text, &kept_row(kept));
    }
    line(&mut text, "\n| load | writes/s | MiB/s | % of one processor |");
    line(&mut text, "|---|--:|--:|--:|");
    for load in &results.disk_loads {
        let figures = [load.writes_s, load.written_mib_s, load.percent_of_one].map(number);
        line(&mut text, &format!("| {} | {} |", load.kind, figures.join(" | ")));
    }
    text
}

fn batch_row(entry: &Entry, batch: &Figures) -> String {
    // A batch that ran into the limit was not finished, and the reader must know.
    let cut = if batch.granted < batch.leases && batch.failed == 0 { "*" } else { "" };
    format!(
        "| {} | {} | {} {} | {}{cut} | {} | {:.1} | {:.1} | {:.3} | {:.3} | {:.0} | {:.0} | {} |",
        entry.experiment,
        entry.load,
        entry.system,
        entry.version,
        batch.leases,
        number(batch.leases_per_second.round()),
        batch.p50_us / 1_000.0,
        batch.p99_us / 1_000.0,
        batch.servers_cpu_s_per_1000,
        batch.driver_cpu_s_per_1000,
        batch.usage.driver_percent_of_one,
        batch.usage.others_percent,
        batch.failed,
    )
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn kept_row(kept: &Kept) -> String {
    format!(
        "| {} | {} | {:.0} | {} | {} | {:.0} |",
        kept.t_max_ms as f64 / 1_000.0,
        number(kept.leases as f64),
        kept.seconds,
        kept.lost,
        number(kept.renewals_per_second.round()),
        kept.cpu_percent_of_machine,
    )
}

fn rated_row(entry: &Entry, rated: &Figures) -> String {
    format!(
        "| {} | {} {} | {} | {:.1} | {:.1} | {:.1} | {:.3} | {} |",
        entry.load,
        entry.system,
        entry.version,
        number(rated.offered_per_second.unwrap_or_default()),
        rated.achieved_percent.unwrap_or_default(),
        rated.p50_us / 1_000.0,
        rated.p99_us / 1_000.0,
        rated.servers_cpu_s_per_1000,
        rated.failed,
    )
}

fn line(text: &mut String, line: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{keeping, measurement, save};

    #[test]
    fn every_batch_has_a_row_and_an_unfinished_one_a_mark() {
        let folder = tempfile::tempdir().unwrap();
        let mut etcd = measurement("etcd", &[(1_000, 1_111.0), (50_000, 1_234.0)]);
        etcd.batches[1].granted = 7;
        etcd.rated = Some(Figures { offered_per_second: Some(617.0), ..Figures::default() });
        save(folder.path(), "default.none.etcd.1.json", &etcd);
        save(folder.path(), "kept-2s.none.fleasefs.1.json", &keeping(100_000, 2_000));
        let tables = tables(&Results::collect(folder.path()).unwrap());
        assert!(
            tables.contains("| default | none | etcd 1.0 | 1000 | 1,111 | 1.5 | 9.0 | 0.250 |"),
            "{tables}"
        );
        assert!(tables.contains("| 50000* |") && tables.contains("| none | etcd 1.0 | 617 |"), "{tables}");
        assert!(tables.contains("| 2 | 100,000 | 20 | 0 | 75,000 | 60 |"), "{tables}");
    }
}
