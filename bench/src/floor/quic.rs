//! The network's part: one sender and one or two receivers on loopback, with certificates on.

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use net::LOOPBACK_PACKET_BYTES;
use net::floor::{Carriage, FanOut, Load, RunError, StartError};
use serde::Serialize;

use crate::stats::{Latencies, median, mib_per_second, per_second};

/// A quarter of a gigabyte: long enough for a window to open, short enough for several rounds.
const LARGE: Load = Load { message_bytes: 1 << 20, messages: 256, carriage: Carriage::OneStream };
const LARGE_STREAM_EACH: Load = Load { carriage: Carriage::StreamEach, ..LARGE };
const SMALL: Load = Load { message_bytes: 128, messages: 1_000_000, carriage: Carriage::OneStream };
const ROUND_TRIPS: u32 = 5_000;

/// What quinn carries at best.
#[derive(Clone, Debug, Serialize)]
pub struct QuicFloor {
    /// 1 MiB messages to two receivers, on one stream to each. A byte counts once, though it goes twice.
    pub quic_fan_out_1m_mib_s: f64,
    /// The same with a stream for each message.
    pub quic_fan_out_1m_stream_each_mib_s: f64,
    /// 128-byte messages to two receivers, on one stream to each. A message counts once, though it goes twice.
    pub quic_fan_out_128b_messages_s: f64,
    /// 1 MiB messages to one receiver, on one stream.
    pub quic_single_stream_mib_s: f64,
    /// 128 bytes to a receiver and back, one at a time: half take no longer.
    pub quic_round_trip_p50_us: f64,
    /// The same: 99 of 100 take no longer.
    pub quic_round_trip_p99_us: f64,
    /// The largest packet's payload.
    pub quic_packet_bytes: u16,
    /// What the kernel granted each socket for sending.
    pub quic_socket_send_buffer_bytes: usize,
    /// What the kernel granted each socket for receiving.
    pub quic_socket_receive_buffer_bytes: usize,
}

/// Why the network could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum QuicFloorError {
    /// No threads to run on.
    #[error("could not start the threads to send and receive; check the limit on processes")]
    Runtime(#[source] io::Error),
    /// The endpoints did not come together.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Messages did not arrive.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A task panicked: a mistake in this program.
    #[error("a measuring task panicked")]
    Panicked,
}

struct Round {
    fan_out_1m_mib_s: f64,
    fan_out_1m_stream_each_mib_s: f64,
    fan_out_128b_messages_s: f64,
    single_stream_mib_s: f64,
    round_trip_p50_us: f64,
    round_trip_p99_us: f64,
}

pub(super) fn measure(
    rounds: NonZeroU32,
    processors: usize,
    before_round: impl FnMut(),
) -> Result<QuicFloor, QuicFloorError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(processors)
        .enable_all()
        .build()
        .map_err(QuicFloorError::Runtime)?
        .block_on(measure_rounds(rounds, before_round))
}

async fn measure_rounds(
    rounds: NonZeroU32,
    mut before_round: impl FnMut(),
) -> Result<QuicFloor, QuicFloorError> {
    let fan_out = Arc::new(FanOut::start().await?);
    let mut done = Vec::new();
    for _ in 0..rounds.get() {
        before_round();
        // On a worker thread, as the connections are: this thread would have to be woken for every message.
        let ended = tokio::spawn(round(Arc::clone(&fan_out))).await;
        done.push(ended.map_err(|_| QuicFloorError::Panicked)??);
    }
    let buffers = fan_out.buffers();
    fan_out.close().await;
    let middle = |figure: fn(&Round) -> f64| median(done.iter().map(figure));
    Ok(QuicFloor {
        quic_fan_out_1m_mib_s: middle(|round| round.fan_out_1m_mib_s),
        quic_fan_out_1m_stream_each_mib_s: middle(|round| round.fan_out_1m_stream_each_mib_s),
        quic_fan_out_128b_messages_s: middle(|round| round.fan_out_128b_messages_s),
        quic_single_stream_mib_s: middle(|round| round.single_stream_mib_s),
        quic_round_trip_p50_us: middle(|round| round.round_trip_p50_us),
        quic_round_trip_p99_us: middle(|round| round.round_trip_p99_us),
        quic_packet_bytes: LOOPBACK_PACKET_BYTES,
        quic_socket_send_buffer_bytes: buffers.send_bytes,
        quic_socket_receive_buffer_bytes: buffers.receive_bytes,
    })
}

async fn round(fan_out: Arc<FanOut>) -> Result<Round, RunError> {
    let large_bytes = u64::from(LARGE.message_bytes) * LARGE.messages;
    let begin = Instant::now();
    fan_out.run(LARGE).await?;
    let fan_out_1m_mib_s = mib_per_second(large_bytes, begin.elapsed());

    let begin = Instant::now();
    fan_out.run(LARGE_STREAM_EACH).await?;
    let fan_out_1m_stream_each_mib_s = mib_per_second(large_bytes, begin.elapsed());

    let begin = Instant::now();
    fan_out.run(SMALL).await?;
    let fan_out_128b_messages_s = per_second(SMALL.messages, begin.elapsed());

    let begin = Instant::now();
    fan_out.run_single(LARGE).await?;
    let single_stream_mib_s = mib_per_second(large_bytes, begin.elapsed());

    let mut latencies = round_trips(&fan_out).await?;
    Ok(Round {
        fan_out_1m_mib_s,
        fan_out_1m_stream_each_mib_s,
        fan_out_128b_messages_s,
        single_stream_mib_s,
        round_trip_p50_us: latencies.percentile_us(50),
        round_trip_p99_us: latencies.percentile_us(99),
    })
}

async fn round_trips(fan_out: &FanOut) -> Result<Latencies, RunError> {
    let mut trip = fan_out.round_trip().await?;
    let mut latencies = Latencies::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let begin = Instant::now();
        trip.once().await?;
        latencies.push(begin.elapsed());
    }
    Ok(latencies)
}
