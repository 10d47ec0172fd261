//! The calm after the storm: everything is healed, and from then on the protocol must make progress.

use base::Span;
use lease::Algorithm;

use super::world::World;
use crate::checkers::evidence::Machines;
use crate::checkers::liveness::{recovery_bound, succession_bound};
use crate::{TrueTime, Violation};

/// Deadlines are looked at this often.
const STEP: Span = Span::from_millis(20);
/// How many cells each node is made the successor of.
const TURNS: usize = 3;

impl<A: Algorithm> World<'_, A> {
    pub(super) fn calm(&mut self) -> Result<(), Violation> {
        self.heal()?;
        self.await_owners()?;
        self.let_rivals_go()?;
        self.give_everybody_a_turn()?;
        let rest = self.now + self.config.t_max * 2;
        self.run_until(rest)
    }

    fn heal(&mut self) -> Result<(), Violation> {
        self.note(None, format_args!("everything is healed"));
        self.is_calm = true;
        self.mishaps.note(self.now, Machines::ALL, "everything is healed");
        self.network.heal();
        for node in 0..self.hosts.len() {
            self.restart(node)?;
            self.resume(self.hosts[node].process())?;
            self.trust(self.hosts[node].process())?;
            if self.plan.clocks.window.is_some() {
                self.hosts[node].clock.set_rate(self.now, 0);
                self.reset_alarm(node);
            }
        }
        for node in 0..self.hosts.len() {
            (0..self.cells.len()).try_for_each(|cell| self.learn(node, cell))?;
        }
        Ok(())
    }

    /// Every cell is wanted, and must have an owner within the bound.
    fn await_owners(&mut self) -> Result<(), Violation> {
        let healed = self.now;
        let deadline = healed + recovery_bound(&self.config, self.plan.network.late_max);
        for cell in 0..self.cells.len() {
            if self.owner_of(cell).is_none() {
                self.checkers.liveness.expect(healed, self.cells[cell].id, None, deadline);
            }
            for _ in 0..self.dice.users.between(1, 2) {
                let members = self.cells[cell].views.last().map_or(&[][..], |view| view.members.as_slice());
                let node = self.dice.users.pick(members).map_or(0, |node| node.0 as usize);
                self.want(node, cell)?;
            }
        }
        self.run_until_satisfied()?;
        self.summary.recovered_in = Some(self.now.since(healed));
        Ok(())
    }

    fn run_until_satisfied(&mut self) -> Result<(), Violation> {
        while !self.checkers.liveness.is_satisfied() {
            self.run_until(self.now + STEP)?;
            self.checkers.liveness.check(self.now)?;
        }
        Ok(())
    }

    /// Whoever does not own a cell stops wanting it, and the last late messages arrive.
    fn let_rivals_go(&mut self) -> Result<(), Violation> {
        let settled = self.now + self.plan.network.late_max + self.config.t_max;
        self.forget_rivals();
        self.run_until(settled)?;
        self.forget_rivals();
        self.run_until(settled + self.config.t_max * 2)?;
        self.checkers.liveness.calm_down(self.now);
        Ok(())
    }

    fn forget_rivals(&mut self) {
        for cell in 0..self.cells.len() {
            self.cells[cell].wanted = self.owner_of(cell).map_or(0, |owner| 1 << owner);
        }
    }

    /// Every node is named the successor for some cells, and must become their owner.
    fn give_everybody_a_turn(&mut self) -> Result<(), Violation> {
        let deadline = self.now + succession_bound(&self.config);
        let mut given = vec![false; self.cells.len()];
        for node in 0..self.hosts.len() {
            for _ in 0..TURNS {
                if let Some(cell) = self.turn_for(node, &given) {
                    given[cell] = true;
                    self.hand_to(node, cell, deadline)?;
                }
            }
        }
        self.run_until_satisfied()
    }

    /// A cell that somebody else owns and this node may own.
    fn turn_for(&self, node: usize, given: &[bool]) -> Option<usize> {
        let id = self.hosts[node].id;
        (0..self.cells.len()).find(|&cell| {
            let is_member = self.cells[cell].views.last().is_some_and(|view| view.members.contains(id));
            !given[cell] && is_member && self.owner_of(cell).is_some_and(|owner| owner != node)
        })
    }

    fn hand_to(&mut self, node: usize, cell: usize, deadline: TrueTime) -> Result<(), Violation> {
        let Some(owner) = self.owner_of(cell) else { return Ok(()) };
        let (id, who) = (self.cells[cell].id, self.hosts[node].id);
        self.checkers.liveness.expect(self.now, id, Some(who), deadline);
        self.give_up(owner, cell, Some(node))?;
        self.want(node, cell)
    }
}
