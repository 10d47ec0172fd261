//! `fleasefs sim cluster`.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use sim::Simulation;
use sim::checkers::promptness::Expected;
use sim::cluster::{ClusterPlan, ClusterSummary, Clusters, StorePlan};
use sim::lease::Subject;

use super::series::{Options, SeriesArgs, Told, faults_to_json};

#[derive(Args)]
pub(super) struct ClusterArgs {
    #[command(flatten)]
    pub(super) series: SeriesArgs,
    /// How many seconds of faults are simulated, instead of a minute or a little more
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    seconds: Option<u64>,
    /// What daemons keep files in
    #[arg(long, value_enum, default_value_t = Store::Model, value_name = "WHICH")]
    store: Store,
    /// Break a rule on purpose, to see what a failure looks like
    #[arg(long = "break", value_enum, value_name = "RULE")]
    broken: Option<Broken>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Broken {
    /// A sync of a disk is about what was written lately, and not about all before it
    EarlierSegmentSkipped,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Store {
    /// The simulator's own: a record stands for itself
    Model,
    /// The store of the daemon, on a simulated disk
    Real,
}

/// What is older than so many records such a sync goes by.
const RECENT: u64 = 8;

impl Options for ClusterArgs {
    type Simulation = Clusters;

    fn plan(&self, subject: Subject, seed: u64) -> ClusterPlan {
        let mut plan = Clusters::plan(subject, seed);
        if let Some(seconds) = self.seconds {
            plan.duration = base::Span::from_secs(seconds);
        }
        if self.store == Store::Real {
            plan = plan.with_store(StorePlan::draw(seed));
        }
        if self.broken == Some(Broken::EarlierSegmentSkipped) {
            plan.skips_older = Some(RECENT);
        }
        plan
    }

    fn to_arguments(&self) -> String {
        let mut arguments = String::new();
        if let Some(seconds) = self.seconds {
            arguments += &format!(" --seconds {seconds}");
        }
        if self.store == Store::Real {
            arguments += " --store real";
        }
        if let Some(value) = self.broken.and_then(|broken| broken.to_possible_value()) {
            arguments += &format!(" --break {}", value.get_name());
        }
        arguments
    }
}

impl Told for ClusterSummary {
    fn to_json(&self) -> Value {
        let worst = |&what: &Expected| {
            let took = self.worst.get(&what)?;
            Some((format!("{}_us", what.label().replace(' ', "_")), json!(took.as_micros())))
        };
        let limits = self.limits.iter().map(|(limit, times)| (limit.label().replace(' ', "_"), json!(times)));
        let limits: serde_json::Map<_, _> = limits.collect();
        json!({
            "seed": self.seed,
            "algorithm": self.algorithm,
            "daemons": self.daemons,
            "clients": self.clients,
            "locks": self.locks,
            "t_max_us": self.t_max.as_micros(),
            "wanted": self.wanted,
            "granted": self.granted,
            "busy": self.busy,
            "unavailable": self.unavailable,
            "lost": self.lost,
            "taken_over": self.taken_over,
            "detached": self.detached,
            "files": self.files,
            "file_operations": self.file_operations,
            "file_acknowledged": self.file_acknowledged,
            "file_synced": self.file_synced,
            "file_durable": self.file_durable,
            "file_given_up": self.file_given_up,
            "file_overloaded": self.file_overloaded,
            "file_clients_over": self.file_clients_over,
            "file_told_over": self.file_told_over,
            "file_over_effective": self.file_over_effective,
            "file_removals": self.file_removals,
            "file_told_removed": self.file_told_removed,
            "file_no_space": self.file_no_space,
            "file_changes_lost": self.file_changes_lost,
            "volumes": self.trees.volumes,
            "tree_operations": self.trees.wanted,
            "tree_changed": self.trees.changed,
            "tree_refused": self.trees.refused,
            "tree_answered": self.trees.answered,
            "tree_answers_refused": self.trees.answers_refused,
            "volumes_planted": self.trees.planted,
            "volumes_removed": self.trees.removed,
            "volumes_told_gone": self.trees.told_gone,
            "tree_no_space": self.trees.no_space,
            "limits": limits,
            "losses": self.losses,
            "blocked": self.blocked,
            "transfers": self.transfers,
            "histories_in_order": self.judgement.linearizable,
            "histories_in_another_order": self.judgement.searched,
            "answers_while_clocks_were_wrong": self.judgement.loose,
            "stale_answers": self.judgement.stale,
            "locks_shared": self.locks_shared,
            "sessions": self.sessions,
            "sessions_over": self.sessions_over,
            "messages": self.messages,
            "faults": faults_to_json(&self.faults),
            "recovered_us": self.recovered_in.map(base::Span::as_micros),
            "worst": Expected::ALL.iter().filter_map(worst).collect::<serde_json::Map<_, _>>(),
            "counts": self.counts(),
        })
    }
}
