//! The lease protocol and its codec on one core.

use bench::trio::Trio;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use lease::{Algorithm, FleaseRules, PaxosRules};

fn acquire<A: Algorithm>(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group(format!("acquire/{}", A::NAME));
    for batch in [1_000, 10_000, 50_000] {
        group.throughput(Throughput::Elements(batch));
        group.sample_size(10);
        group.bench_function(batch.to_string(), |bencher| {
            bencher.iter_batched(Trio::<A>::new, |mut trio| trio.acquire(0, batch), BatchSize::PerIteration);
        });
    }
}

criterion_group!(lease, acquire::<FleaseRules>, acquire::<PaxosRules>);
criterion_main!(lease);
