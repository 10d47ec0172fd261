//! How much may be on its way at once: what Cubic finds out, but never more than the receiver's socket can hold.
//!
//! Cubic grows until packets are lost. Between two machines of one room, and on one machine, the first thing that
//! overflows is the receiver's socket buffer, whenever its process does not run for a moment. A stream repeats what
//! was lost there; a burst of datagrams has lost it for good. Both ends of a cluster run alike, so our own buffer
//! says what the other side's holds.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn::congestion::{Controller, ControllerFactory, CubicConfig};
use quinn_proto::RttEstimator;

/// So many peers may fill a receiver's buffer at once. More rarely do.
const SHARES: usize = 4;
/// Less than this would make every transfer stop and go.
const WINDOW_BYTES_MIN: usize = 64 << 10;

/// Makes [`Bounded`] controllers.
pub(crate) struct BoundedCubic {
    cubic: Arc<CubicConfig>,
    window_max: u64,
}

/// Cubic below a bound.
struct Bounded {
    cubic: Box<dyn Controller>,
    window_max: u64,
}

impl BoundedCubic {
    /// For connections whose receiver has `buffer_bytes` of socket buffer. `at_start` is how much may be on its way
    /// at first, if the bound allows and it is not to be Cubic's own choice.
    pub(crate) fn new(buffer_bytes: usize, at_start: Option<u64>) -> Self {
        let window_max = (buffer_bytes / SHARES).max(WINDOW_BYTES_MIN) as u64;
        let mut cubic = CubicConfig::default();
        if let Some(at_start) = at_start {
            cubic.initial_window(at_start.min(window_max));
        }
        Self { cubic: Arc::new(cubic), window_max }
    }
}

impl ControllerFactory for BoundedCubic {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let cubic = Arc::clone(&self.cubic).build(now, current_mtu);
        Box::new(Bounded { cubic, window_max: self.window_max })
    }
}

impl Controller for Bounded {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.cubic.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        // Grown far beyond the bound, Cubic would not come below it when packets are lost.
        if self.cubic.window() < self.window_max {
            self.cubic.on_ack(now, sent, bytes, app_limited, rtt);
        }
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest_acked: Option<u64>) {
        self.cubic.on_end_acks(now, in_flight, app_limited, largest_acked);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.cubic.on_congestion_event(now, sent, is_persistent, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.cubic.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.cubic.window().min(self.window_max)
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { cubic: self.cubic.clone_box(), window_max: self.window_max })
    }

    fn initial_window(&self) -> u64 {
        self.cubic.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::SOCKET_BUFFER_BYTES;

    #[tokio::test]
    async fn the_window_starts_within_its_bound_and_gives_way_to_losses() {
        let now = tokio::time::Instant::now().into_std();
        for (buffer, window) in [(SOCKET_BUFFER_BYTES, 1 << 20), (212_992, 64 << 10), (400_000, 100_000)] {
            let mut controller = Arc::new(BoundedCubic::new(buffer, Some(1 << 20))).build(now, 6_550);
            assert_eq!((controller.window(), controller.initial_window()), (window, window));
            controller.on_congestion_event(now, now, false, 1);
            assert!(controller.window() < window, "a loss at the bound is felt");
        }
    }
}
