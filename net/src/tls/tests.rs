//! Who gets in and who does not, asked of two bare QUIC endpoints: nothing between here and the wire but TLS.

use std::net::{Ipv4Addr, SocketAddr};

use base::NodeId;
use quinn::{ConnectionError, Endpoint};

use super::*;
use crate::identity::{Authority, Validity};
use crate::peer::server_name;

const CLUSTER: ClusterId = ClusterId([7; 16]);
const OTHER_CLUSTER: ClusterId = ClusterId([8; 16]);

fn authority(cluster: ClusterId) -> Authority {
    Authority::new(cluster, Validity::ALWAYS).unwrap()
}

fn issue(authority: &Authority, role: &str) -> Identity {
    authority.issue(&role.parse().unwrap(), &[], Validity::ALWAYS).unwrap()
}

fn name(node: u32) -> String {
    server_name(CLUSTER, NodeId(node))
}

fn bind(identity: &Identity) -> Endpoint {
    bind_with(identity, quinn::ClientConfig::new(Arc::new(client(identity).unwrap())))
}

fn bind_with(identity: &Identity, caller: quinn::ClientConfig) -> Endpoint {
    let answerer = quinn::ServerConfig::with_crypto(Arc::new(server(identity).unwrap()));
    let mut endpoint = Endpoint::server(answerer, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    endpoint.set_default_client_config(caller);
    endpoint
}

/// What each end thinks of a call after it was fully made: the peer, or why there is no connection.
struct Call {
    caller: Result<Peer, String>,
    answerer: Result<Peer, String>,
}

impl Call {
    async fn make(caller: &Endpoint, answerer: &Endpoint, name: &str) -> Self {
        let call = async {
            let connection = caller.connect(answerer.local_addr().unwrap(), name).unwrap().await?;
            // The answerer judges us last, so only what it sends shows that we are in.
            connection.accept_uni().await?;
            Ok(connection)
        };
        let answer = async {
            let connection = answerer.accept().await.unwrap().await?;
            connection.open_uni().await?.write_all(b"welcome").await.unwrap();
            Ok(connection)
        };
        let (caller, answerer): (Result<_, ConnectionError>, Result<_, ConnectionError>) =
            tokio::join!(call, answer);
        let peer = |connection: quinn::Connection| Peer::of(&connection, CLUSTER).unwrap();
        let text = |error: ConnectionError| error.to_string();
        Self { caller: caller.map(peer).map_err(text), answerer: answerer.map(peer).map_err(text) }
    }

    /// Both ends know that there is no connection, and both know why.
    fn assert_refused_by_answerer(self, reason: &str) {
        let (caller, answerer) = (self.caller.unwrap_err(), self.answerer.unwrap_err());
        assert!(answerer.contains(reason), "the answerer says: {answerer}");
        assert!(caller.contains(reason), "the caller says: {caller}");
    }

    fn assert_refused_by_caller(self, reason: &str) {
        self.assert_refused_by_answerer(reason);
    }
}

#[tokio::test]
async fn both_ends_learn_who_the_other_is() {
    let authority = authority(CLUSTER);
    let (node, client) = (issue(&authority, "node/1"), issue(&authority, "client/anna"));
    let call = Call::make(&bind(&client), &bind(&node), &name(1)).await;
    assert_eq!(call.caller.as_ref(), Ok(node.peer()));
    assert_eq!(call.answerer.as_ref(), Ok(client.peer()));
    assert_eq!(node.peer().role, Role::Node(NodeId(1)));
    assert_ne!(node.peer().fingerprint, client.peer().fingerprint);
}

#[tokio::test]
async fn another_nodes_certificate_does_not_carry_the_name_that_was_called() {
    let authority = authority(CLUSTER);
    let (one, two) = (bind(&issue(&authority, "node/1")), bind(&issue(&authority, "node/2")));
    Call::make(&one, &two, &name(3)).await.assert_refused_by_caller("not valid for name");
    assert!(Call::make(&one, &two, &name(2)).await.caller.is_ok());
}

#[tokio::test]
async fn only_nodes_can_be_called() {
    let authority = authority(CLUSTER);
    let node = bind(&issue(&authority, "node/1"));
    for role in ["client/a", "admin/a", "supervisor/1"] {
        let pretender = bind(&issue(&authority, role));
        let call = Call::make(&node, &pretender, &name(1)).await;
        assert!(call.caller.is_err() && call.answerer.is_err(), "{role} answered as a node");
    }
}

#[tokio::test]
async fn an_authority_that_is_not_ours_is_refused() {
    let ours = authority(CLUSTER);
    let answerer = bind(&issue(&ours, "node/1"));
    // One with a name of its own, and one that passes itself off as ours.
    for (theirs, reason) in [(OTHER_CLUSTER, "UnknownIssuer"), (CLUSTER, "BadSignature")] {
        let theirs = authority(theirs);
        // The stranger trusts our authority, so only the answerer's own check can turn it away.
        let mut stranger = theirs.issue_for(CLUSTER, &Role::Node(NodeId(2)), &[], Validity::ALWAYS).unwrap();
        let honest = bind(&stranger);
        stranger.authority = ours.certificate().clone();
        Call::make(&bind(&stranger), &answerer, &name(1)).await.assert_refused_by_answerer(reason);
        Call::make(&honest, &answerer, &name(1)).await.assert_refused_by_caller(reason);
    }
}

#[tokio::test]
async fn a_caller_without_certificate_is_refused() {
    let authority = authority(CLUSTER);
    let identity = issue(&authority, "node/1");
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots(&identity).unwrap())
        .with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    let config = QuicClientConfig::try_from(config).unwrap();
    let nameless = bind_with(&identity, quinn::ClientConfig::new(Arc::new(config)));
    Call::make(&nameless, &bind(&identity), &name(1)).await.assert_refused_by_answerer("sent no certificate");
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let authority = authority(CLUSTER);
    let past = Validity { not_before_s: 1_000_000_000, not_after_s: 1_000_000_060 };
    let expired = authority.issue(&Role::Node(NodeId(2)), &[], past).unwrap();
    let good = bind(&issue(&authority, "node/1"));
    Call::make(&bind(&expired), &good, &name(1)).await.assert_refused_by_answerer("certificate expired");
    Call::make(&good, &bind(&expired), &name(2)).await.assert_refused_by_caller("certificate expired");
}

#[tokio::test]
async fn a_certificate_of_another_cluster_is_refused_even_if_the_authority_signed_it() {
    let ours = authority(CLUSTER);
    let answerer = bind(&issue(&ours, "node/1"));
    let stranger = ours.issue_for(OTHER_CLUSTER, &Role::Node(NodeId(2)), &[], Validity::ALWAYS).unwrap();
    let call = Call::make(&bind(&stranger), &answerer, &name(1)).await;
    // The stranger in turn sees that the answerer is not of its cluster, and is the first to look.
    call.assert_refused_by_caller(&format!("and this is cluster {OTHER_CLUSTER}"));
    let mut curious = stranger;
    curious.cluster = CLUSTER;
    let call = Call::make(&bind(&curious), &answerer, &name(1)).await;
    call.assert_refused_by_answerer(&format!("belongs to cluster {OTHER_CLUSTER}"));
}

#[tokio::test]
async fn a_denied_certificate_is_refused_at_once_also_by_endpoints_that_talked_before() {
    let authority = authority(CLUSTER);
    let (node, peer) = (issue(&authority, "node/1"), issue(&authority, "node/2"));
    let (answerer, caller) = (bind(&node), bind(&peer));
    assert!(Call::make(&caller, &answerer, &name(1)).await.caller.is_ok());

    let denied = format!("{} # a stolen disk", peer.peer().fingerprint).parse().unwrap();
    node.deny_list().replace(denied);
    // The caller has spoken to this answerer before: a resumed session would let it in.
    let call = Call::make(&caller, &answerer, &name(1)).await;
    call.assert_refused_by_answerer("of node/2 is on the deny list");
    // Nor is it called any more.
    let call = Call::make(&answerer, &caller, &name(2)).await;
    call.assert_refused_by_caller("of node/2 is on the deny list");

    node.deny_list().replace("".parse().unwrap());
    assert!(Call::make(&caller, &answerer, &name(1)).await.caller.is_ok());
}

#[tokio::test]
async fn the_holder_of_a_live_connection_learns_that_its_peer_is_denied() {
    let authority = authority(CLUSTER);
    let (node, peer) = (issue(&authority, "node/1"), issue(&authority, "node/2"));
    let (answerer, caller) = (bind(&node), bind(&peer));
    let (called, answered) = tokio::join!(
        async { caller.connect(answerer.local_addr().unwrap(), &name(1)).unwrap().await.unwrap() },
        async { answerer.accept().await.unwrap().await.unwrap() }
    );
    let fingerprint = Peer::of(&answered, CLUSTER).unwrap().fingerprint;
    node.deny_list().replace(fingerprint.to_string().parse().unwrap());
    node.deny_list().denied(fingerprint).await;
    answered.close(quinn::VarInt::from_u32(1), b"denied");
    assert!(
        matches!(called.closed().await, ConnectionError::ApplicationClosed(close) if close.reason == "denied")
    );
}

#[tokio::test]
async fn another_version_of_the_protocol_is_refused() {
    let authority = authority(CLUSTER);
    let identity = issue(&authority, "node/1");
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(&identity).unwrap(), provider());
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_webpki_verifier(verifier.build().unwrap())
        .with_client_auth_cert(vec![identity.certificate.clone()], identity.key.clone_key())
        .unwrap();
    config.alpn_protocols = vec![b"fleasefs/0".to_vec()];
    let config = QuicClientConfig::try_from(config).unwrap();
    let old = bind_with(&identity, quinn::ClientConfig::new(Arc::new(config)));
    Call::make(&old, &bind(&identity), &name(1)).await.assert_refused_by_answerer("any known protocol");
}
