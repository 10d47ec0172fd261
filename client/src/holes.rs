//! Where a file has something, and where it has holes.
//!
//! Only the daemons know what was written to. What is here and not sent yet is sent first; and whoever asks makes sure, as
//! [whoever reads](crate::reading) does, that what they say is what is to be seen now.

use std::time::Duration;

use namespace::{Attributes, Generation};
use node::file::{Extent, FileError, Level};

use crate::clock;
use crate::core::content::Whose;
use crate::objects::ObjectError;
use crate::source::Source;
use crate::volume_files::VolumeFile;
use crate::volumes::VolumeError;

/// How long it waits for what changes just now, before it looks again.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What to look for in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sought {
    /// A byte that was written to.
    Data,
    /// One that was not. Behind the end of each file there is one.
    Hole,
}

/// Who knows what is asked, and how long the file is, if they do.
#[derive(Clone, Copy)]
struct Asked {
    under: Option<Generation>,
    size: Option<u64>,
}

impl VolumeFile {
    /// Where what is sought begins, from `offset` on. None if that is not within the file, or if nothing is written from there on.
    pub async fn seek(&self, offset: u64, sought: Sought) -> Result<Option<u64>, VolumeError> {
        let patience = self.source().content.patience();
        let start = clock::now();
        while clock::elapsed(start) < patience {
            self.flush(Level::Written).await?;
            if let Some(found) = self.try_to_seek(offset, sought).await? {
                return Ok(found);
            }
            self.source().shared().behind.pause(LOOK_EVERY).await;
        }
        Err(ObjectError::Unanswered { patience_s: patience.as_secs(), why: "it changes hands all the time" }
            .into())
    }

    /// The same; none if the file changes hands meanwhile.
    async fn try_to_seek(&self, offset: u64, sought: Sought) -> Result<Option<Option<u64>>, VolumeError> {
        let source = self.source();
        let before = source.volume.attributes(self.inode()).await?;
        let mut attributes = before.clone();
        let asked = match source.shared().behind.show(source.volume.object(), &mut attributes) {
            Whose::Tree if before.last_lend.is_none() => {
                return Ok(Some(in_nothing(offset, &before, sought)));
            }
            Whose::Tree | Whose::Own => Asked { under: None, size: Some(attributes.size) },
            Whose::Content(generation) => Asked { under: Some(generation), size: None },
            Whose::Leaving(_) | Whose::Other => return Ok(None),
        };
        let found = match source.seek((offset, sought), asked).await {
            // It may not know yet that it is lent. Nobody writes to it as long as that is so.
            Err(error) if asked.under.is_some() && is_not_lent(&error) => {
                source.seek((offset, sought), Asked { under: None, size: Some(before.size) }).await
            }
            found => found,
        };
        let found = match found {
            // Nothing was ever written to it, or it is gone, and then the volume says so.
            Err(VolumeError::Object(ObjectError::NoSuchObject)) => in_nothing(offset, &attributes, sought),
            found => found?,
        };
        let now = source.volume.attributes(self.inode()).await?;
        let is_same = (now.lent, now.last_lend) == (before.lent, before.last_lend);
        Ok(is_same.then_some(found))
    }
}

impl Source {
    async fn seek(
        &self,
        (offset, sought): (u64, Sought),
        Asked { under, size }: Asked,
    ) -> Result<Option<u64>, VolumeError> {
        let extent = async |from| self.opened(|| self.content.extent(from, under)).await;
        let mut at = offset;
        let behind = loop {
            match extent(at).await? {
                Some(Extent { start, .. }) if sought == Sought::Data => return Ok(Some(start)),
                // Not all of what is written is told of at once.
                Some(Extent { start, end }) if start <= at => at = end,
                Some(_) => return Ok(Some(at)),
                None => break at,
            }
        };
        if sought == Sought::Data {
            return Ok(None);
        }
        if behind > offset {
            return Ok(Some(behind));
        }
        let size = match size {
            Some(size) => size,
            None => self.opened(|| self.content.stat()).await?.size,
        };
        Ok((offset < size).then_some(offset))
    }
}

/// In a file that nothing was written to.
fn in_nothing(offset: u64, attributes: &Attributes, sought: Sought) -> Option<u64> {
    (sought == Sought::Hole && offset < attributes.size).then_some(offset)
}

const fn is_not_lent(error: &VolumeError) -> bool {
    matches!(error, VolumeError::Object(ObjectError::Refused(FileError::NotLent) | ObjectError::NoSuchObject))
}
