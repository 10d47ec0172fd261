//! etcd: a lease is granted, then a transaction puts the key with that lease, if nobody has the key.
//!
//! Requests go over gRPC with the few messages of etcd's API that this needs, written out below `etcd/`.

mod proto;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::cluster::{Cluster, ClusterError, MEMBERS, Ports};
use crate::drive::{RequestError, Rival};
use crate::measure::System;
use proto::{
    Compare, LeaseGrantRequest, LeaseGrantResponse, PutRequest, RangeRequest, RangeResponse, RequestOp,
    StatusRequest, StatusResponse, TxnRequest, TxnResponse,
};

const GRANT: PathAndQuery = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseGrant");
const TXN: PathAndQuery = PathAndQuery::from_static("/etcdserverpb.KV/Txn");
const RANGE: PathAndQuery = PathAndQuery::from_static("/etcdserverpb.KV/Range");
const STATUS: PathAndQuery = PathAndQuery::from_static("/etcdserverpb.Maintenance/Status");

/// Longer than any run, so that no lease has to be renewed or taken back while others are timed.
const TTL_S: i64 = 3_600;

/// All keys stand between these.
const FIRST_KEY: &str = "lease/";
const LAST_KEY: &str = "lease0";

/// Connections to all members in turn.
pub(crate) struct Etcd {
    channels: Vec<Channel>,
}

/// etcd's program.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Program {
    /// The server
    #[arg(long, default_value = "etcd")]
    program: PathBuf,
}

impl System for Program {
    const NAME: &'static str = "etcd";

    type Client = Etcd;

    fn start(&self, dir: &Path) -> Result<Cluster, ClusterError> {
        start(&self.program, dir)
    }

    async fn version(&self, ports: &[Ports]) -> Result<String, RequestError> {
        Etcd::connect(ports, MEMBERS).await?.version().await
    }

    async fn connect(&self, ports: &[Ports], connections: usize) -> Result<Etcd, RequestError> {
        Etcd::connect(ports, connections).await
    }
}

/// Starts three members with their data in `dir`, everything else as etcd has it by default.
fn start(program: &Path, dir: &Path) -> Result<Cluster, ClusterError> {
    Cluster::start(dir, |member, ports, home| {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let mut command = Command::new(program);
        command.arg("--name").arg(format!("member-{member}"));
        command.arg("--data-dir").arg(home.join("data"));
        for (option, port) in [("client", ports[member].client), ("peer", ports[member].peer)] {
            let advertise = if option == "peer" { "initial-advertise-peer" } else { "advertise-client" };
            command.arg(format!("--listen-{option}-urls")).arg(url(port));
            command.arg(format!("--{advertise}-urls")).arg(url(port));
        }
        let members: Vec<String> =
            (0..MEMBERS).map(|member| format!("member-{member}={}", url(ports[member].peer))).collect();
        command.arg("--initial-cluster").arg(members.join(","));
        command.args(["--log-level", "warn"]);
        Ok(command)
    })
}

impl Etcd {
    /// Connects this many times, to one member after the other.
    async fn connect(ports: &[Ports], connections: usize) -> Result<Self, RequestError> {
        let mut channels = Vec::new();
        for connection in 0..connections {
            let member = &ports[connection % ports.len()];
            let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", member.client));
            // A small request waits for no other one to share a segment with.
            let endpoint = endpoint.map_err(transport_failed)?.tcp_nodelay(true);
            channels.push(endpoint.connect().await.map_err(transport_failed)?);
        }
        Ok(Self { channels })
    }

    /// The version of the members, all of which follow a leader and answer.
    async fn version(&self) -> Result<String, RequestError> {
        let mut version = String::new();
        for channel in &self.channels {
            let status: StatusResponse = call(channel, STATUS, StatusRequest {}).await?;
            if status.leader == 0 {
                return Err(RequestError("a member knows no leader".to_owned()));
            }
            version = status.version;
            // Answered only by a member that has caught up with the majority.
            self.count(channel).await?;
        }
        Ok(version)
    }

    async fn count(&self, channel: &Channel) -> Result<u64, RequestError> {
        let all = RangeRequest { key: FIRST_KEY.into(), range_end: LAST_KEY.into(), count_only: true };
        let found: RangeResponse = call(channel, RANGE, all).await?;
        Ok(found.count.unsigned_abs())
    }
}

impl Rival for Etcd {
    fn connections(&self) -> usize {
        self.channels.len()
    }

    async fn acquire(&self, connection: usize, leases: Range<u64>) -> Result<(), RequestError> {
        let channel = &self.channels[connection];
        let wanted = LeaseGrantRequest { ttl: TTL_S, id: 0 };
        let granted: LeaseGrantResponse = call(channel, GRANT, wanted).await?;
        let txn = create_if_absent(leases, granted.id);
        let done: TxnResponse = call(channel, TXN, txn).await?;
        if done.succeeded { Ok(()) } else { Err(RequestError("somebody has the lease".to_owned())) }
    }

    async fn held(&self) -> Result<u64, RequestError> {
        self.count(&self.channels[0]).await
    }
}

/// The transaction that puts all of these keys if none of them exists.
fn create_if_absent(leases: Range<u64>, lease: i64) -> TxnRequest {
    let key = |number: u64| format!("{FIRST_KEY}{number:010}").into_bytes();
    TxnRequest {
        compare: leases.clone().map(|number| Compare::is_absent(key(number))).collect(),
        success: leases.map(|number| RequestOp::put(PutRequest { key: key(number), lease })).collect(),
    }
}

async fn call<Q, A>(channel: &Channel, method: PathAndQuery, request: Q) -> Result<A, RequestError>
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let mut client = Grpc::new(channel.clone());
    client.ready().await.map_err(transport_failed)?;
    let answer = client.unary(tonic::Request::new(request), method, ProstCodec::<Q, A>::default()).await;
    answer.map(tonic::Response::into_inner).map_err(|status| RequestError(status.message().to_owned()))
}

fn transport_failed(error: tonic::transport::Error) -> RequestError {
    RequestError(format!("no connection to etcd: {error}"))
}
