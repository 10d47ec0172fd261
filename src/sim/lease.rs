//! `fleasefs sim lease`.

use clap::Args;
use serde_json::{Value, json};
use sim::lease::{Leases, Subject};
use sim::{Plan, Simulation, Summary};

use super::series::{Options, SeriesArgs, Told, faults_to_json};

const SECONDS_PER_HOUR: u64 = 3_600;

#[derive(Args)]
pub(super) struct LeaseArgs {
    #[command(flatten)]
    pub(super) series: SeriesArgs,
    /// How many nodes, 3 to 7, instead of as many as the seed says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(3..=7))]
    nodes: Option<u32>,
    /// How many hours of faults are simulated, instead of a minute or two
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    hours: Option<u64>,
}

impl Options for LeaseArgs {
    type Simulation = Leases;

    fn plan(&self, subject: Subject, seed: u64) -> Plan {
        let mut plan = Leases::plan(subject, seed);
        if let Some(nodes) = self.nodes {
            plan = plan.with_nodes(nodes);
        }
        if let Some(hours) = self.hours {
            plan.duration = base::Span::from_secs(hours * SECONDS_PER_HOUR);
        }
        plan
    }

    fn to_arguments(&self) -> String {
        let mut arguments = String::new();
        if let Some(nodes) = self.nodes {
            arguments += &format!(" --nodes {nodes}");
        }
        if let Some(hours) = self.hours {
            arguments += &format!(" --hours {hours}");
        }
        arguments
    }
}

impl Told for Summary {
    fn to_json(&self) -> Value {
        json!({
            "seed": self.seed,
            "algorithm": self.algorithm,
            "nodes": self.nodes,
            "cells": self.cells,
            "t_max_us": self.t_max.as_micros(),
            "acquired": self.acquired,
            "renewed": self.renewed,
            "released": self.released,
            "handed_over": self.handed_over,
            "lost": self.lost,
            "acts": self.acts,
            "messages": self.messages,
            "faults": faults_to_json(&self.faults),
            "recovered_us": self.recovered_in.map(base::Span::as_micros),
            "counts": self.counts(),
        })
    }
}
