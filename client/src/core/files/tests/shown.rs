//! What is shown with requests: proofs of inodes, and what opens volumes' files.

use super::*;

/// What the daemons say of an inode, with what they want shown for it.
pub(super) fn told(inode: InodeId) -> (FileReplyBody, Proof) {
    let time = WallTime::ZERO;
    let attributes = Attributes {
        inode,
        kind: Kind::File,
        mode: 0,
        uid: 0,
        gid: 0,
        links: 1,
        rdev: 0,
        size: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        lent: None,
        last_lend: None,
        replicas: Some(base::Members::new([NodeId(1)]).unwrap()),
        has_acl: false,
    };
    let answer = Answer::Tree(Box::new(namespace::Answer::Attributes(attributes)));
    (FileReplyBody::Answer(Ok(answer)), Proof::new(KeyEpoch(1), [7; 16]))
}

#[test]
fn what_was_told_with_an_inode_is_shown_for_it() {
    let mut story = Story::new();
    let inode = InodeId { number: 9, ..InodeId::ROOT };
    let query = |ask| Query::Tree(Arc::new(namespace::Query { who: Who::root(), ask }));
    let name = namespace::Name::new(b"a").unwrap();
    story.files.ask(story.now, OBJECT, query(Ask::Lookup { dir: InodeId::ROOT, name }));
    let sent = story.sent_one();
    assert_eq!(sent.request.proof, None, "it names a directory");
    let (body, proof) = told(inode);
    let reply = FileReply { id: sent.request.id, body, proofs: vec![proof], grant: None };
    story.files.handle_reply(story.now, sent.to, reply);
    story.event();
    let other = InodeId { number: 8, ..inode };
    for (inode, shown) in [(inode, Some(proof)), (other, None)] {
        story.files.ask(story.now, OBJECT, query(Ask::Attributes { inode }));
        assert_eq!(story.sent_one().request.proof, shown);
        let opening = Opening::Open(Who::root(), inode, OpenMode::Read);
        story.files.open(story.now, OBJECT, opening);
        assert_eq!(story.sent_one().request.proof, shown);
        let set = namespace::SetAttributes::default();
        let op = namespace::Op::wanted(Who::root(), namespace::Change::SetAttributes { inode, set });
        story.files.change(story.now, OBJECT, Change::Tree(Arc::new(op)), Level::Written);
        assert_eq!(story.sent_one().request.proof, shown);
    }
}

#[test]
fn a_file_is_opened_until_somebody_says_something() {
    let mut story = Story::new();
    let opening = Opening::Open(Who::root(), InodeId::ROOT, OpenMode::ReadWrite);
    let ticket = story.files.open(story.now, OBJECT, opening);
    let sent = story.sent_one();
    story.reply(&sent, FileReplyBody::Elsewhere(story.members[1]));
    let again = story.sent_one();
    assert_eq!((again.to, &again.request.body), (story.members[1], &sent.request.body));
    let error = FileError::NoTree;
    story.reply(&again, FileReplyBody::Refused(error));
    assert_eq!(story.event(), [FileEvent::Refused { ticket, error }]);
}

#[test]
fn what_is_owed_of_a_closed_file_is_made_durable_with_what_is_shown_for_it() {
    let mut story = Story::new();
    let source = Source { volume: ObjectId::new(7, 7), inode: InodeId::ROOT, lend: None };
    let open = Open { file: OBJECT, mode: OpenMode::ReadWrite, certificate: CertificateId([1; 32]) };
    let expires = WallTime::from_micros(9);
    let tag = Tag::from_bytes([0; 32]);
    let capability = Capability { source, open, expires, epoch: KeyEpoch(1), tag };
    story.files.show(story.now, capability);
    story.write();
    let sent = story.sent_one();
    story.reply(&sent, changed(mark(1, 1)));
    story.files.forget_file(story.now, OBJECT);
    story.files.sync(story.now, OBJECT);
    let sent = story.sent_one();
    assert_eq!(sent.request.shown, Some(Box::new(capability)));
    story.reply(&sent, FileReplyBody::Durable);
    story.write();
    assert_eq!(story.sent_one().request.shown, None, "it is not open");
}
