//! How much heap something takes: an allocator that counts.
//!
//! Counts are kept per thread, so that counting costs a daemon's threads no contention; a measurement allocates and
//! frees what it measures on one thread.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

use tikv_jemallocator::Jemalloc;

thread_local! {
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

/// jemalloc, counting. The command installs it as its global allocator.
pub struct CountingAllocator;

/// The bytes that this thread has allocated more than it has freed.
pub fn live_bytes() -> i64 {
    LIVE_BYTES.with(Cell::get)
}

fn count(bytes: usize, sign: i64) {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    // A thread that is ending has no counter any more; what it frees then is not measured.
    let _ = LIVE_BYTES.try_with(|live| live.set(live.get().wrapping_add(bytes.wrapping_mul(sign))));
}

// SAFETY: every call goes to jemalloc with the arguments it came with, so its guarantees are ours.
// The counter is a plain thread-local without a destructor and allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promise on `layout` is passed on.
        unsafe { Jemalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promise on `layout` is passed on.
        unsafe { Jemalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller's promises on `block` and `layout` are passed on.
        unsafe { Jemalloc.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(new_size, 1);
        // SAFETY: the caller's promises on `block`, `layout` and `new_size` are passed on.
        unsafe { Jemalloc.realloc(block, layout, new_size) }
    }
}
