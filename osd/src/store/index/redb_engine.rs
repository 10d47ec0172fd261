//! The index in one file, by redb.
//!
//! After an error of its file redb does nothing any more until it is opened anew. Where there was only no space that is done here:
//! what was committed last is there.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError, RwLock};

use redb::{
    Database, DatabaseError, Durability, ReadableDatabase, StorageBackend, StorageError, TableDefinition,
    TableError, TransactionError,
};

use super::{CACHE_BYTES, Change, Index, IndexError, Visit};
use crate::store::is_full;
use crate::store::media::Blob;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("index");

/// An index in a file.
pub struct RedbIndex {
    blob: Arc<dyn Blob>,
    /// None until it is opened anew.
    open: RwLock<Option<Database>>,
}

/// The file as redb wants it.
struct Backend(Arc<dyn Blob>);

impl RedbIndex {
    /// Opens the index in a file; makes one in an empty file. Each of its pages is as it was written, or it is damaged: a row would
    /// be missing otherwise, and nobody would know.
    pub fn open(blob: Arc<dyn Blob>) -> Result<Self, IndexError> {
        let open = RwLock::new(Some(open(&blob, true)?));
        Ok(Self { blob, open })
    }

    fn with<T>(&self, act: impl FnOnce(&Database) -> Result<T, IndexError>) -> Result<T, IndexError> {
        if self.open.read().unwrap_or_else(PoisonError::into_inner).is_none() {
            // All of it was checked when it was opened first.
            let database = open(&self.blob, false)?;
            *self.open.write().unwrap_or_else(PoisonError::into_inner) = Some(database);
        }
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        act(open.as_ref().ok_or(IndexError::Full)?)
    }
}

fn open(blob: &Arc<dyn Blob>, checks: bool) -> Result<Database, IndexError> {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(checks);
    builder.create_with_backend(Backend(Arc::clone(blob))).map_err(database_error)
}

impl Index for RedbIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        self.with(|database| get(database, key))
    }

    fn scan(&self, from: &[u8], to: &[u8], each: &mut Visit<'_>) -> Result<(), IndexError> {
        self.with(|database| scan(database, (from, to), each))
    }

    fn commit(&self, changes: &[Change]) -> Result<(), IndexError> {
        let committed = self.with(|database| commit(database, changes));
        if matches!(committed, Err(IndexError::Full)) {
            *self.open.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        committed
    }
}

fn get(database: &Database, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
    let reading = database.begin_read().map_err(failed)?;
    match reading.open_table(TABLE) {
        Ok(table) => Ok(table.get(key).map_err(storage_error)?.map(|value| value.value().to_vec())),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn scan(database: &Database, (from, to): (&[u8], &[u8]), each: &mut Visit<'_>) -> Result<(), IndexError> {
    let reading = database.begin_read().map_err(failed)?;
    let table = match reading.open_table(TABLE) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for item in table.range::<&[u8]>(from..to).map_err(storage_error)? {
        let (key, value) = item.map_err(storage_error)?;
        if each(key.value(), value.value()) == ControlFlow::Break(()) {
            break;
        }
    }
    Ok(())
}

fn commit(database: &Database, changes: &[Change]) -> Result<(), IndexError> {
    let mut writing = database.begin_write().map_err(|error| match error {
        TransactionError::Storage(error) => storage_error(error),
        error => failed(error),
    })?;
    writing.set_durability(Durability::Immediate).map_err(failed)?;
    // A start after a crash then has nothing to walk through.
    writing.set_quick_repair(true);
    {
        let mut table = writing.open_table(TABLE).map_err(|error| match error {
            TableError::Storage(error) => storage_error(error),
            error => failed(error),
        })?;
        for change in changes {
            match change {
                Change::Put(key, value) => table.insert(key.as_slice(), value.as_slice()).map(drop),
                Change::Remove(key) => table.remove(key.as_slice()).map(drop),
            }
            .map_err(storage_error)?;
        }
    }
    writing.commit().map_err(|error| match error {
        redb::CommitError::Storage(error) => storage_error(error),
        error => failed(error),
    })
}

fn database_error(error: DatabaseError) -> IndexError {
    match error {
        DatabaseError::Storage(error) => storage_error(error),
        error => failed(error),
    }
}

fn storage_error(error: StorageError) -> IndexError {
    match error {
        StorageError::Corrupted(what) => IndexError::Damaged(what),
        StorageError::Io(error) if is_full(&error) => IndexError::Full,
        // It is no index, or not all of one. A disk that cannot be read says something else.
        StorageError::Io(error)
            if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            IndexError::Damaged(error.to_string())
        }
        error => failed(error),
    }
}

fn failed(error: impl fmt::Display) -> IndexError {
    IndexError::Failed(error.to_string())
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        // Whatever it says, it says nothing of what was written.
        self.0.sync().map_err(|error| io::Error::other(error.to_string()))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Backend")
    }
}
