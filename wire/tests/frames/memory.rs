//! Decoding takes no more memory than declared, whatever the input says.

use base::Role;
use bytes::Bytes;
use proptest::prelude::*;
use wire::{ALLOCATED_PER_BYTE_MAX, Frame, FrameReader, Kind, Lane, PROTOCOL_VERSION};

use crate::allocator::allocated_by;
use crate::samples::{decode, samples};

/// What any input may take: errors, and the first steps of buffers that grow.
const ALLOCATED_ALWAYS_MAX: usize = 1_024;

/// What it takes to receive `bytes` in pieces of `step` and to decode every frame in them.
fn memory_for(bytes: &[u8], lane: Lane, role: &Role, step: usize) -> usize {
    let (bytes, mut reader) = (Bytes::copy_from_slice(bytes), FrameReader::new(role.clone()));
    let work = || match lane {
        Lane::Datagram => {
            let frame = Frame::from_datagram(bytes).and_then(|frame| frame.admit(role));
            drop(frame.map(|frame| decode(&frame)));
        }
        Lane::Stream => {
            for start in (0..bytes.len()).step_by(step) {
                let mut piece = bytes.slice(start..bytes.len().min(start + step));
                while let Ok(Some(frame)) = reader.next(&mut piece) {
                    drop(decode(&frame));
                }
            }
        }
    };
    allocated_by(work).1
}

fn check(bytes: &[u8], lane: Lane, role: &Role, step: usize) {
    let allocated = memory_for(bytes, lane, role, step);
    let allowed = ALLOCATED_ALWAYS_MAX + ALLOCATED_PER_BYTE_MAX * bytes.len();
    assert!(allocated <= allowed, "{allocated} bytes of memory for {} of input: {bytes:02x?}", bytes.len());
}

#[test]
fn the_counter_counts() {
    let full = samples().remove(Kind::Peer as usize - 1);
    assert!(memory_for(&full.frame, Lane::Stream, &full.role, full.frame.len()) > 0);
}

#[test]
fn announcements_cost_nothing() {
    for kind in Kind::ALL {
        let role = samples().remove(kind as usize - 1).role;
        // The longest frame that the header may announce, and nothing of it.
        for len in (0..32).rev().map(|bit| 1_u32 << bit) {
            let header = [&[kind as u8, PROTOCOL_VERSION, 0, 0][..], &len.to_le_bytes(), &[0; 4]].concat();
            let allocated = memory_for(&header, kind.lane(), &role, 5);
            assert!(allocated <= ALLOCATED_ALWAYS_MAX, "{kind}: {allocated} bytes for a header alone");
        }
    }
    // Batches that announce as many messages as they may, as densely as can be.
    for (kind, message) in [(Kind::Peer, 5), (Kind::Daemon, 3)] {
        for count in [1_usize, 100, 4_096] {
            let mut metadata = if kind == Kind::Daemon { vec![1] } else { vec![] };
            metadata.extend([u8::try_from(count & 0x7f).unwrap() | 0x80, u8::try_from(count >> 7).unwrap()]);
            metadata.extend(std::iter::repeat_n(message, count));
            let len = u32::try_from(metadata.len()).unwrap().to_le_bytes();
            let frame = [&[kind as u8, PROTOCOL_VERSION, 0, 0], &len[..], &[0; 4], &metadata].concat();
            check(&frame, Lane::Stream, &"node/1".parse().unwrap(), 1_000);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn damage_takes_no_more_memory_than_declared(
        index in 0..samples().len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        step in 1..200_usize,
    ) {
        let mut sample = samples().remove(index);
        for (at, byte) in changes {
            let at = at.index(sample.frame.len());
            sample.frame[at] = byte;
        }
        check(&sample.frame, sample.kind.lane(), &sample.role, step);
    }
}
