//! What is set for every object of a node.

use base::Span;

/// Limits and times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Entries that may be proposed and not committed. More are refused until some are.
    pub uncommitted_max: usize,
    /// Questions and syncs that may wait at a time.
    pub waiting_max: usize,
    /// Entries in one message.
    pub batch_max: usize,
    /// What was not answered for so long is sent again. Longer than a round trip and a write.
    pub retry_after: Span,
    /// A primary that has not heard of a majority for so long says so.
    pub isolated_after: Span,
    /// How long a backup may not know what is committed when nothing else is to be told.
    pub tell_after: Span,
    /// Test only: the rule that is broken.
    #[cfg(feature = "planted-bugs")]
    pub bug: Option<crate::Bug>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            uncommitted_max: 1_024,
            waiting_max: 4_096,
            batch_max: 256,
            retry_after: Span::from_millis(200),
            isolated_after: Span::from_secs(1),
            tell_after: Span::from_millis(20),
            #[cfg(feature = "planted-bugs")]
            bug: None,
        }
    }
}
