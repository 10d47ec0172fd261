//! The tree against a model of it that was made from POSIX.1-2017, the manual pages of Linux and the crate's documentation.
//!
//! Both take in the same random histories, and have to agree on each outcome and on all that can be asked. The model
//! is naive on purpose: it keeps maps, and walks through all of them to find what the tree keeps counts and marks of.
//! `state.rs` says what it consists of, `access.rs` who may do what; `names.rs`, `attributes.rs`, `xattrs.rs` and `locks.rs` what
//! operations do. `dice.rs` and `draw.rs` draw histories, `run.rs` compares, `tally.rs` counts what was reached.

mod access;
mod ask;
mod attributes;
mod crowds;
mod dice;
mod draw;
mod locks;
mod names;
mod run;
mod state;
mod tally;
mod xattrs;

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::dice::Throw;
use crate::tally::Tally;

/// So many histories, if `PROPTEST_CASES` does not say how many.
const CASES: u32 = 800;
/// So many histories under fixed seeds.
const FIXED: usize = 400;
/// No history has more steps.
const STEPS_MAX: usize = 250;

fn histories() -> impl Strategy<Value = Vec<Throw>> {
    vec(any::<Throw>(), 1..STEPS_MAX)
}

#[test]
fn the_tree_does_what_the_model_does() {
    let mut config = Config { failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    let ran = TestRunner::new(config)
        .run(&histories(), |history| run::run(&history, &mut Tally::default()).map_err(TestCaseError::fail));
    if let Err(failure) = ran {
        panic!("{failure}");
    }
}

#[test]
fn fixed_seeds_reach_everything() {
    let mut runner = TestRunner::deterministic();
    let mut tally = Tally::default();
    for _ in 0..FIXED {
        let history = histories().new_tree(&mut runner).expect("a history").current();
        if let Err(difference) = run::run(&history, &mut tally) {
            panic!("{difference}");
        }
    }
    for crowd in [crowds::many_wait, crowds::a_client_has_much] {
        if let Err(difference) = crowd(&mut tally) {
            panic!("{difference}");
        }
    }
    let missing = tally.missing();
    assert!(missing.is_empty(), "not reached: {missing:?} of {tally:#?}");
}
