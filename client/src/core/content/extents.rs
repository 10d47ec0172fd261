//! What a client has written to a file, and no daemon has taken in for good.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::FlushId;

/// Writes that follow each other become one piece up to this length, and what is shorter is copied, so that it keeps no buffer that is
/// longer.
const SMALL_BYTES: usize = 16 << 10;
/// What a piece takes beside its data.
const PIECE_BYTES: usize = 256;

/// A piece that follows no other one without a gap, or was written another time.
#[derive(Clone, Debug)]
struct Piece {
    data: Bytes,
    /// Which write this was, or the first one that it stands for.
    order: u64,
    /// With what it is sent, if it is.
    flush: Option<FlushId>,
}

/// Pieces that do not overlap, by their offsets.
#[derive(Debug, Default)]
pub(super) struct Extents {
    pieces: BTreeMap<u64, Piece>,
    /// How many pieces are of each write, or stand for it first.
    orders: BTreeMap<u64, usize>,
    bytes: usize,
    /// So many pieces are not being sent.
    waiting: usize,
}

impl Extents {
    /// The memory that it takes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Where the last of it ends.
    pub(super) fn end(&self) -> Option<u64> {
        self.pieces.last_key_value().map(|(start, piece)| start + piece.data.len() as u64)
    }

    /// Whether something is not even being sent.
    pub(super) const fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// The first write of which something is here.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.orders.first_key_value().map(|(&order, _)| order)
    }

    /// Something is written. What it is written over and was not sent need not be sent any more, and was to be durable as early as
    /// this.
    pub(super) fn put(&mut self, offset: u64, data: &Bytes, order: u64) {
        let end = offset + data.len() as u64;
        let covered = self.remove(offset..end);
        let order = covered.map_or(order, |covered| order.min(covered));
        let before = self.pieces.range(..offset).next_back();
        let joins = before.filter(|(start, piece)| {
            let follows = *start + piece.data.len() as u64 == offset;
            follows && piece.flush.is_none() && piece.data.len() + data.len() <= SMALL_BYTES
        });
        match joins.map(|(&start, _)| start) {
            Some(start) => {
                let before = self.take(start);
                let mut joined = BytesMut::with_capacity(before.data.len() + data.len());
                joined.extend_from_slice(&before.data);
                joined.extend_from_slice(data);
                let order = order.min(before.order);
                self.insert(start, Piece { data: joined.freeze(), order, flush: None });
            }
            None if data.len() < SMALL_BYTES => {
                let data = Bytes::copy_from_slice(data);
                self.insert(offset, Piece { data, order, flush: None });
            }
            None => self.insert(offset, Piece { data: data.clone(), order, flush: None }),
        }
    }

    /// Nothing is in this range any more. Returns the first write of which something was there that was not being sent.
    pub(super) fn remove(&mut self, range: Range<u64>) -> Option<u64> {
        let mut oldest = None;
        for start in self.starts(&range) {
            let piece = self.take(start);
            let end = start + piece.data.len() as u64;
            if piece.flush.is_none() {
                oldest = Some(oldest.map_or(piece.order, |oldest: u64| oldest.min(piece.order)));
            }
            if start < range.start {
                let data = piece.data.slice(..length(range.start - start));
                self.insert(start, Piece { data, ..piece.clone() });
            }
            if end > range.end {
                let data = piece.data.slice(length(range.end - start)..);
                self.insert(range.end, Piece { data, ..piece });
            }
        }
        oldest
    }

    /// What is in a range.
    pub(super) fn within(&self, range: &Range<u64>) -> Vec<(u64, Bytes)> {
        let cut = |start: u64| {
            let data = &self.pieces[&start].data;
            let end = start + data.len() as u64;
            let (from, upto) = (start.max(range.start), end.min(range.end));
            (from, data.slice(length(from - start)..length(upto - start)))
        };
        self.starts(range).into_iter().map(cut).collect()
    }

    /// What is to be sent next, by this name: the first pieces that follow each other, up to a multiple of `unit`, and that are no part of
    /// what is under way. The first of what was written up to a change that somebody wants goes before others.
    pub(super) fn send(
        &mut self,
        flush: FlushId,
        unit: u64,
        (under_way, wanted): (&[Range<u64>], Option<u64>),
    ) -> Option<(u64, Vec<Bytes>, u64)> {
        let is_free = |start: u64, piece: &Piece| {
            let end = start + piece.data.len() as u64;
            piece.flush.is_none() && under_way.iter().all(|range| end <= range.start || start >= range.end)
        };
        let mut free = self.pieces.iter().filter(|(start, piece)| is_free(**start, piece));
        // Without that one all of them would be looked at.
        let first = wanted.and_then(|wanted| free.clone().find(|(_, piece)| piece.order <= wanted));
        let (&first, _) = first.or_else(|| free.next())?;
        let limit = (first / unit + 1) * unit;
        let (mut next, mut order, mut data) = (first, u64::MAX, Vec::new());
        while next < limit
            && let Some(piece) = self.pieces.get(&next).filter(|piece| is_free(next, piece))
        {
            let end = next + piece.data.len() as u64;
            order = order.min(piece.order);
            if end > limit {
                let piece = self.take(next);
                let (sent, rest) =
                    (piece.data.slice(..length(limit - next)), piece.data.slice(length(limit - next)..));
                self.insert(limit, Piece { data: rest, ..piece.clone() });
                self.insert(next, Piece { data: sent, ..piece });
            }
            let mut piece = self.take(next);
            piece.flush = Some(flush);
            data.push(piece.data.clone());
            self.insert(next, piece);
            next = end.min(limit);
        }
        Some((first, data, order))
    }

    /// What was sent by this name, of a range, is taken in. Returns what of that was not written over meanwhile.
    pub(super) fn sent(&mut self, flush: FlushId, range: &Range<u64>) -> Vec<(u64, Bytes)> {
        let mut starts = self.starts(range);
        starts.retain(|start| self.pieces[start].flush == Some(flush));
        starts.into_iter().map(|start| (start, self.take(start).data)).collect()
    }

    /// What was sent by this name, from a range and in writes from this one on, is to be sent again. What was written over it meanwhile stands for
    /// that, too, and is to be durable as early.
    pub(super) fn unsent(&mut self, flush: FlushId, (range, order): (&Range<u64>, u64)) {
        for start in self.starts(range) {
            let piece = self.take(start);
            let sent_with = piece.flush.filter(|&sent_with| sent_with != flush);
            self.insert(start, Piece { order: piece.order.min(order), flush: sent_with, ..piece });
        }
    }

    /// Where the pieces begin that have something in a range.
    fn starts(&self, range: &Range<u64>) -> Vec<u64> {
        if range.is_empty() {
            return Vec::new();
        }
        let before = self.pieces.range(..range.start).next_back();
        let before = before.filter(|(start, piece)| **start + piece.data.len() as u64 > range.start);
        before.into_iter().chain(self.pieces.range(range.clone())).map(|(&start, _)| start).collect()
    }

    fn take(&mut self, start: u64) -> Piece {
        let piece = self.pieces.remove(&start).expect("it was found there");
        self.bytes -= piece.data.len() + PIECE_BYTES;
        self.waiting -= usize::from(piece.flush.is_none());
        let count = self.orders.get_mut(&piece.order).expect("each piece is counted");
        *count -= 1;
        if *count == 0 {
            self.orders.remove(&piece.order);
        }
        piece
    }

    fn insert(&mut self, start: u64, piece: Piece) {
        self.bytes += piece.data.len() + PIECE_BYTES;
        self.waiting += usize::from(piece.flush.is_none());
        *self.orders.entry(piece.order).or_default() += 1;
        let before = self.pieces.insert(start, piece);
        assert!(before.is_none(), "what was there was removed");
    }
}

/// A length within a piece, which is in memory.
fn length(bytes: u64) -> usize {
    usize::try_from(bytes).expect("no piece is longer than memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = 100;

    fn put(extents: &mut Extents, offset: u64, text: &str, order: u64) {
        extents.put(offset, &Bytes::copy_from_slice(text.as_bytes()), order);
    }

    fn all(extents: &Extents) -> Vec<(u64, Bytes)> {
        extents.within(&(0..u64::MAX))
    }

    fn text(extents: &Extents) -> Vec<(u64, String)> {
        let text = |(offset, data): (u64, Bytes)| (offset, String::from_utf8(data.to_vec()).unwrap());
        all(extents).into_iter().map(text).collect()
    }

    fn send(extents: &mut Extents, number: u64, under_way: &[Range<u64>]) -> Option<(u64, String)> {
        let (offset, data, _) = extents.send(FlushId(number), UNIT, (under_way, None))?;
        Some((offset, String::from_utf8(data.concat()).unwrap()))
    }

    #[test]
    fn what_is_written_last_is_what_is_there() {
        let mut extents = Extents::default();
        put(&mut extents, 0, "aaaaaaaa", 1);
        put(&mut extents, 2, "bb", 2);
        put(&mut extents, 10, "c", 3);
        assert_eq!(text(&extents), [(0, "aabb".into()), (4, "aaaa".into()), (10, "c".into())]);
        assert_eq!(extents.within(&(3..5)), [(3, Bytes::from("b")), (4, Bytes::from("a"))]);
        extents.remove(1..5);
        assert_eq!(text(&extents), [(0, "a".into()), (5, "aaa".into()), (10, "c".into())]);
        extents.remove(0..u64::MAX);
        assert!(extents.is_empty() && extents.bytes() == 0 && !extents.has_waiting());
    }

    #[test]
    fn small_writes_that_follow_each_other_are_one_piece() {
        let mut extents = Extents::default();
        for number in 0..50 {
            put(&mut extents, number, "x", number);
        }
        assert_eq!(extents.pieces.len(), 1);
        assert_eq!(extents.oldest(), Some(0), "it is as old as its oldest part");
    }

    #[test]
    fn what_is_written_over_was_to_be_durable_as_early() {
        let mut extents = Extents::default();
        put(&mut extents, 0, "aaaa", 1);
        put(&mut extents, 0, "bbbb", 2);
        assert_eq!(extents.oldest(), Some(1));
        send(&mut extents, 1, &[]);
        put(&mut extents, 0, "cccc", 3);
        assert_eq!(extents.oldest(), Some(3), "what it is written over was sent");
    }

    #[test]
    fn it_is_sent_in_the_order_of_offsets_and_in_units() {
        let mut extents = Extents::default();
        put(&mut extents, 250, "z", 1);
        put(&mut extents, 90, &"a".repeat(30), 2);
        assert_eq!(send(&mut extents, 1, &[]), Some((90, "a".repeat(10))));
        assert_eq!(send(&mut extents, 2, &[]), Some((100, "a".repeat(20))));
        assert_eq!(send(&mut extents, 3, &[]), Some((250, "z".into())));
        assert_eq!(send(&mut extents, 4, &[]), None);
        assert!(!extents.has_waiting());
    }

    #[test]
    fn what_is_wanted_goes_before_what_was_written_later() {
        let mut extents = Extents::default();
        put(&mut extents, 500, "wanted", 1);
        put(&mut extents, 0, "later", 2);
        let (offset, ..) = extents.send(FlushId(1), UNIT, (&[], Some(1))).unwrap();
        assert_eq!(offset, 500);
        let (offset, ..) = extents.send(FlushId(2), UNIT, (&[], Some(1))).unwrap();
        assert_eq!(offset, 0);
    }

    #[test]
    fn what_is_written_again_while_it_is_sent_waits_for_that() {
        let mut extents = Extents::default();
        put(&mut extents, 0, "aaaa", 1);
        assert_eq!(send(&mut extents, 1, &[]), Some((0, "aaaa".into())));
        put(&mut extents, 1, "bb", 2);
        put(&mut extents, 50, "c", 3);
        let under_way = 0..4;
        assert_eq!(send(&mut extents, 2, std::slice::from_ref(&under_way)), Some((50, "c".into())));
        assert_eq!(send(&mut extents, 3, std::slice::from_ref(&under_way)), None);
        assert_eq!(extents.sent(FlushId(1), &under_way), [(0, Bytes::from("a")), (3, Bytes::from("a"))]);
        assert_eq!(send(&mut extents, 3, &[]), Some((1, "bb".into())));
    }

    /// As whoever writes here and there in a large file has them. If each were looked for among all it would take minutes.
    #[test]
    fn a_hundred_thousand_pieces_are_sent_in_a_moment() {
        let begun = std::time::Instant::now();
        let mut extents = Extents::default();
        for number in 0..100_000 {
            put(&mut extents, number * 2 * UNIT, "x", number + 1);
        }
        for number in 0..100_000 {
            assert_eq!(extents.oldest(), Some(number + 1));
            let (offset, ..) = extents.send(FlushId(number), UNIT, (&[], None)).unwrap();
            assert_eq!(extents.sent(FlushId(number), &(offset..offset + 1)).len(), 1);
        }
        assert!(extents.is_empty());
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    }

    #[test]
    fn what_did_not_come_to_be_is_sent_again() {
        let mut extents = Extents::default();
        put(&mut extents, 0, "aaaa", 1);
        send(&mut extents, 1, &[]);
        extents.unsent(FlushId(1), (&(0..4), 1));
        assert_eq!(send(&mut extents, 2, &[]), Some((0, "aaaa".into())));
    }
}
