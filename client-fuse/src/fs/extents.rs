//! Where files have something: making room in them, finding their holes, and copying from one to the other.

use client::{READ_BYTES_MAX, Sought};

use super::{Fs, FsError};

/// No request copies more. Whoever wants more asks again.
const COPIED_BYTES_MAX: u64 = 16 << 20;
/// So much is copied at once.
const PIECE_BYTES: u64 = READ_BYTES_MAX;

const _: () = assert!(PIECE_BYTES <= client::WRITE_BYTES_MAX, "what is read at once is written at once");
const _: () = assert!(COPIED_BYTES_MAX <= u32::MAX as u64, "the kernel is told in 32 bits how much it was");

/// What is to be done to a stretch of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocate {
    /// It reads as zeros from now on.
    pub(crate) zeroes: bool,
    /// The file reaches to its end at least.
    pub(crate) extends: bool,
}

impl Fs {
    /// Does that to a stretch. No room is reserved for it.
    pub(crate) async fn allocate(
        &self,
        handle: u64,
        (offset, length): (u64, u64),
        how: Allocate,
    ) -> Result<(), FsError> {
        let open = self.files.get(handle)?;
        let file = self.content(&open).await?;
        if how.extends {
            file.extend(offset.saturating_add(length)).await?;
        }
        if how.zeroes {
            file.punch(offset, length).await?;
        }
        self.changed(&open).await
    }

    /// Where the next hole is, or the next that is none.
    pub(crate) async fn seek(
        &self,
        (number, handle): (u64, u64),
        offset: u64,
        sought: Sought,
    ) -> Result<u64, FsError> {
        let open = self.files.get(handle)?;
        self.write_mapped(number).await;
        self.content(&open).await?.seek(offset, sought).await?.ok_or(FsError::NothingThere)
    }

    /// Copies from one place to another. Returns how much it was, which is less where the file ends and where it is very much.
    pub(crate) async fn copy(
        &self,
        (from, from_offset): (u64, u64),
        (to, to_offset): (u64, u64),
        length: u64,
    ) -> Result<u32, FsError> {
        let (from, into) = (self.files.get(from)?, self.files.get(to)?);
        let (from, to) = (self.content(&from).await?, self.content(&into).await?);
        let length = length.min(COPIED_BYTES_MAX);
        let mut copied = 0;
        while copied < length {
            let piece = async {
                let data = from.read(from_offset + copied, PIECE_BYTES.min(length - copied)).await?;
                let bytes = data.len() as u64;
                if bytes > 0 {
                    to.write(to_offset + copied, data).await?;
                }
                Ok(bytes)
            };
            match piece.await {
                Ok(0) => break,
                Ok(bytes) => copied += bytes,
                Err(error) if copied == 0 => return Err(error),
                // Whoever asks for the rest is told.
                Err(_) => break,
            }
        }
        self.changed(&into).await?;
        Ok(u32::try_from(copied).expect("it is bounded"))
    }
}
