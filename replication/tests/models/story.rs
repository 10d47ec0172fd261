//! A path through a model as a story to read.

use std::fmt::Write;

use crate::node::Input;
use crate::tables::Envelope;
use crate::world::{Action, State, World};

/// One line for each thing that happened, and one for how its node stands then.
pub(crate) fn tell(world: &World, path: Vec<(State, Option<Action>)>) -> String {
    let mut story = String::new();
    let mut last: Option<Action> = None;
    for (state, action) in path {
        if let Some(Action { node, .. }) = last {
            let at = world.tables.node(state.nodes[usize::from(node)]);
            let (replica, facts) = (&at.0.replica, &at.1);
            let _ = writeln!(
                story,
                "        n{node}: {:?} {}, promised {:?}, tail {:?}, committed {:?}, memory {:?}, members {:b}, answers {:?}",
                facts.standing,
                facts.tenure,
                replica.promised(),
                replica.tail(),
                replica.committed(),
                replica.memory(),
                facts.members,
                facts.answer,
            );
        }
        last = action;
        match action {
            Some(action) => _ = writeln!(story, "{}", describe(world, action)),
            None => _ = writeln!(story, "    => {:?}, faults {}", state.known, state.faults),
        }
    }
    story
}

fn describe(world: &World, Action { node, input }: Action) -> String {
    match input {
        Input::Deliver(place) => {
            let Envelope { from, view, message, .. } = &*world.tables.envelope(place);
            format!("n{node} gets from n{from}, view {}: {message:?}", view.seq.0)
        }
        other => format!("n{node}: {other:?}"),
    }
}
