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
    /// Committed entries that are kept for those who lag behind. Who lacks more takes over a state.
    pub kept_max: usize,
    /// The same while somebody takes over a state, and will need what came after it.
    pub kept_lending_max: usize,
    /// Parts of a state in one message.
    pub parts_max: usize,
    /// Versions of parts in one message.
    pub versions_max: usize,
    /// What was not answered for so long is sent again. Longer than a round trip and a write.
    pub retry_after: Span,
    /// A primary that has not heard of a majority for so long says so.
    pub isolated_after: Span,
    /// How long a backup may not know what is committed when nothing else is to be told.
    pub tell_after: Span,
    /// How long all are asked when all that answer have forgotten: the longest lease.
    pub all_forgot_after: Span,
    /// How often a node that is no member any more says so, until nobody will ask it.
    pub retired_every: Span,
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
            kept_max: 1_024,
            kept_lending_max: 16_384,
            parts_max: 16,
            versions_max: 1_024,
            retry_after: Span::from_millis(200),
            isolated_after: Span::from_secs(1),
            tell_after: Span::from_millis(20),
            all_forgot_after: Span::from_secs(2),
            retired_every: Span::from_secs(10),
            #[cfg(feature = "planted-bugs")]
            bug: None,
        }
    }
}
