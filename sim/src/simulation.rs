//! What all simulations have in common for whoever runs seeds of them.

use std::fmt::Display;

use base::Span;

use crate::checkers::histories::Judgement;
use crate::lease::Subject;
use crate::trace::Tail;
use crate::{Trace, Violation};

/// Something that can be simulated.
pub trait Simulation {
    /// What it is called on the command line.
    const NAME: &'static str;

    /// Everything that a seed decides.
    type Plan;
    /// What a run did.
    type Summary: Outcome;

    /// What `seed` decides.
    fn plan(subject: Subject, seed: u64) -> Self::Plan;

    /// Runs a plan. The same plan gives the same summary and the same trace.
    fn run<'a>(subject: Subject, plan: &'a Self::Plan, trace: Trace<'a>) -> Self::Summary;

    /// Runs a plan again and gives the last lines of the trace about what a violation is about.
    fn explain(subject: Subject, plan: &Self::Plan, violation: &Violation, lines_max: usize) -> Tail {
        let mut tail = Tail::new(lines_max);
        let trace = match violation.cell {
            Some(cell) => Trace::of_cell(cell, &mut tail),
            None => Trace::all(&mut tail),
        };
        Self::run(subject, plan, trace);
        tail
    }
}

/// What a run tells, whatever was simulated.
pub trait Outcome: Display {
    /// Whether the run shows that all is well.
    fn is_clean(&self) -> bool;

    /// How long the run was.
    fn simulated(&self) -> Span;

    /// The promises that were broken. The first one ends a run.
    fn violations(&self) -> &[Violation];

    /// How many histories were found to have an order.
    fn judgement(&self) -> Judgement {
        Judgement::default()
    }
}
