//! Streams that arrive in pieces.

use bytes::Bytes;
use proptest::prelude::*;
use wire::{Admitted, FrameError, FrameReader, HEADER_BYTES, Kind, Lane, Message, encode};

use crate::samples::{self, again, samples};

fn frame<M: Message>(message: &M) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    bytes
}

/// What `reader` makes of a stream cut into `pieces`.
fn read(reader: &mut FrameReader, pieces: &[&[u8]]) -> Result<Vec<Admitted>, FrameError> {
    let mut frames = Vec::new();
    for piece in pieces {
        let mut piece = Bytes::copy_from_slice(piece);
        while let Some(frame) = reader.next(&mut piece)? {
            frames.push(frame);
        }
        assert!(piece.is_empty(), "a piece is used up before the reader asks for the next");
    }
    Ok(frames)
}

#[test]
fn every_frame_survives_every_cut() {
    for sample in samples().iter().filter(|sample| sample.kind.lane() == Lane::Stream) {
        for cut in 0..=sample.frame.len() {
            let mut reader = FrameReader::new(sample.role.clone());
            let (front, back) = sample.frame.split_at(cut);
            let frames = read(&mut reader, &[front]).unwrap();
            assert_eq!(frames.len(), usize::from(back.is_empty()), "{} cut at {cut}", sample.kind);
            assert_eq!(reader.pending(), if back.is_empty() { 0 } else { front.len() });
            let frames = [frames, read(&mut reader, &[back]).unwrap()].concat();
            let [frame] = frames.as_slice() else { panic!("{} cut at {cut} is no frame", sample.kind) };
            assert_eq!(again(frame).as_ref(), Ok(&sample.frame));
            assert_eq!(reader.pending(), 0);
        }
    }
}

#[test]
fn a_frame_in_one_piece_is_not_copied() {
    let bytes = Bytes::from(samples().remove(Kind::Refusal as usize - 1).frame);
    let mut piece = bytes.clone();
    let frame = FrameReader::new("node/1".parse().unwrap()).next(&mut piece).unwrap().unwrap();
    assert_eq!(frame.tail().as_ptr(), bytes[HEADER_BYTES + 1..].as_ptr());
}

#[test]
fn after_an_error_a_stream_has_no_more_frames() {
    let mut reader = FrameReader::new("node/1".parse().unwrap());
    let peer = frame(&samples::peer());
    assert_eq!(read(&mut reader, &[&peer]).unwrap().len(), 1);
    let error = read(&mut reader, &[&[99; HEADER_BYTES]]).unwrap_err();
    assert_eq!(error, FrameError::UnknownKind(99));
    assert_eq!(read(&mut reader, &[&peer]), Err(error));
}

#[test]
fn a_forbidden_frame_is_refused_at_its_header() {
    let role: base::Role = "client/a".parse().unwrap();
    let mut reader = FrameReader::new(role.clone());
    let header = &frame(&samples::peer())[..HEADER_BYTES];
    assert_eq!(read(&mut reader, &[header]), Err(FrameError::NotAdmitted { role, kind: Kind::Peer }));
    assert_eq!(reader.pending(), 0);
}

proptest! {
    #[test]
    fn a_stream_gives_the_same_frames_however_it_is_cut(
        order in proptest::collection::vec(0..3_usize, 1..8),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let frames = [frame(&samples::peer()), frame(&samples::daemon()), frame(&wire::Welcome)];
        let sent: Vec<Vec<u8>> = order.iter().map(|index| frames[*index].clone()).collect();
        let stream = sent.concat();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
        let mut reader = FrameReader::new("node/1".parse().unwrap());
        let received = read(&mut reader, &pieces).unwrap();
        let received: Vec<Vec<u8>> = received.iter().map(|frame| again(frame).unwrap()).collect();
        prop_assert_eq!(received, sent);
        prop_assert_eq!(reader.pending(), 0);
    }
}
