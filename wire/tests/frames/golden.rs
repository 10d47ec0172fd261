//! The frames of the samples, byte for byte: whoever changes one of these changes the protocol.

use crate::samples::samples;

/// Groups of digits belong together; `docs/wire.md` says what they are.
const GOLDEN: [(&str, &str); 12] = [
    (
        "lease",
        "01 01 0100 ddccbbaa 01000000 02000000 2211000000000000 \
         e1 7700000000000000 0005000000000000",
    ),
    (
        "hello",
        "02 01 0000 5a000000 00000000 7369787465656e20627974652069642e 03 \
         d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1 \
         00 01 ac02 612064617461206469726563746f7279 ef9bafcdf8acd19101 ab02 808080808020 01 02 8001",
    ),
    ("welcome", "03 01 0000 00000000 00000000"),
    ("refusal", "04 01 0000 01000000 13000000 03 6d6170203320686572652c2032207468657265"),
    ("heartbeat", "05 01 0000 07000000 00000000 01 01 8002 ac02 01"),
    (
        "peer",
        "06 01 0000 47000000 00000000 09 \
         00 8001 01 05 01 02 03 04 05 06 \
         01 8001 01 05 01 01 05 01 07 01 02 01 ff01 01 808001 00 \
         02 8001 01 05 01 07 01 02 00 \
         03 8001 01 05 01 07 \
         04 8001 01 05 01 09 \
         05 \
         06 8001 01 05 01 \
         07 8001 01 05 01 \
         08 0b",
    ),
    (
        "client",
        "07 01 0000 21000000 00000000 c801 06 \
         01 00 01 02 01 \
         02 01 01 02 808001 \
         03 02 01 02 03 \
         04 03 01 02 01 \
         05 04 01 02 \
         06 05 01 02",
    ),
    (
        "daemon",
        "08 01 0000 23000000 00000000 c801 08 \
         00 01 00 808001 \
         00 02 01 \
         00 03 07 02 \
         00 04 08 06 \
         00 05 09 ac02 \
         01 01 02 03 01 02 \
         02 03 04 \
         03",
    ),
    ("notice", "09 01 0000 0b000000 00000000 02 ac02 ab02 808080808020"),
    ("notice ack", "0a 01 0000 03000000 00000000 02 ac02"),
    ("status request", "0b 01 0000 00000000 00000000"),
    (
        "status",
        "0c 01 0000 5c000000 00000000 01 ac02 612064617461206469726563746f7279 05 302e312e30 e807 \
         7369787465656e20627974652069642e 03 04 64316431 00 01 01 9601 a08d06 01 0c 02 03 04 05 06 07 08 09 0a 0b \
         80a4a7da06 01 01 01 00 00 01 02 01 09 01 01 c801 01 0c 01 05 08",
    ),
];

#[test]
fn frames_look_as_documented() {
    let samples = samples();
    assert_eq!(samples.len(), GOLDEN.len());
    for (sample, (name, digits)) in samples.iter().zip(GOLDEN) {
        let digits: String = digits.split_whitespace().collect();
        let frame: String = sample.frame.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((sample.kind.to_string().as_str(), frame), (name, digits));
    }
}
