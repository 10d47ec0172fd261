//! Certificates that are no longer welcome although the authority once issued them.
//!
//! The list is plain text: one fingerprint a line, and a comment after `#`. Reading it is pure; who watches the file
//! calls [`DenyList::replace`], and every endpoint that shares the list acts on it at once: handshakes fail, and
//! whoever waits in [`DenyList::denied`] learns that its connection must end.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use tokio::sync::watch;

use crate::peer::{Fingerprint, FingerprintError};

/// More than any operator denies by hand; expired certificates need no line.
pub const DENIED_MAX: usize = 10_000;

/// The fingerprints of one version of the list, each with its comment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Denied(BTreeMap<Fingerprint, String>);

/// The list in force, shared: clones see what [`DenyList::replace`] puts in.
#[derive(Clone, Debug)]
pub struct DenyList {
    current: Arc<watch::Sender<Denied>>,
}

/// Why a text is no deny list. No part of such a text comes into force.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DenyError {
    /// A line without a fingerprint.
    #[error("line {line}: {source}; what follows a `#` is a comment")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        source: FingerprintError,
    },
    /// The list is bounded, as everything is.
    #[error("more than {DENIED_MAX} fingerprints; remove those of expired certificates")]
    TooMany,
}

impl Denied {
    /// Whether the certificate with this fingerprint is on the list.
    pub fn contains(&self, fingerprint: &Fingerprint) -> bool {
        self.0.contains_key(fingerprint)
    }

    /// The fingerprints in their order, each with its comment.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Fingerprint, &str)> {
        self.0.iter().map(|(fingerprint, comment)| (fingerprint, comment.as_str()))
    }
}

impl FromStr for Denied {
    type Err = DenyError;

    fn from_str(text: &str) -> Result<Self, DenyError> {
        let mut denied = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let (fingerprint, comment) = line.split_once('#').unwrap_or((line, ""));
            if fingerprint.trim().is_empty() {
                continue;
            }
            if denied.len() == DENIED_MAX {
                return Err(DenyError::TooMany);
            }
            let parsed =
                fingerprint.trim().parse().map_err(|source| DenyError::Line { line: index + 1, source })?;
            denied.insert(parsed, comment.trim().to_owned());
        }
        Ok(Self(denied))
    }
}

impl Default for DenyList {
    fn default() -> Self {
        Self { current: Arc::new(watch::Sender::new(Denied::default())) }
    }
}

impl DenyList {
    /// Whether the certificate with this fingerprint is denied now.
    pub fn denies(&self, fingerprint: &Fingerprint) -> bool {
        self.current.borrow().contains(fingerprint)
    }

    /// Puts another version in force.
    pub fn replace(&self, denied: Denied) {
        self.current.send_replace(denied);
    }

    /// Waits until the certificate with this fingerprint is denied; at once if it already is. The holder of a
    /// connection waits here and then closes it.
    pub async fn denied(&self, fingerprint: Fingerprint) {
        let mut versions = self.current.subscribe();
        let found = versions.wait_for(|denied| denied.contains(&fingerprint)).await;
        // `self` holds the sender for as long as it waits.
        assert!(found.is_ok(), "a deny list lives as long as whoever waits for it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Fingerprint = Fingerprint([1; 32]);
    const TWO: Fingerprint = Fingerprint([2; 32]);

    #[test]
    fn a_list_is_fingerprints_and_comments() {
        let text = format!("# lost laptops\n\n{ONE}  # anna's\n  {TWO}\n");
        let denied: Denied = text.parse().unwrap();
        assert_eq!(denied.iter().collect::<Vec<_>>(), [(&ONE, "anna's"), (&TWO, "")]);
        assert!(denied.contains(&ONE) && !denied.contains(&Fingerprint([3; 32])));
    }

    #[test]
    fn a_list_with_a_mistake_is_refused_whole() {
        let error = format!("{ONE}\n{TWO}0 # typo\n").parse::<Denied>().unwrap_err();
        assert!(error.to_string().starts_with("line 2: `0202"), "{error}");
        let many: String = (0..=DENIED_MAX).map(|_| format!("{ONE}\n")).collect();
        assert!(many.parse::<Denied>().is_ok(), "the same certificate may be listed again");
        let many: String =
            (0..=DENIED_MAX).map(|n| format!("{}\n", Fingerprint::of(&n.to_le_bytes()))).collect();
        assert_eq!(many.parse::<Denied>(), Err(DenyError::TooMany));
    }

    #[tokio::test]
    async fn clones_see_a_replacement_and_waiters_wake() {
        let list = DenyList::default();
        let (seen, waiter) = (list.clone(), list.clone());
        assert!(!seen.denies(&TWO));
        let waiting = tokio::spawn(async move { waiter.denied(TWO).await });
        list.replace(ONE.to_string().parse().unwrap());
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished() && seen.denies(&ONE));
        list.replace(TWO.to_string().parse().unwrap());
        waiting.await.unwrap();
        assert!(seen.denies(&TWO) && !seen.denies(&ONE), "a version replaces the one before");
    }
}
