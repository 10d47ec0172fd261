//! Whatever is accepted is exactly what our encoder writes for it.

use proptest::prelude::*;

use crate::samples::{again, arrive, samples};

/// A sample with a few bytes changed, and its lengths kept true.
fn damaged() -> impl Strategy<Value = (usize, Vec<(prop::sample::Index, u8)>)> {
    (0..samples().len(), proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn damage_is_refused_or_is_another_message((index, changes) in damaged()) {
        let sample = samples().remove(index);
        let mut frame = sample.frame;
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        // The damage may have made it a frame of another kind, or one whose end is missing.
        if let Ok(Some(admitted)) = arrive(&frame, sample.kind.lane(), &sample.role)
            && let Ok(again) = again(&admitted)
            && frame[1] == wire::PROTOCOL_VERSION
        {
            prop_assert_eq!(&again[..], &frame[..again.len()]);
        }
    }

    #[test]
    fn garbage_behind_a_header_is_refused_or_is_a_message(
        index in 1..samples().len(),
        body in proptest::collection::vec(prop_oneof![0..9_u8, any::<u8>()], 0..200),
    ) {
        let sample = samples().remove(index);
        let mut frame = sample.frame[..wire::HEADER_BYTES].to_vec();
        frame[4..8].copy_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
        frame[8..12].fill(0);
        frame.extend(body);
        if let Ok(Some(admitted)) = arrive(&frame, sample.kind.lane(), &sample.role)
            && let Ok(again) = again(&admitted)
        {
            prop_assert_eq!(again, frame);
        }
    }
}
