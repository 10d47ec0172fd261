//! Whether the time of the last change that is shown of a file is right: not earlier than it was shown before, nor than the clocks were when
//! something was written before, but by as much as clocks are apart.

use base::{Span, WallTime};

use crate::check::Moment;

/// Something that says of a time that it is not too late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dated {
    /// Between these two it was so.
    pub called: Moment,
    /// See there.
    pub returned: Moment,
    /// The file was changed at this time or later.
    pub time: WallTime,
    /// Whether that was shown to somebody who looked.
    pub is_look: bool,
}

/// What is wrong with what was shown, if anything: which look it was, and what it should have known.
pub fn misdated(dated: &[Dated], apart: Span) -> Option<(usize, usize)> {
    let mut known: Vec<usize> = (0..dated.len()).collect();
    known.sort_by_key(|&place| dated[place].returned);
    // The latest of all up to each.
    let latest: Vec<usize> = known
        .iter()
        .scan(None, |latest, &place| {
            let before = latest.filter(|&before: &usize| dated[before].time >= dated[place].time);
            *latest = Some(before.unwrap_or(place));
            *latest
        })
        .collect();
    dated.iter().enumerate().filter(|(_, look)| look.is_look).find_map(|(place, look)| {
        let before = known.partition_point(|&other| dated[other].returned < look.called);
        let latest = latest[..before].last().filter(|&&latest| dated[latest].time > look.time + apart)?;
        Some((place, *latest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOGETHER: Span = Span::ZERO;

    fn dated(span: (u64, u64), time: u64, is_look: bool) -> Dated {
        let time = WallTime::from_micros(time);
        Dated { called: Moment(span.0), returned: Moment(span.1), time, is_look }
    }

    #[test]
    fn what_was_shown_once_is_not_shown_earlier() {
        let shown = [dated((1, 2), 5, true), dated((3, 4), 7, true)];
        assert_eq!(misdated(&shown, TOGETHER), None);
        let earlier = [shown[1], dated((5, 6), 6, true), shown[0]];
        assert_eq!(misdated(&earlier, TOGETHER), Some((1, 0)));
        assert_eq!(misdated(&earlier, Span::from_micros(1)), None, "another clock");
        assert_eq!(misdated(&[shown[1], dated((4, 6), 6, true)], TOGETHER), None, "they looked at once");
    }

    #[test]
    fn what_was_written_is_in_what_is_shown_later() {
        let written = [dated((1, 2), 5, false), dated((1, 4), 7, false)];
        assert_eq!(misdated(&[written[0], written[1], dated((3, 5), 5, true)], TOGETHER), None);
        assert_eq!(misdated(&[written[0], dated((3, 5), 4, true), written[1]], TOGETHER), Some((1, 0)));
        assert_eq!(misdated(&[written[1], dated((5, 6), 6, true)], TOGETHER), Some((1, 0)));
        assert_eq!(
            misdated(&[dated((5, 6), 7, true), dated((7, 8), 1, false)], TOGETHER),
            None,
            "a clock may be slow"
        );
    }
}
