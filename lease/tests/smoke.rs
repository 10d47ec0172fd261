//! One lease from its acquisition to its release.
#![allow(missing_docs)]
use base::*;
use lease::*;
use std::sync::Arc;

fn pump(nodes: &mut [Flease], now: WallTime, view: &View) -> Vec<(u32, Event)> {
    let mut events = vec![];
    loop {
        let mut quiet = true;
        for i in 0..nodes.len() {
            while let Some((to, batch)) = nodes[i].poll_transmit(now) {
                quiet = false;
                nodes[to.0 as usize].handle_batch(now, &batch, view);
            }
            while let Some(e) = nodes[i].poll_event() {
                events.push((i as u32, e));
            }
        }
        if quiet {
            return events;
        }
    }
}

#[test]
fn smoke() {
    let view = View { id: ViewId::default(), members: Members::new((0..3).map(NodeId)).unwrap() };
    let config = Arc::new(Config::default());
    let t = |ms: u64| WallTime::from_micros(1_000_000_000_000 + ms * 1000);
    let mut nodes: Vec<Flease> = (0..3)
        .map(|n| Flease::new(config.clone(), Process::new(n, 1), Start::Fresh, t(0), 1).unwrap())
        .collect();
    let cell = ObjectId::new(1, 2);
    nodes[0].acquire(t(0), cell, &view).unwrap();
    println!("{:?}", pump(&mut nodes, t(0), &view));
    assert!(nodes[0].holds(t(1), cell));
    println!("{:?}", nodes[1].acquire(t(1), cell, &view));
    for ms in 0..10_000 {
        for n in &mut nodes {
            n.handle_timeout(t(ms));
        }
        for e in pump(&mut nodes, t(ms), &view) {
            println!("{ms} {e:?}");
        }
    }
    assert!(nodes[0].holds(t(10_000), cell));
    nodes[0].release(t(10_000), cell, Watermark { epoch: Epoch::default(), seq: Seq(3) }).unwrap();
    assert!(!nodes[0].holds(t(10_000), cell));
    println!("{:?}", pump(&mut nodes, t(10_000), &view));
    nodes[1].acquire(t(10_001), cell, &view).unwrap();
    println!("{:?}", pump(&mut nodes, t(10_001), &view));
    nodes[1]
        .hand_over(t(10_002), cell, NodeId(2), Watermark { epoch: Epoch::default(), seq: Seq(3) })
        .unwrap();
    println!("{:?}", pump(&mut nodes, t(10_002), &view));
    nodes[2].acquire(t(10_003), cell, &view).unwrap();
    println!("{:?}", pump(&mut nodes, t(10_003), &view));
    assert!(nodes[2].holds(t(10_003), cell));
    println!("{:?}", nodes[0].trail(cell).collect::<Vec<_>>());
    assert_eq!(nodes[0].registers(), 1);
    drop(nodes.pop());
    for ms in 10_003..20_000 {
        for n in &mut nodes {
            n.handle_timeout(t(ms));
        }
    }
    assert_eq!(nodes[0].registers(), 0);
    assert_eq!(nodes[0].poll_timeout(), None);
}
