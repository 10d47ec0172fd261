//! Layout: fields that are written and read by hand, and data that travels beside them.
//!
//! What is said about files carries data, which no codec is to touch: it stands in the tail of a frame as it is, and in the
//! metadata stand its length and its checksum. An encoder hands the data on without copying it, and a decoder cuts what is
//! long out of the tail. Numbers look as postcard writes them, and one that is padded is refused at once; so there is one encoding
//! of each value.
//!
//! A type says once what its fields are, and in which order; [`record`], [`choice`] and [`number`] make of it both ways.

use std::sync::Arc;

use bytes::Bytes;
use node::file::Payload;

use crate::DecodeError;

/// What is being written.
#[derive(Default)]
pub struct Sink {
    pub(crate) metadata: Vec<u8>,
    /// The pieces of the tail. They share the memory of whoever gave them.
    pub(crate) tail: Vec<Bytes>,
}

/// What is being read.
pub struct Source<'a> {
    metadata: &'a [u8],
    tail: Bytes,
}

/// Something with a layout.
pub trait Field: Sized {
    /// Writes it.
    fn put(&self, out: &mut Sink);

    /// Reads it. Accepts nothing that [`put`](Self::put) does not write.
    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError>;
}

/// What there are lists of.
pub(crate) trait Element: Field {
    /// No list has more.
    const COUNT_MAX: usize;
    /// None takes fewer bytes of metadata.
    const BYTES_MIN: usize;
}

/// Reads a value that takes up all of `metadata` and of `tail`.
pub(crate) fn read_whole<T: Field>(metadata: &[u8], tail: &Bytes) -> Result<T, DecodeError> {
    read_whole_as(metadata, tail, T::get)
}

/// The same for a value that says less than it takes to read it.
pub(crate) fn read_whole_as<T>(
    metadata: &[u8],
    tail: &Bytes,
    get: impl FnOnce(&mut Source<'_>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let mut from = Source { metadata, tail: tail.clone() };
    let value = get(&mut from)?;
    match from.metadata.len() + from.tail.len() {
        0 => Ok(value),
        left => Err(DecodeError::TrailingBytes(left)),
    }
}

/// Metadata that its length stands before, as a number, and the tail behind it.
pub(crate) fn split_metadata(mut bytes: Bytes) -> Result<(Bytes, Bytes), DecodeError> {
    let mut from = Source { metadata: &bytes, tail: Bytes::new() };
    let length = usize::try_from(u64::get(&mut from)?).unwrap_or(usize::MAX);
    let left = from.metadata.len();
    if length > left {
        return Err(DecodeError::Truncated);
    }
    let mut metadata = bytes.split_off(bytes.len() - left);
    let tail = metadata.split_off(length);
    Ok((metadata, tail))
}

/// The first value in some metadata, whatever stands behind it.
pub(crate) fn read_first<T: Field>(metadata: &[u8]) -> Result<T, DecodeError> {
    T::get(&mut Source { metadata, tail: Bytes::new() })
}

/// Writes data that may come in several pieces: its length and checksum, and itself beside them.
pub(crate) fn put_data<'a>(pieces: impl IntoIterator<Item = &'a Bytes>, checksum: u32, out: &mut Sink) {
    let mut length = 0_u64;
    for piece in pieces {
        length += piece.len() as u64;
        if !piece.is_empty() {
            out.tail.push(piece.clone());
        }
    }
    length.put(out);
    out.metadata.extend_from_slice(&checksum.to_le_bytes());
}

/// Data that is shorter is copied out of its frame. It may be kept for long, and would keep all of the frame, and the
/// packets that came with it.
const COPIED_BELOW: usize = 64 << 10;

/// Reads data, and what its checksum is said to be.
pub(crate) fn get_data(from: &mut Source<'_>) -> Result<(Bytes, u32), DecodeError> {
    let length = usize::try_from(u64::get(from)?).unwrap_or(usize::MAX);
    let checksum = u32::from_le_bytes(from.take()?);
    if length > from.tail.len() {
        return Err(DecodeError::Truncated);
    }
    let data = from.tail.split_to(length);
    let data = if length < COPIED_BELOW { Bytes::copy_from_slice(&data) } else { data };
    Ok((data, checksum))
}

/// Data whose checksum is made as it leaves, and compared as it comes.
pub(crate) fn put_fresh<'a>(pieces: impl Iterator<Item = &'a Bytes> + Clone, out: &mut Sink) {
    let checksum = pieces.clone().fold(0, |checksum, piece| crc32c::crc32c_append(checksum, piece));
    put_data(pieces, checksum, out);
}

/// The other way.
pub(crate) fn get_fresh(from: &mut Source<'_>) -> Result<Bytes, DecodeError> {
    let (bytes, told) = get_data(from)?;
    let data = Payload::checked(bytes, told)?;
    Ok(Bytes::clone(&data))
}

impl Source<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (first, rest) = self.metadata.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.metadata = rest;
        Ok(*first)
    }
}

impl<'a> Source<'a> {
    /// As many bytes of the metadata.
    pub(crate) fn take_bytes(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (first, rest) = self.metadata.split_at_checked(count).ok_or(DecodeError::Truncated)?;
        self.metadata = rest;
        Ok(first)
    }
}

impl Field for u64 {
    fn put(&self, out: &mut Sink) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.metadata.push(rest.to_le_bytes()[0] | 0x80);
            rest >>= 7;
        }
        out.metadata.push(rest.to_le_bytes()[0]);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let mut number = 0;
        for shift in (0..Self::BITS).step_by(7) {
            let [byte] = from.take()?;
            let bits = Self::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                let is_padded = byte == 0 && shift > 0;
                return if is_padded { Err(DecodeError::PaddedNumber) } else { Ok(number) };
            }
        }
        Err(DecodeError::Impossible("a number of more than 64 bits"))
    }
}

impl Field for u32 {
    fn put(&self, out: &mut Sink) {
        u64::from(*self).put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        Self::try_from(u64::get(from)?).map_err(|_| DecodeError::Impossible("a number of more than 32 bits"))
    }
}

impl Field for u16 {
    fn put(&self, out: &mut Sink) {
        u64::from(*self).put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        Self::try_from(u64::get(from)?).map_err(|_| DecodeError::Impossible("a number of more than 16 bits"))
    }
}

impl Field for bool {
    fn put(&self, out: &mut Sink) {
        out.metadata.push(u8::from(*self));
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        match from.take()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [byte] => Err(DecodeError::UnknownByte { field: "yes or no", byte }),
        }
    }
}

impl Field for () {
    fn put(&self, _out: &mut Sink) {}

    fn get(_from: &mut Source<'_>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Sink) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        if bool::get(from)? { T::get(from).map(Some) } else { Ok(None) }
    }
}

impl<T: Field, E: Field> Field for Result<T, E> {
    fn put(&self, out: &mut Sink) {
        self.is_err().put(out);
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::get(from)? { Err(E::get(from)?) } else { Ok(T::get(from)?) })
    }
}

impl<T: Field> Field for Box<T> {
    fn put(&self, out: &mut Sink) {
        T::put(self, out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        T::get(from).map(Self::new)
    }
}

impl<T: Field> Field for Arc<T> {
    fn put(&self, out: &mut Sink) {
        T::put(self, out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        T::get(from).map(Self::new)
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut Sink) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        Ok((A::get(from)?, B::get(from)?))
    }
}

impl<T: Element> Field for Vec<T> {
    fn put(&self, out: &mut Sink) {
        assert!(self.len() <= T::COUNT_MAX, "lists of ours are bounded");
        (self.len() as u64).put(out);
        self.iter().for_each(|element| element.put(out));
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let count = usize::try_from(u64::get(from)?).unwrap_or(usize::MAX);
        if count > T::COUNT_MAX || count > from.metadata.len() / T::BYTES_MIN {
            return Err(DecodeError::TooMany(count));
        }
        let mut list = Self::with_capacity(count);
        for _ in 0..count {
            list.push(T::get(from)?);
        }
        Ok(list)
    }
}

/// Whether keys grow from each element to the next.
pub(crate) fn grow<K: Ord>(mut keys: impl Iterator<Item = K>) -> bool {
    let Some(mut last) = keys.next() else { return true };
    keys.all(|key| std::mem::replace(&mut last, key) < last)
}

/// The layout of a type that wraps a number.
macro_rules! number {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn put(&self, out: &mut Sink) {
                self.0.put(out);
            }

            fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
                Field::get(from).map(Self)
            }
        }
    )*};
}

/// The layout of a type with fields: one after the other. A function may be named that refuses what cannot be.
macro_rules! record {
    ($type:ty { $($field:ident),* } $(, $check:ident)?) => {
        impl Field for $type {
            fn put(&self, out: &mut Sink) {
                let Self { $($field),* } = self;
                $($field.put(out);)*
            }

            fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
                $(let $field = Field::get(from)?;)*
                let value = Self { $($field),* };
                $($check(&value)?;)?
                Ok(value)
            }
        }
    };
}

/// The layout of an enum: the number of the variant, and its fields. A function may be named that refuses what cannot be.
macro_rules! choice {
    (
        $type:ty, $name:literal $(, $check:ident)?:
        $($number:literal $variant:ident $(($($inner:ident),+))? $({ $($field:ident),* })?;)*
    ) => {
        impl Field for $type {
            fn put(&self, out: &mut Sink) {
                match self {
                    $(Self::$variant $(($($inner),+))? $({ $($field),* })? => {
                        out.metadata.push($number);
                        $($($inner.put(out);)+)?
                        $($($field.put(out);)*)?
                    })*
                }
            }

            fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
                let value = match from.take()? {
                    $([$number] => {
                        $($(let $inner = Field::get(from)?;)+)?
                        $($(let $field = Field::get(from)?;)*)?
                        Self::$variant $(($($inner),+))? $({ $($field),* })?
                    })*
                    [byte] => return Err(DecodeError::UnknownByte { field: $name, byte }),
                };
                $($check(&value)?;)?
                Ok(value)
            }
        }
    };
}

pub(crate) use {choice, number, record};
