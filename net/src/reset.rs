//! How a peer learns at once that our process is another one now.
//!
//! A packet of a connection that this process does not know is answered with a *stateless reset*: a token that only
//! the two ends of that connection can tell from noise. quinn makes tokens from a key, and knows its own connection
//! ids by another. Both are derived from the private key here. So a restarted daemon, which has nothing left but its
//! files, ends the connections of the process before it as soon as a packet of theirs arrives.

use std::sync::Arc;

use quinn::crypto::{CryptoError, HmacKey};
use quinn::{ConnectionIdGenerator, EndpointConfig};
use quinn_proto::HashedConnectionIdGenerator;

const TOKEN_CONTEXT: &str = "fleasefs 2025-11-21 stateless reset tokens";
const CONNECTION_CONTEXT: &str = "fleasefs 2025-11-21 connection ids";

/// Makes tokens with keyed BLAKE3.
struct ResetKey([u8; blake3::KEY_LEN]);

/// Sets up `config` so that every process with the same `secret` understands the others' connection ids.
pub(crate) fn survive_restarts(config: &mut EndpointConfig, secret: &[u8]) {
    config.reset_key(Arc::new(ResetKey(blake3::derive_key(TOKEN_CONTEXT, secret))));
    let [a, b, c, d, e, f, g, h, ..] = blake3::derive_key(CONNECTION_CONTEXT, secret);
    let key = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    config.cid_generator(move || -> Box<dyn ConnectionIdGenerator> {
        Box::new(HashedConnectionIdGenerator::from_key(key))
    });
}

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        signature.copy_from_slice(blake3::keyed_hash(&self.0, data).as_bytes());
    }

    fn signature_len(&self) -> usize {
        blake3::OUT_LEN
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        // BLAKE3's hashes compare in constant time.
        let given: [u8; blake3::OUT_LEN] = signature.try_into().map_err(|_| CryptoError)?;
        if blake3::keyed_hash(&self.0, data) == given { Ok(()) } else { Err(CryptoError) }
    }
}
