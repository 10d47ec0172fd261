//! Stories about one replicated object.
#![expect(clippy::print_stdout, reason = "storms tell how much happened in them")]

/// Told with the rule in force, and without.
macro_rules! stories {
    ($($bug:ident: $story:ident;)*) => {
        mod with_the_rule {
            $(#[test] fn $story() { super::$story(None); })*
        }

        mod without_it {
            $(#[test] #[should_panic] fn $story() { super::$story(Some(replication::Bug::$bug)); })*
        }
    };
}

mod cluster;
mod commits;
mod corners;
mod damage;
mod failovers;
mod limits;
mod power;
mod rot;
mod rules;
mod storms;
mod transfers;
mod views;
