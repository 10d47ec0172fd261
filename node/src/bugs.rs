//! Planted bugs of a shard: one rule broken at a time, to prove that the simulator notices.
//!
//! They act only with the feature `planted-bugs`.

/// A rule that can be broken by a run-time switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bug {
    /// A member keeps what a lower epoch writes than it promised.
    PromiseNotKept,
    /// A restarted member counts its numbers from zero instead of from what it stored.
    NumbersForgotten,
    /// A lock is granted when its owner alone has the record.
    GrantedBeforeMajority,
    /// After a takeover by death notice the lock is given away at once.
    NoWaitAfterDeath,
    /// A restarted member claims to know of everything that a dead process granted.
    ForgetfulKnowsAll,
    /// A client's session is confirmed although the lease above its lock may end before it.
    AckWithoutCover,
    /// A silent client is timed out by the length of its session, without allowing for a slower clock.
    SessionNotStretched,
    /// A lease is given up as settled although some client may believe in a grant of the tenure before.
    UnsettledGivenUpAsSettled,
    /// A member drops the record of a held lock that it has not heard of for a while.
    HeldRecordDropped,
    /// A member takes another run of a node for the one that it promised a number to.
    PromiseToAnyRun,
    /// A promise is answered before its number is on disk.
    AnsweredBeforeDurable,
    /// The owner does not tell a restarted member again who has the lock.
    RestartedNotToldAgain,
    /// A restarted node says at once that its peers know of all that it granted, and so of its earlier runs' grants.
    CaughtUpTooEarly,
    /// A peer is admitted from another data directory than it promised with, and goes on with it.
    AnyStoreAdmitted,
    /// A peer is admitted from an old copy of its data directory, and goes on with it.
    OldCopyAdmitted,
    /// A data directory is known by how often it was started alone, so that an old copy that is started often enough passes.
    NonceNotCompared,
    /// A death notice is taken whatever line of starts it is of.
    LineIgnored,
    /// A start trusts the clock of its machine, whatever its peers say.
    OwnClockTrusted,
    /// A start begins with a time that it may have used before.
    FloorForgotten,
    /// A file's primary takes an epoch that an earlier process of its node may have used.
    EpochReused,
    /// The primary of a file goes on answering while it gives the lease up.
    AnswersWhileReleasing,
    /// A node whose disk does nothing goes on leading files.
    StalledDiskLeads,
    /// An answer about a file leaves without a look at the lease.
    LeaseNotCheckedWhenLeaving,
    /// A change that is to be durable is said to be as soon as it has taken effect.
    DurableEarly,
    /// A client is given up for another one although it was heard of lately.
    HeardClientOver,
    /// A client is given up for another one although it has a session.
    PresentClientOver,
    /// A store whose sync has failed is opened again, with what its cache shows.
    FailedStoreOpened,
    /// What a start reads and no sync has confirmed is not written anew.
    CacheTrusted,
    /// A damaged record that was durable is taken for a torn end, and cut off.
    DamageCutOff,
    /// The torn end of what was never synced is taken for damage.
    TornTakenForDamage,
    /// The memo of a store is made anew before it is kept that the node forgot.
    MemoMadeFirst,
    /// The lease of a file is granted by the members that the map names, whoever replicates the file.
    LeaseStaysAtHome,
    /// A node that is no member of a file any more goes on voting as if it were.
    TombstoneIgnored,
    /// The members that the map names forget a file like any others when they are no members any more.
    HomeForgets,
    /// A node that has become a member votes for leases as if it had always been one.
    NewcomerVotesAtOnce,
    /// A node that has lost all that it had of a file votes for its lease as the map says.
    UnsureVotes,
    /// A member that is asked to vote in a view that it does not know asks nobody for that view.
    ViewNotAskedFor,
    /// An operator is told that the members have changed as soon as that is ordered.
    ChangeToldEarly,
    /// A volume's file is written to although its volume has not lent size and times.
    LendNotAsked,
    /// It is written to under a lend that the volume's next power cut takes back.
    LendNotDurable,
    /// A volume is given size and times back before the end of the lend is in the file's own log.
    GivenBackFirst,
    /// A lend is taken for ended in the file's log although a power cut takes that back.
    ReturnNotDurable,
    /// The data of a file goes, or the end of its lend is kept, before a power cut of the volume would leave what that is for.
    VolumeNotDurable,
    /// A file that its volume takes for deleted is deleted without its data.
    DataLeftBehind,
    /// A primary takes who has told it nothing in its tenure for somebody who has nothing open.
    UntoldHoldNothing,
    /// Who has a file open is known to the primary alone, and not to the entry that takes the last name away.
    HoldersInMemory,
    /// A new primary ends clients that it has not heard of.
    UntoldEnded,
    /// Who closes a file closes it for others, too.
    OthersReleased,
    /// A client that is silent is not ended.
    SilentKept,
    /// What a client tells late takes away what it has opened since.
    LaterOpeningForgotten,
    /// What a client told an earlier primary counts for a later one.
    AnyTenureTold,
    /// What expired long ago is renewed also for who has closed the file since, or never had it open.
    ClosedRenewed,
    /// A primary takes what a client says of the time and of itself.
    ClientSaysWhen,
    /// Node 0 changes trees at another time than the entries say.
    EntryTimeIgnored,
    /// Whoever gives a state away says nothing of the parts of its tree.
    NamesNotListed,
    /// What was removed is over as soon as a majority knows.
    ForgottenByFew,
    /// What was removed is over although members may not know that its mark is committed.
    MarkedOnce,
    /// What cannot be read of a removed file is waited for.
    RemovedAndLacking,
    /// A content that began only because a lend was asked back from it stays.
    AskedBackKept,
    /// A content whose last lend nobody used is forgotten, whatever clients did under the ones before.
    UnusedIsNothing,
    /// And it is forgotten before its volume knows that the lend has ended.
    AskedBackUntold,
    /// A volume is changed whoever has what is changed in a cache.
    GrantsIgnored,
    /// A change does not wait for clients that do not answer a revocation.
    RevocationNotWaitedFor,
    /// Something is granted that a change under way touches.
    GrantedBeforeOutcome,
    /// Something is granted although the lease of the volume may end before its client's session.
    GrantedWithoutCover,
    /// A client is confirmed although the lease of a volume that it has in a cache may end before its session.
    ConfirmedWithoutCover,
    /// Something is granted to a client that is not on record in the volume.
    GrantedOffRecord,
    /// A lease is given up, and who has the volume in a cache is not told.
    ReleasedWithGrants,
    /// Whoever takes a volume over does not ask who has it in a cache.
    GrantsOfDeadNotAskedFor,
    /// A directory is renamed or removed although somebody may believe that it is where it was.
    PlaceNotTaken,
    /// Whoever takes a volume over moves directories though clients may believe where they are.
    PlacesOfDeadForgotten,
    /// A client that has connected anew is taken to have dropped where directories are.
    PlacesOfClosedForgotten,
    /// A volume's primary takes nothing back from whom it is lent to before it lends or changes it.
    LendToTwo,
    /// What somebody asks about names in a directory that is lent to another client is answered at once, and changed.
    DirectoryOfTwo,
    /// What a client has removed by itself goes although others may have found it since.
    LateRemovalDone,
    /// What is lent to a client is known to the primary alone that has lent it.
    LendInMemory,
    /// The first content of a file may be of an epoch that is not above that of the file.
    ContentBeforeFile,
    /// The content takes a flush under a lend that has ended there.
    FlushNotFenced,
    /// Who asks about what is lent to a client is answered before that has given it back.
    RecallNotWaitedFor,
    /// Who asks for a file that another client has is judged by the permissions that the volume knows.
    JudgedByOldMode,
    /// The content takes a client's word for what is lent to it.
    ConfirmNotAsked,
    /// The content is told of a lend that the volume's next power cut takes back.
    ConfirmNotDurable,
    /// An answer to a revocation that is over takes away what was granted since.
    LateAnswerDropsGrant,
    /// What is lent to a client that has ended stays lent.
    ClientLendForgotten,
    /// What came of one lend is taken for what came of the one that is taken back.
    LendsMixedUp,
    /// A client is believed that it changed nothing, whatever the content asked.
    UntouchedWithContent,
    /// Who is there and flushes has no longer to answer than who may be gone.
    SlowFlushCutOff,
    /// Who could not come because this node was not there is taken for gone.
    ReturnNotAwaited,
    /// What is shown for a change is looked at when that arrives, and not when it is made.
    ShownOnArrival,
    /// A disk that keeps something back for its journal and its checkpoints gives that to other daemons' data, too.
    ReserveGivenAway,
}

/// The rules in force: all of them in a product, perhaps all but one in a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    #[cfg(feature = "planted-bugs")]
    broken: Option<Bug>,
}

impl Rules {
    /// All but one, if any.
    #[cfg(feature = "planted-bugs")]
    pub const fn without(broken: Option<Bug>) -> Self {
        Self { broken }
    }

    /// Whether this rule is broken on purpose.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn breaks(self, bug: Bug) -> bool {
        self.broken == Some(bug)
    }

    /// Products break no rule.
    #[cfg(not(feature = "planted-bugs"))]
    #[expect(clippy::unused_self, reason = "the same signature as with planted bugs")]
    pub(crate) const fn breaks(self, _bug: Bug) -> bool {
        false
    }
}
