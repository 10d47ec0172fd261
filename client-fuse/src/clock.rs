//! The clock by which the kernel counts for how long it believes something: it stands still while the machine sleeps. The only place of
//! this crate that reads a clock.

use std::time::Instant;

pub(crate) fn now() -> Instant {
    Instant::now()
}
