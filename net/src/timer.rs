//! What quinn runs on: tokio, with timers that wake nobody for a time that no longer counts.
//!
//! tokio leaves a timer that is put off where it is registered, wakes its process when the first time has come, and only then registers
//! the later one. That is cheap where a timer is put off with each packet, and every second wake-up of a process that does nothing: once
//! a heartbeat is acknowledged, the timer that would have repeated it is put off until the connection is given up.

use std::future::Future;
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};
use tokio::time::{Sleep, sleep_until};

/// Who puts a timer off by more has nothing on its way.
const FAR: Duration = Duration::from_secs(1);

/// tokio, with our timers.
#[derive(Debug)]
pub(crate) struct Tokio;

#[derive(Debug)]
struct Timer(Pin<Box<Sleep>>);

impl Runtime for Tokio {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer(Box::pin(sleep_until(at.into()))))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        TokioRuntime.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        TokioRuntime.wrap_udp_socket(socket)
    }

    /// tokio's clock, and so a test's when that is paused.
    fn now(&self) -> Instant {
        TokioRuntime.now()
    }
}

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, at: Instant) {
        let (timer, at) = (self.0.as_mut(), at.into());
        if at > timer.deadline() + FAR {
            self.0.set(sleep_until(at));
        } else {
            Sleep::reset(timer, at);
        }
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Future::poll(self.0.as_mut(), context)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::runtime::{Builder, Handle};
    use tokio::time::sleep;

    use super::*;

    const BEATS: u64 = 20;

    /// How often a process waits during so many beats, each of which sets a timer and puts it off.
    fn waits(runs_on: Option<&dyn Runtime>) -> u64 {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let now = || tokio::time::Instant::now().into_std();
            let mut timer = runs_on.map(|runtime| runtime.new_timer(now()));
            for _ in 0..BEATS {
                for after in [Duration::from_millis(25), Duration::from_secs(30)] {
                    let Some(timer) = timer.as_mut() else { continue };
                    timer.as_mut().reset(now() + after);
                    assert!(timer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                }
                sleep(Duration::from_millis(100)).await;
            }
            Handle::current().metrics().worker_park_count(0)
        })
    }

    #[test]
    fn a_timer_that_is_put_off_for_long_wakes_nobody_before() {
        let without = waits(None);
        assert_eq!(waits(Some(&Tokio)), without);
        assert!(waits(Some(&TokioRuntime)) >= without + BEATS, "tokio's own needs no help any more");
    }
}
