//! Layout: what daemons ask of each other for files and volumes that they lead.

use bytes::Bytes;
use node::{Errand, ErrandBody};

use crate::DecodeError;
use crate::codec::Body;
use crate::field::{Element, Field, Sink, Source, choice, read_whole, record};
use crate::files::{FILE_BATCH_MAX, Weighed};
use crate::kind::Kind;

impl Body for Vec<Errand> {
    const KIND: Kind = Kind::Errand;

    fn write(&self, out: &mut Sink) {
        self.put(out);
    }

    fn read(metadata: &[u8], tail: &Bytes) -> Result<Self, DecodeError> {
        read_whole(metadata, tail)
    }
}

record!(Errand { id, of, body });
choice!(ErrandBody, "what a daemon is asked to do":
    0 Lend;
    1 GiveBack { generation, given };
    2 Return { lent, modified };
    3 Remove;
    4 Confirm { generation };
);

impl Weighed for Errand {
    const WEIGHT_MAX: u64 = 0;

    fn weight(&self) -> u64 {
        0
    }
}

impl Element for Errand {
    const COUNT_MAX: usize = FILE_BATCH_MAX;
    const BYTES_MIN: usize = 7;
}
