//! Layout: why a client is refused what it asks of a volume.

use node::AccessError;

use crate::DecodeError;
use crate::field::{Field, Sink, Source, choice};

choice!(AccessError, "why a client is refused":
    0 NotExported;
    1 ReadOnly;
    2 OperatorsOnly;
    3 Nobody { id };
    4 FileOfVolume;
    5 NoKeys;
);
