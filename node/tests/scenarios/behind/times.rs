//! When what comes back was changed.

use base::Span;
use namespace::{Attributes, Change as TreeChange};

use super::{HOLDER, Story};
use crate::cluster::ms;

/// The content was told of it later, and the volume later still. Whoever looked at the file before has seen what its client says.
#[test]
fn what_comes_back_was_changed_when_its_client_has_shown_that_it_was() {
    for is_untouched in [true, false] {
        let mut story = Story::lent(None);
        let changed = story.state().ctime + Span::from_micros(1);
        story.cluster.run(ms(50));
        if !is_untouched {
            story.flush("hello");
        }
        let (inode, generation) = (story.inode, story.generation);
        let [modified, accessed, changed] = [Some(changed); 3];
        let back =
            TreeChange::Return { inode, generation, modified, accessed, mode: None, changed, is_untouched };
        story.change(HOLDER, back);
        story.cluster.run(ms(100));
        let Attributes { mtime, ctime, lent, .. } = story.state();
        assert_eq!((Some(mtime), Some(ctime), lent), (modified, changed, None));
    }
}
