//! The messages of etcd's API that are needed, with the fields that are needed.
//!
//! Numbers are those of `rpc.proto`, version 3.4. A field that is not named here is not sent and, if received, passed
//! over. Written out by hand because generating them takes the protobuf compiler and etcd's sources.

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseGrantRequest {
    /// In seconds.
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    /// Zero lets the server choose.
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Operation", tags = "2")]
    operation: Option<Operation>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Operation {
    #[prost(message, tag = "2")]
    Put(PutRequest),
}

impl RequestOp {
    pub(crate) fn put(put: PutRequest) -> Self {
        Self { operation: Some(Operation::Put(put)) }
    }
}

/// A condition of a transaction.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Compare {
    /// Zero is "equal".
    #[prost(int32, tag = "1")]
    result: i32,
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(oneof = "Target", tags = "5")]
    value: Option<Target>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Target {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
}

impl Compare {
    /// Holds if nobody has created `key`.
    pub(crate) fn is_absent(key: Vec<u8>) -> Self {
        const CREATE_REVISION: i32 = 1;
        Self { result: 0, target: CREATE_REVISION, key, value: Some(Target::CreateRevision(0)) }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TxnResponse {
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(bool, tag = "9")]
    pub(crate) count_only: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RangeResponse {
    #[prost(int64, tag = "4")]
    pub(crate) count: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StatusResponse {
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    /// Zero while there is none.
    #[prost(uint64, tag = "4")]
    pub(crate) leader: u64,
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn a_condition_that_the_key_is_absent_names_revision_zero() {
        // Zero in a oneof is sent: without it the server would compare with nothing.
        assert_eq!(Compare::is_absent(b"k".to_vec()).encode_to_vec(), [16, 1, 26, 1, b'k', 40, 0]);
    }
}
