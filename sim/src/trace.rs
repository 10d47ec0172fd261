//! The trace: a line for everything that happens, or nothing at all.
//!
//! A run without a trace costs nothing and is the same run; whoever wants to see what led to a violation runs the
//! seed again with a trace.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};

use base::ObjectId;

use crate::TrueTime;

/// Where lines go.
#[derive(Default)]
pub struct Trace<'a> {
    sink: Option<&'a mut dyn Write>,
    only: Option<ObjectId>,
}

/// A sink that remembers the last lines and forgets the rest.
#[derive(Debug)]
pub struct Tail {
    lines: VecDeque<String>,
    lines_max: usize,
    unfinished: Vec<u8>,
}

impl Tail {
    /// Remembers `lines_max` lines.
    pub const fn new(lines_max: usize) -> Self {
        Self { lines: VecDeque::new(), lines_max, unfinished: Vec::new() }
    }

    /// The lines, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}

impl Write for Tail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            if byte != b'\n' {
                self.unfinished.push(byte);
                continue;
            }
            if self.lines.len() == self.lines_max {
                self.lines.pop_front();
            }
            self.lines.push_back(String::from_utf8_lossy(&self.unfinished).into_owned());
            self.unfinished.clear();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> Trace<'a> {
    /// No trace.
    pub const fn off() -> Self {
        Self { sink: None, only: None }
    }

    /// Everything goes to `sink`.
    pub fn all(sink: &'a mut dyn Write) -> Self {
        Self { sink: Some(sink), only: None }
    }

    /// What concerns `cell` goes to `sink`, and what concerns no cell in particular.
    pub fn of_cell(cell: ObjectId, sink: &'a mut dyn Write) -> Self {
        Self { sink: Some(sink), only: Some(cell) }
    }

    /// Whether anybody listens.
    pub const fn is_on(&self) -> bool {
        self.sink.is_some()
    }

    /// Writes a line. A sink that fails ends the trace, not the run.
    pub fn line(&mut self, at: TrueTime, cell: Option<ObjectId>, what: fmt::Arguments<'_>) {
        let Some(sink) = &mut self.sink else { return };
        if self.only.is_some() && cell.is_some() && cell != self.only {
            return;
        }
        let written = match cell {
            Some(cell) => writeln!(sink, "{at} [{cell:?}] {what}"),
            None => writeln!(sink, "{at} {what}"),
        };
        if written.is_err() {
            self.sink = None;
        }
    }
}

impl fmt::Debug for Trace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace {{ on: {}, only: {:?} }}", self.is_on(), self.only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_keeps_the_last_lines() {
        let mut tail = Tail::new(2);
        write!(tail, "one\ntw").unwrap();
        write!(tail, "o\nthree\nfo").unwrap();
        assert_eq!(tail.lines().collect::<Vec<_>>(), ["two", "three"]);
    }

    #[test]
    fn a_trace_of_one_cell_leaves_the_others_out() {
        let (one, other) = (ObjectId::new(0, 1), ObjectId::new(0, 2));
        let mut sink = Vec::new();
        let mut trace = Trace::of_cell(one, &mut sink);
        trace.line(TrueTime::from_micros(5), Some(one), format_args!("mine"));
        trace.line(TrueTime::from_micros(6), Some(other), format_args!("theirs"));
        trace.line(TrueTime::from_micros(7), None, format_args!("everybody's"));
        assert_eq!(String::from_utf8(sink).unwrap(), "0.000005 [0:1] mine\n0.000007 everybody's\n");
    }
}
