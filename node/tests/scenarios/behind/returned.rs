//! What whoever gives a file back knows of it then.

use namespace::{Change as TreeChange, InodeId, SetAttributes};

use super::{HOLDER, OTHER, Story};
use crate::cluster::{Flying, ms};
use crate::volumes::name;

impl Story {
    /// The holder does not count on the file any more, though it is lent to it.
    fn disturbed() -> Self {
        let mut story = Self::lent(None);
        story.link("g");
        story.cluster.run(ms(50));
        story.answer();
        story.cluster.run(ms(50));
        assert!(!story.believes() && !story.is_asked_back());
        story
    }

    fn link(&mut self, text: &str) {
        let link = TreeChange::Link { inode: self.inode, dir: InodeId::ROOT, name: name(text) };
        self.change(OTHER, link);
    }

    /// Somebody else sets the file's permissions. Nobody may believe what was before when that is done.
    fn is_told_of_the_next_change(&mut self) {
        let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        let id = self.change(OTHER, TreeChange::SetAttributes { inode: self.inode, set });
        self.cluster.run(ms(50));
        assert!(self.cluster.file_reply(OTHER, id).is_none() || !self.believes());
        self.answer();
        self.cluster.run(ms(50));
        assert!(self.cluster.file_reply(OTHER, id).is_some());
    }
}

#[test]
fn who_gives_a_file_back_knows_how_it_is_until_somebody_changes_that() {
    for is_untouched in [true, false] {
        let mut story = Story::disturbed();
        if !is_untouched {
            story.flush("hello");
        }
        let id = story.give_back(None, is_untouched);
        story.cluster.run(ms(100));
        assert!(story.cluster.file_reply(HOLDER, id).is_some() && story.state().lent.is_none());
        assert!(story.believes(), "it is told how the file is now, and with a grant");
        story.is_told_of_the_next_change();
    }
}

/// The other's change is an entry right behind.
#[test]
fn who_gives_back_what_is_being_changed_is_granted_nothing() {
    let mut story = Story::disturbed();
    story.cluster.hold_back(Flying::is_append);
    let id = story.give_back(None, true);
    story.cluster.run(ms(20));
    let before = story.cluster.held.len();
    story.link("h");
    story.cluster.run(ms(20));
    let later = story.cluster.held.split_off(before);
    assert!(before > 0 && !later.is_empty());
    story.cluster.let_go_but(Flying::is_append);
    story.cluster.run(ms(20));
    assert!(story.cluster.file_reply(HOLDER, id).is_some() && story.state().links == 2);
    assert!(!story.believes(), "it has one name more by now, as far as anybody knows");
    story.cluster.held.extend(later);
    story.cluster.let_go();
    story.cluster.run(ms(100));
    assert!(story.state().links == 3 && !story.believes());
}
