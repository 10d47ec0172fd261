//! What a store remembers, and how each part looks inside its file.
//!
//! Layout: the bodies of `docs/disk.md`.

use std::collections::BTreeMap;

use base::{ClusterId, Incarnation, MonoTime, NodeId, StartId, StoreId, WallTime};
use node::{Chain, Met};

use super::record::{Damage, Fields, Kind};

/// One start a minute for four years. A daemon that restarts more often than that is not a daemon.
pub(super) const STARTS_MAX: usize = 1 << 21;
/// More than a cluster map can list.
pub(super) const PEERS_MAX: usize = 4_096;

const PEER_BYTES: usize = 32;
const NONCE_BYTES: usize = 8;
const STARTS_FIXED_BYTES: usize = 57;

/// A part of the store that has a file of its own.
pub(super) trait Table: Sized {
    const KIND: Kind;
    /// The most that `encode` can give.
    const BODY_BYTES_MAX: usize;
    /// Whether the file has two copies, which are overwritten: a full disk is no reason not to write them. All bodies
    /// are as long as the longest.
    const HAS_TWO_COPIES: bool = false;
    fn encode(&self) -> Vec<u8>;
    fn decode(body: Fields<'_>) -> Result<Self, Damage>;
}

/// Who a store belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The cluster.
    pub cluster: ClusterId,
    /// The daemon.
    pub node: NodeId,
}

/// A machine, one run of its kernel, and a lock there. Zeros stand for what could not be found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Boot {
    pub(super) machine: [u8; 16],
    pub(super) boot: [u8; 16],
    /// The device and the inode of the lock file: a copy of the directory has another one.
    pub(super) lock: [u64; 2],
}

/// All starts of the store so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Starts {
    /// Where the last start happened.
    pub(super) boot: Boot,
    pub(super) stopped_cleanly: bool,
    pub(super) chain: Chain,
}

/// Up to where node time may have been used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct TimeMark {
    /// Node time when this was written.
    pub(super) written: WallTime,
    /// What node time does not reach before the next mark is durable.
    pub(super) mark: WallTime,
    /// The run of the kernel in which this was written, zeros if unknown.
    pub(super) boot: [u8; 16],
    /// The clock since boot when this was written.
    pub(super) since_boot: MonoTime,
}

/// Above every epoch that this node has used or promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ceiling(pub(super) u64);

/// All peers that were ever admitted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Peers(pub(super) BTreeMap<NodeId, Met>);

/// What the store may have lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Losses {
    /// In epochs up to this one it may have lost what it had not synced.
    pub(super) forgot_at: Option<u64>,
    /// A write or a sync has failed: nobody knows what is on the disk.
    pub(super) has_failed: bool,
}

/// What an operator has ordered to last. Without its file nothing is ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Orders {
    /// The node is to lead nothing.
    pub(super) is_drained: bool,
}

impl Table for Orders {
    const KIND: Kind = Kind::Orders;
    const BODY_BYTES_MAX: usize = 1;

    fn encode(&self) -> Vec<u8> {
        vec![self.is_drained.into()]
    }

    fn decode(mut body: Fields<'_>) -> Result<Self, Damage> {
        let is_drained = body.u8()?;
        body.end()?;
        if is_drained <= 1 { Ok(Self { is_drained: is_drained == 1 }) } else { Err(Damage::Values) }
    }
}

impl Table for Losses {
    const KIND: Kind = Kind::Losses;
    const BODY_BYTES_MAX: usize = 10;
    const HAS_TWO_COPIES: bool = true;

    fn encode(&self) -> Vec<u8> {
        let number = self.forgot_at.unwrap_or_default().to_le_bytes();
        [&[self.has_failed.into(), self.forgot_at.is_some().into()], number.as_slice()].concat()
    }

    fn decode(mut body: Fields<'_>) -> Result<Self, Damage> {
        let (has_failed, has_forgotten, number) = (body.u8()?, body.u8()?, body.u64()?);
        body.end()?;
        let losses = Self { forgot_at: (has_forgotten == 1).then_some(number), has_failed: has_failed == 1 };
        let is_sound = has_failed <= 1 && has_forgotten <= 1 && (has_forgotten == 1 || number == 0);
        if is_sound { Ok(losses) } else { Err(Damage::Values) }
    }
}

impl Table for Owner {
    const KIND: Kind = Kind::Identity;
    const BODY_BYTES_MAX: usize = 20;

    fn encode(&self) -> Vec<u8> {
        [self.cluster.0.as_slice(), &self.node.0.to_le_bytes()].concat()
    }

    fn decode(mut body: Fields<'_>) -> Result<Self, Damage> {
        let owner = Self { cluster: ClusterId(body.array()?), node: NodeId(body.u32()?) };
        body.end()?;
        Ok(owner)
    }
}

impl Table for Starts {
    const KIND: Kind = Kind::Starts;
    const BODY_BYTES_MAX: usize = STARTS_FIXED_BYTES + STARTS_MAX * NONCE_BYTES;

    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(STARTS_FIXED_BYTES + self.chain.nonces().len() * NONCE_BYTES);
        body.extend(self.boot.machine);
        body.extend(self.boot.boot);
        body.extend(self.boot.lock.iter().flat_map(|half| half.to_le_bytes()));
        body.extend(self.chain.line().map_or(0, |line| line.incarnation.0).to_le_bytes());
        body.push(self.stopped_cleanly.into());
        body.extend(self.chain.incarnation().0.to_le_bytes());
        body.extend(self.chain.nonces().iter().flat_map(|nonce| nonce.to_le_bytes()));
        body
    }

    fn decode(mut body: Fields<'_>) -> Result<Self, Damage> {
        let (machine, boot) = (body.array()?, body.array()?);
        let boot = Boot { machine, boot, lock: [body.u64()?, body.u64()?] };
        let line = Incarnation(body.u32()?);
        let stopped_cleanly = match body.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Damage::Values),
        };
        let count = body.count(NONCE_BYTES)?;
        if count > STARTS_MAX {
            return Err(Damage::Length);
        }
        let nonces = (0..count).map(|_| body.u64()).collect::<Result<_, _>>()?;
        let chain = Chain::new(line, nonces).ok_or(Damage::Values)?;
        Ok(Self { boot, stopped_cleanly, chain })
    }
}

impl Table for TimeMark {
    const KIND: Kind = Kind::Time;
    const BODY_BYTES_MAX: usize = 40;
    const HAS_TWO_COPIES: bool = true;

    fn encode(&self) -> Vec<u8> {
        let (written, mark) = (self.written.as_micros().to_le_bytes(), self.mark.as_micros().to_le_bytes());
        let since_boot = self.since_boot.as_micros().to_le_bytes();
        [written.as_slice(), &mark, &self.boot, &since_boot].concat()
    }

    fn decode(mut body: Fields<'_>) -> Result<Self, Damage> {
        let (written, mark) = (WallTime::from_micros(body.u64()?), WallTime::from_micros(body.u64()?));
        let (boot, since_boot) = (body.array()?, MonoTime::from_micros(body.u64()?));
        body.end()?;
        if mark < written {
            return Err(Damage::Values);
        }
        Ok(Self { written, mark, boot, since_boot })
    }
}

impl Table for Ceiling {
    const KIND: Kind = Kind::Ceiling;
    const BODY_BYTES_MAX: usize = 8;
    const HAS_TWO_COPIES: bool = true;

    fn encode(&self) -> Vec<u8> {
        self.0.to_le_bytes().to_vec()
    }

    fn decode(mut body: Fields<'_>) -> Result<Self, Damage> {
        let ceiling = Self(body.u64()?);
        body.end()?;
        Ok(ceiling)
    }
}

impl Table for Peers {
    const KIND: Kind = Kind::Peers;
    const BODY_BYTES_MAX: usize = 4 + PEERS_MAX * PEER_BYTES;

    fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.0.len()).expect("bounded by PEERS_MAX");
        let mut body = Vec::with_capacity(4 + self.0.len() * PEER_BYTES);
        body.extend(count.to_le_bytes());
        for (node, peer) in &self.0 {
            body.extend(node.0.to_le_bytes());
            body.extend(peer.store.0);
            body.extend(peer.start.incarnation.0.to_le_bytes());
            body.extend(peer.start.nonce.to_le_bytes());
        }
        body
    }

    fn decode(mut body: Fields<'_>) -> Result<Self, Damage> {
        let count = body.count(PEER_BYTES)?;
        if count > PEERS_MAX {
            return Err(Damage::Length);
        }
        let mut peers = BTreeMap::new();
        for _ in 0..count {
            let node = NodeId(body.u32()?);
            let store = StoreId(body.array()?);
            let start = StartId { incarnation: Incarnation(body.u32()?), nonce: body.u64()? };
            let ascends = peers.last_key_value().is_none_or(|(last, _)| *last < node);
            if !ascends {
                return Err(Damage::Values);
            }
            peers.insert(node, Met { store, start });
        }
        Ok(Self(peers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads_back<T: Table + PartialEq + std::fmt::Debug>(table: &T) {
        let body = table.encode();
        assert!(body.len() <= T::BODY_BYTES_MAX);
        assert_eq!(&T::decode(Fields::new(&body)).unwrap(), table);
        for length in 0..body.len() {
            assert!(T::decode(Fields::new(&body[..length])).is_err(), "{length} bytes of {:?}", T::KIND);
        }
        assert!(T::decode(Fields::new(&[body.as_slice(), &[0]].concat())).is_err(), "{:?}", T::KIND);
    }

    #[test]
    fn tables_read_as_they_were_written() {
        reads_back(&Owner { cluster: ClusterId([1; 16]), node: NodeId(2) });
        let boot = Boot { machine: [3; 16], boot: [4; 16], lock: [5, 6] };
        let chain = Chain::new(Incarnation(2), vec![5, 6, u64::MAX]).unwrap();
        reads_back(&Starts { boot, stopped_cleanly: true, chain });
        let [written, mark] = [7, 8].map(WallTime::from_micros);
        reads_back(&TimeMark { written, mark, boot: [9; 16], since_boot: MonoTime::from_micros(10) });
        reads_back(&Ceiling(11));
        reads_back(&Losses { forgot_at: Some(12), has_failed: true });
        reads_back(&Losses::default());
        reads_back(&Orders { is_drained: true });
        let start = StartId { incarnation: Incarnation(13), nonce: 14 };
        let peer = Met { store: StoreId([12; 16]), start };
        reads_back(&Peers([(NodeId(1), peer), (NodeId(3), peer)].into()));
        reads_back(&Peers::default());
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        let starts = Starts { chain: Chain::default().begin(1, true), ..Starts::default() };
        for (place, value) in [(52, 2), (48, 2), (48, 0)] {
            let mut body = starts.encode();
            body[place] = value;
            assert_eq!(Starts::decode(Fields::new(&body)), Err(Damage::Values));
        }

        let start = StartId { incarnation: Incarnation(1), nonce: 1 };
        let peer = Met { store: StoreId([0; 16]), start };
        let mut body = Peers([(NodeId(1), peer), (NodeId(2), peer)].into()).encode();
        body[4] = 2;
        assert_eq!(Peers::decode(Fields::new(&body)), Err(Damage::Values), "a node stands there twice");

        let past = TimeMark { written: WallTime::from_micros(1), ..TimeMark::default() };
        assert_eq!(TimeMark::decode(Fields::new(&past.encode())), Err(Damage::Values));
    }
}
