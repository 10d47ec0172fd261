//! Leftovers: once nobody wants anything any more, daemons forget what there was, and trust their clocks.

use base::NodeId;

use super::Violation;
use super::evidence::{Fact, Machines};
use crate::TrueTime;

/// What a daemon has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// Whose.
    pub node: NodeId,
    /// Leases that it holds.
    pub leases: usize,
    /// Records of locks.
    pub records: usize,
    /// Leases that it wants.
    pub claims: usize,
    /// Whether it trusts its clock.
    pub is_trusted: bool,
}

/// Nobody has wanted anything since `quiet`, which is long enough.
pub fn check((quiet, at): (TrueTime, TrueTime), left: Left) -> Result<(), Violation> {
    let Left { node, leases, records, claims, is_trusted } = left;
    if (leases, records, claims, is_trusted) == (0, 0, 0, true) {
        return Ok(());
    }
    let what =
        format!("{node:?}: (leases, records, claims) {:?}, trusted: {is_trusted}", (leases, records, claims));
    let facts = [
        Fact::new(quiet, Machines::ALL, "nobody wants anything any more".into()),
        Fact::new(
            at,
            node,
            format!(
                "{node:?} has {leases} leases, {records} records and {claims} claims; trusts its clock: {is_trusted}"
            ),
        ),
    ];
    Err(Violation::new(at, "leftovers", what).shown_by(facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_left_breaks_it() {
        let (quiet, at) = (TrueTime::from_micros(1), TrueTime::from_micros(2));
        let nothing = Left { node: NodeId(1), leases: 0, records: 0, claims: 0, is_trusted: true };
        assert_eq!(check((quiet, at), nothing), Ok(()));
        for left in [
            Left { leases: 1, ..nothing },
            Left { records: 1, ..nothing },
            Left { claims: 1, ..nothing },
            Left { is_trusted: false, ..nothing },
        ] {
            let broken = check((quiet, at), left).unwrap_err();
            let times: Vec<TrueTime> = broken.shown.iter().map(|fact| fact.at).collect();
            assert_eq!((broken.checker, times), ("leftovers", vec![quiet, at]));
        }
    }
}
