//! Layout: what operators order, and what they are told. One to a frame: they are few.

use bytes::Bytes;
use node::{
    Changed, DrainError, MemberChange, MembersError, Order, OrderBody, OrderReply, OrderReplyBody,
    StrikeError,
};

use crate::DecodeError;
use crate::codec::Body;
use crate::field::{Field, Sink, Source, choice, read_whole, record};
use crate::kind::Kind;

impl Body for Order {
    const KIND: Kind = Kind::Order;

    fn write(&self, out: &mut Sink) {
        self.put(out);
    }

    fn read(metadata: &[u8], tail: &Bytes) -> Result<Self, DecodeError> {
        read_whole(metadata, tail)
    }
}

impl Body for OrderReply {
    const KIND: Kind = Kind::OrderReply;

    fn write(&self, out: &mut Sink) {
        self.put(out);
    }

    fn read(metadata: &[u8], tail: &Bytes) -> Result<Self, DecodeError> {
        read_whole(metadata, tail)
    }
}

record!(Order { id, body });
choice!(OrderBody, "what is ordered":
    0 Members(object);
    1 Change { object, change };
    2 Strike(node);
    3 AcceptLoss(object);
    4 Drain { forced };
    5 Undrain;
);
choice!(MemberChange, "how members are to change":
    0 Admit(node);
    1 Dismiss(node);
);

record!(OrderReply { id, body });
choice!(OrderReplyBody, "what an operator is told":
    0 Members(members);
    1 Changed(changed);
    2 Struck(struck);
    3 LossAccepted(accepted);
    4 Drained(drained);
);
choice!(Changed, "how far a change of members is":
    0 Done;
    1 UnderWay;
);
choice!(MembersError, "why members do not change":
    0 Unavailable(why);
    1 Elsewhere(node);
    2 NoSuchFile;
    3 NotInMap(node);
    4 NotConnected(node);
    5 Changing;
    6 Undecided;
    7 NoMajority;
    8 Count;
);
choice!(DrainError, "why a daemon is not drained":
    0 Stopping;
    1 NoMajority { members, missing };
);
choice!(StrikeError, "why a node is not given up":
    0 Connected(node);
);
