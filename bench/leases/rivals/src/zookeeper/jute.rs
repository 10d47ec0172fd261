//! ZooKeeper's bytes: big-endian, every string and list behind its length, every packet behind its own.

/// A packet longer than this is refused; ZooKeeper's own limit is the same.
pub(crate) const PACKET_BYTES_MAX: usize = 1 << 20;

/// The number that a request to stay alive carries instead of its own.
pub(crate) const PING: i32 = -2;

/// What became of a node's creator matters to an ephemeral node only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    Persistent = 0,
    Ephemeral = 1,
}

const CREATE: i32 = 1;
const EXISTS: i32 = 3;
const PING_TYPE: i32 = 11;
const MULTI: i32 = 14;
const NO_NODE: i32 = -101;

/// A packet from ZooKeeper that cannot be what it should be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("ZooKeeper sent a packet that ends too early or is too long")]
pub(crate) struct Malformed;

/// The first packet of a session.
pub(crate) fn connect(timeout_ms: i32) -> Vec<u8> {
    packet(|bytes| {
        int(bytes, 0);
        long(bytes, 0);
        int(bytes, timeout_ms);
        long(bytes, 0);
        buffer(bytes, &[0; 16]);
        // A server cut off from the majority must not take this session.
        bytes.push(0);
    })
}

pub(crate) fn ping() -> Vec<u8> {
    packet(|bytes| header(bytes, PING, PING_TYPE))
}

/// Creates one node, or several of which all or none come to be.
pub(crate) fn create(xid: i32, paths: &[String], lifetime: Lifetime) -> Vec<u8> {
    packet(|bytes| match paths {
        [path] => {
            header(bytes, xid, CREATE);
            new_node(bytes, path, lifetime);
        }
        paths => {
            header(bytes, xid, MULTI);
            for path in paths {
                multi_header(bytes, CREATE, false);
                new_node(bytes, path, lifetime);
            }
            multi_header(bytes, -1, true);
        }
    })
}

pub(crate) fn exists(xid: i32, path: &str) -> Vec<u8> {
    packet(|bytes| {
        header(bytes, xid, EXISTS);
        buffer(bytes, path.as_bytes());
        bytes.push(0);
    })
}

/// The timeout that the server granted a new session, in milliseconds; zero if it refused one.
pub(crate) fn granted_timeout_ms(mut packet: &[u8]) -> Result<i32, Malformed> {
    take_int(&mut packet)?;
    take_int(&mut packet)
}

/// The number of the request that a packet answers, and its error code; the rest is the answer itself.
pub(crate) fn take_reply<'a>(packet: &mut &'a [u8]) -> Result<(i32, Reply<'a>), Malformed> {
    let xid = take_int(packet)?;
    take_long(packet)?;
    Ok((xid, Reply { error: take_int(packet)?, body: packet }))
}

/// What a request was answered with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    error: i32,
    body: &'a [u8],
}

impl Reply<'_> {
    /// The first error of a request that creates nodes, zero if there is none.
    pub(crate) fn creation_error(mut self, nodes: usize) -> Result<i32, Malformed> {
        if self.error != 0 || nodes == 1 {
            return Ok(self.error);
        }
        for _ in 0..nodes {
            // An operation's own header: type, whether it is the end, error; then the path, or the error again.
            let kind = take_int(&mut self.body)?;
            take(&mut self.body, 1)?;
            let error = take_int(&mut self.body)?;
            if kind != CREATE || error > 0 {
                return Ok(take_int(&mut self.body)?.min(-1));
            }
            let path_bytes = take_int(&mut self.body)?;
            take(&mut self.body, usize::try_from(path_bytes).map_err(|_| Malformed)?)?;
        }
        Ok(0)
    }

    /// How many children the node has; none if it does not exist. Any other error stays one.
    pub(crate) fn children(mut self) -> Result<Result<Option<u64>, i32>, Malformed> {
        match self.error {
            0 => {
                // czxid, mzxid, ctime, mtime; version, cversion, aversion; owner; length; then what is asked for.
                take(&mut self.body, 4 * 8 + 3 * 4 + 8 + 4)?;
                Ok(Ok(Some(u64::from(take_int(&mut self.body)?.unsigned_abs()))))
            }
            NO_NODE => Ok(Ok(None)),
            error => Ok(Err(error)),
        }
    }
}

fn packet(fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    fill(&mut bytes);
    let length = i32::try_from(bytes.len() - 4).expect("requests are far below 2 GiB");
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn header(bytes: &mut Vec<u8>, xid: i32, kind: i32) {
    int(bytes, xid);
    int(bytes, kind);
}

fn multi_header(bytes: &mut Vec<u8>, kind: i32, is_end: bool) {
    int(bytes, kind);
    bytes.push(u8::from(is_end));
    int(bytes, -1);
}

/// An empty node that anybody may do anything with.
fn new_node(bytes: &mut Vec<u8>, path: &str, lifetime: Lifetime) {
    const ALL_PERMISSIONS: i32 = 31;
    buffer(bytes, path.as_bytes());
    buffer(bytes, &[]);
    int(bytes, 1);
    int(bytes, ALL_PERMISSIONS);
    buffer(bytes, b"world");
    buffer(bytes, b"anyone");
    int(bytes, lifetime as i32);
}

fn int(bytes: &mut Vec<u8>, value: i32) {
    bytes.extend_from_slice(&value.to_be_bytes());
}

fn long(bytes: &mut Vec<u8>, value: i64) {
    bytes.extend_from_slice(&value.to_be_bytes());
}

fn buffer(bytes: &mut Vec<u8>, value: &[u8]) {
    int(bytes, i32::try_from(value.len()).expect("names are far below 2 GiB"));
    bytes.extend_from_slice(value);
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], Malformed> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(Malformed)?;
    *bytes = rest;
    Ok(taken)
}

fn take_int(bytes: &mut &[u8]) -> Result<i32, Malformed> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    *bytes = rest;
    Ok(i32::from_be_bytes(*taken))
}

fn take_long(bytes: &mut &[u8]) -> Result<i64, Malformed> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    *bytes = rest;
    Ok(i64::from_be_bytes(*taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(error: i32, body: &[u8]) -> Reply<'_> {
        Reply { error, body }
    }

    #[test]
    fn a_request_starts_with_its_length_its_number_and_its_type() {
        let bytes = create(7, &["/a".to_owned()], Lifetime::Ephemeral);
        assert_eq!(bytes[..4], (u32::try_from(bytes.len()).unwrap() - 4).to_be_bytes());
        assert_eq!(bytes[4..18], [0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 2, b'/', b'a']);
        assert_eq!(bytes[bytes.len() - 4..], [0, 0, 0, 1]);
        assert_eq!(connect(9).len(), 4 + 45);
        assert_eq!(ping()[4..], [255, 255, 255, 254, 0, 0, 0, 11]);
    }

    #[test]
    fn several_nodes_go_into_one_multi() {
        let bytes = create(7, &["/a".to_owned(), "/b".to_owned()], Lifetime::Persistent);
        assert_eq!(bytes[8..12], 14_i32.to_be_bytes());
        assert_eq!(bytes[12..21], [0, 0, 0, 1, 0, 255, 255, 255, 255]);
        assert_eq!(bytes[bytes.len() - 9..], [255, 255, 255, 255, 1, 255, 255, 255, 255]);
    }

    #[test]
    fn errors_of_a_creation_are_found_wherever_they_stand() {
        assert_eq!(reply(0, &[]).creation_error(1), Ok(0));
        assert_eq!(reply(-110, &[]).creation_error(1), Ok(-110));
        let granted = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, b'/', b'a'];
        assert_eq!(reply(0, &granted.repeat(2)).creation_error(2), Ok(0));
        assert_eq!(reply(0, &granted).creation_error(2), Err(Malformed));
        let mut mixed = granted.to_vec();
        mixed.extend([255, 255, 255, 255, 0, 255, 255, 255, 146, 255, 255, 255, 146]);
        assert_eq!(reply(0, &mixed).creation_error(2), Ok(-110));
    }

    #[test]
    fn children_are_counted_and_their_lack_is_no_error() {
        let mut stat = vec![0; 56];
        stat.extend([0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(reply(0, &stat).children(), Ok(Ok(Some(258))));
        assert_eq!(reply(0, &stat[..50]).children(), Err(Malformed));
        assert_eq!(reply(NO_NODE, &[]).children(), Ok(Ok(None)));
        assert_eq!(reply(-4, &[]).children(), Ok(Err(-4)));
    }
}
