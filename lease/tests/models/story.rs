//! A path through a model as a story to read.

use std::fmt::Write;

use lease::{Algorithm, Body, Message};

use crate::setup::Move;
use crate::tables::Envelope;
use crate::world::{Action, State, World};

/// One line for each thing that happened, with the clocks before it and the holders after it.
pub(crate) fn tell<A: Algorithm>(world: &World<A>, path: Vec<(State, Option<Action>)>) -> String {
    let mut story = String::new();
    let mut holders = 0;
    for (state, action) in path {
        if state.holders != holders {
            holders = state.holders;
            let names: Vec<String> =
                (0..8).filter(|node| holders & 1 << node != 0).map(|node| format!("n{node}")).collect();
            let _ = writeln!(story, "                    => holders: [{}]", names.join(", "));
        }
        let Some(action) = action else {
            // The end: what was broken beside exclusion.
            if state.dead_until.iter().any(|&until| until != 0) || state.faults != 0 {
                let _ = writeln!(
                    story,
                    "                    => dead {:?}, faults {}",
                    state.dead_until, state.faults
                );
            }
            break;
        };
        let clocks = &state.clocks[..usize::from(world.setup.nodes)];
        let _ = writeln!(story, "{:<16} {}", format!("{clocks:?}"), describe(world, action));
    }
    story
}

fn describe<A: Algorithm>(world: &World<A>, action: Action) -> String {
    match action {
        Action::Tick(node) => format!("clock of n{node} ticks"),
        Action::TickTogether { except: None } => "all clocks tick".to_owned(),
        Action::TickTogether { except: Some(node) } => format!("all clocks tick but n{node}'s"),
        Action::Deliver(ticket) => describe_message(&world.tables.envelope(ticket.place)),
        Action::Move(order) => describe_move(order),
    }
}

fn describe_move(order: Move) -> String {
    match order {
        Move::Acquire(node) => format!("n{node} is told to acquire"),
        Move::Release(node) => format!("n{node} is told to release"),
        Move::HandOver { from, to } => format!("n{from} is told to hand over to n{to}"),
        Move::Restart(node) => format!("n{node} dies and starts again"),
        Move::Notice { dead, to } => format!("n{to} hears that the earlier n{dead} is dead"),
        Move::StandDown(node) => format!("n{node} stands down"),
        Move::Resume(node) => format!("n{node} takes part again"),
        Move::Propose(node) => format!("n{node} puts the next view in force"),
        Move::Adopt(node) => format!("n{node} follows to the next view"),
    }
}

fn describe_message(envelope: &Envelope) -> String {
    let Envelope { sender, to, sent, message } = envelope;
    let Message { ballot, view, .. } = message;
    let said = match &message.body {
        Body::Read => "READ".to_owned(),
        Body::Write(lease) => {
            let given = if lease.is_kept() { "" } else { ", given up" };
            format!("WRITE until {:?}{given}", lease.expiry)
        }
        Body::ReadAck(None) => "promise, nothing written".to_owned(),
        Body::ReadAck(Some(written)) => {
            let given = if written.lease.is_kept() { "" } else { ", given up" };
            format!("promise, written {:?} until {:?}{given}", written.ballot, written.lease.expiry)
        }
        Body::WriteAck => "accepted".to_owned(),
        Body::Nack { highest } => format!("nack by {highest:?}"),
        Body::WrongView(view) => format!("wrong view, it is {}", view.id.seq.0),
        Body::Offer => "offer".to_owned(),
    };
    let when = sent.map_or(String::new(), |sent| format!(" (sent at {sent})"));
    format!("n{to} gets from {sender:?}: {said} for {ballot:?} in view {}{when}", view.seq.0)
}
