//! What a client shows for an inode that it was told of, if its rule exports only a part of the volume.
//!
//! Layout: a proof is the first half of a keyed BLAKE3 hash, which `docs/wire.md` shows.

use std::fmt;

use base::{ObjectId, WallTime};
use namespace::InodeId;

use super::{CapabilityKey, CapabilityKeys, CertificateId, KeyEpoch};
use crate::ExportPath;

/// How long the hash in a proof is. There is one for each entry of a directory that is listed.
pub const PROOF_BYTES: usize = 16;

/// That a client was told of an inode which lies in what is exported to it. It says nothing to anybody who has no key.
#[derive(Clone, Copy)]
pub struct Proof {
    /// The key that it was made with.
    pub epoch: KeyEpoch,
    hash: [u8; PROOF_BYTES],
}

/// What a proof is about.
#[derive(Clone, Copy)]
pub(crate) struct Proven<'a> {
    pub(crate) volume: ObjectId,
    /// Who was told.
    pub(crate) certificate: CertificateId,
    /// What is exported to it.
    pub(crate) path: &'a ExportPath,
}

impl CapabilityKeys {
    /// The proof for an inode, with the key that is used at `now`.
    pub(crate) fn prove(&self, about: Proven<'_>, inode: InodeId, now: WallTime) -> Proof {
        let (epoch, key) = self.used_at(now);
        Proof::new(epoch, about.hash(key, inode))
    }

    /// Whether a daemon made the proof for this inode.
    pub(crate) fn is_proven(&self, about: Proven<'_>, inode: InodeId, proof: Proof) -> bool {
        let key = self.of(proof.epoch);
        key.is_some_and(|key| Proof::new(proof.epoch, about.hash(key, inode)) == proof)
    }
}

impl Proven<'_> {
    /// The path comes last: all else has a width of its own.
    fn hash(&self, key: &CapabilityKey, inode: InodeId) -> [u8; PROOF_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(key.for_proofs());
        let mut cover = |bytes: &[u8]| _ = hasher.update(bytes);
        cover(&self.volume.high.to_le_bytes());
        cover(&self.volume.low.to_le_bytes());
        cover(&inode.number.to_le_bytes());
        cover(&inode.epoch.number.to_le_bytes());
        cover(&inode.epoch.node.0.to_le_bytes());
        cover(&self.certificate.0);
        cover(self.path.to_string().as_bytes());
        let hash: [u8; 32] = hasher.finalize().into();
        *hash.first_chunk().expect("a hash is longer")
    }
}

impl Proof {
    /// The proof that this is, right or not.
    pub const fn new(epoch: KeyEpoch, hash: [u8; PROOF_BYTES]) -> Self {
        Self { epoch, hash }
    }

    /// Its bytes, for the client that may have it.
    pub const fn as_bytes(&self) -> &[u8; PROOF_BYTES] {
        &self.hash
    }

    /// With zeros behind it, a hash, the comparison of which takes the same time whatever it finds.
    fn padded(&self) -> blake3::Hash {
        let mut padded = [0; 32];
        padded[..PROOF_BYTES].copy_from_slice(&self.hash);
        padded.into()
    }
}

impl PartialEq for Proof {
    fn eq(&self, other: &Self) -> bool {
        self.epoch == other.epoch && self.padded() == other.padded()
    }
}

impl Eq for Proof {}

impl fmt::Debug for Proof {
    /// Whoever reads a log must not find it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proof({}, …)", self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use base::{Epoch, NodeId};

    use super::*;

    const VOLUME: ObjectId = ObjectId::new(1, 2);
    const EPOCH: Epoch = Epoch { number: 4, node: NodeId(5) };
    const INODE: InodeId = InodeId { number: 3, epoch: EPOCH };
    const CLIENT: CertificateId = CertificateId([6; 32]);
    const NOW: WallTime = WallTime::from_micros(1);

    fn keys(byte: u8) -> CapabilityKeys {
        CapabilityKeys::parse(&CapabilityKey::new([byte; 32]).line(KeyEpoch(7), None)).unwrap()
    }

    #[test]
    fn a_proof_is_good_for_one_inode_one_client_and_one_path() {
        let [path, other] = ["/a", "/b"].map(|path| ExportPath::parse(path).unwrap());
        let about = Proven { volume: VOLUME, certificate: CLIENT, path: &path };
        let proof = keys(1).prove(about, INODE, NOW);
        assert!(keys(1).is_proven(about, INODE, proof));
        let volume = ObjectId::new(1, 3);
        let mut certificate = CLIENT;
        certificate.0[31] = 0;
        for about in
            [Proven { volume, ..about }, Proven { certificate, ..about }, Proven { path: &other, ..about }]
        {
            assert!(!keys(1).is_proven(about, INODE, proof));
        }
        let number = InodeId { number: 2, ..INODE };
        for inode in [number, InodeId { epoch: Epoch { number: 9, ..EPOCH }, ..INODE }] {
            assert!(!keys(1).is_proven(about, inode, proof), "{inode:?}");
        }
        assert!(!keys(2).is_proven(about, INODE, proof), "another key");
        let unknown = Proof { epoch: KeyEpoch(8), ..proof };
        assert!(!keys(1).is_proven(about, INODE, unknown), "no key");
        for bit in 0..PROOF_BYTES * 8 {
            let mut bytes = *proof.as_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!keys(1).is_proven(about, INODE, Proof::new(KeyEpoch(7), bytes)), "bit {bit}");
        }
    }

    #[test]
    fn a_proof_covers_what_the_document_says() {
        let path = ExportPath::parse("/a").unwrap();
        let about = Proven { volume: VOLUME, certificate: CLIENT, path: &path };
        let key = blake3::derive_key("fleasefs 2026 proof of an exported inode", &[1; 32]);
        let mut covered = Vec::new();
        for (word, bytes) in [(1_u64, 8), (2, 8), (3, 8), (4, 8), (5, 4)] {
            covered.extend(&word.to_le_bytes()[..bytes]);
        }
        covered.extend([6; 32]);
        covered.extend(b"/a");
        let expected = blake3::keyed_hash(&key, &covered);
        assert_eq!(keys(1).prove(about, INODE, NOW).as_bytes(), &expected.as_bytes()[..16]);
    }

    #[test]
    fn no_proof_is_ever_shown() {
        let proof = Proof::new(KeyEpoch(7), [0xa5; PROOF_BYTES]);
        assert_eq!(format!("{proof:?}"), "Proof(7, …)");
    }
}
