//! A program that writes to a file of its own, syncs it now and then, and reads it through the mounts: what it has written is there, and what it has
//! synced is never lost.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use base::Random;

use crate::machines::{MOUNTS, POOR, THROUGH};
use crate::players::{Recorder, Troubles};

const BLOCKS: usize = 12;
/// Content is cut at 64 KiB, so blocks lie across that.
const BLOCK_BYTES: usize = 20_000;
const WORD_BYTES: usize = 8;

/// What is known of a block: versions are counted from 1.
#[derive(Clone, Copy, Default)]
struct Block {
    /// Of this one it was said that it stays.
    synced: u64,
    /// The last one that was written, whatever came of that.
    written: u64,
}

pub(crate) struct Keeper<'a> {
    recorder: &'a Recorder,
    mount: usize,
    number: usize,
    random: Random,
    blocks: [Block; BLOCKS],
    /// The troubles of that time, if everything that was written since is there.
    sure: Option<Troubles>,
}

impl<'a> Keeper<'a> {
    pub(crate) fn new(recorder: &'a Recorder, (mount, number): (usize, usize), random: Random) -> Self {
        Self { recorder, mount, number, random, blocks: [Block::default(); BLOCKS], sure: None }
    }

    pub(crate) fn play(mut self) {
        let mut opened = None;
        while !self.recorder.is_over() {
            thread::sleep(Duration::from_millis(self.random.between(4, 40)));
            let now = self.recorder.troubles();
            if let Err(error) = self.turn(&mut opened, now) {
                self.recorder.may_fail(self.mount, now, &error);
                // What was refused is told once to whoever has the file open.
                (opened, self.sure) = (None, None);
            }
            self.recorder.count(self.number);
        }
        self.end();
    }

    fn turn(&mut self, opened: &mut Option<(u64, File)>, now: Troubles) -> io::Result<()> {
        // What was opened through a mount that was killed since is of no use, whether anybody has noticed or not.
        let poor = self.concerning(now).poor;
        let (_, file) = match opened.take_if(|(then, _)| *then == poor) {
            Some(still) => opened.insert(still),
            None => opened.insert((poor, self.open(self.mount)?)),
        };
        // The mount that has a hard life may keep whoever asks waiting.
        let (block, via) = (self.random.index(BLOCKS), self.random.index(POOR));
        if !self.is_sure(now) {
            if self.blocks[block].synced > 0 {
                self.verify(via, block, now)?;
            }
            let is_over = self.concerning(now).are_over();
            return if is_over || self.random.chance(1, 3) { self.settle(file, now) } else { Ok(()) };
        }
        match self.random.below(10) {
            0..5 => self.write(file, block),
            5..7 => self.sync(file, now),
            _ => self.verify(via, block, now),
        }
    }

    fn open(&self, via: usize) -> io::Result<File> {
        File::options().read(true).write(true).open(self.recorder.kept(via, self.mount))
    }

    /// Troubles that are none of this program's are as good as none.
    const fn concerning(&self, troubles: Troubles) -> Troubles {
        Troubles {
            poor: if self.mount == POOR { troubles.poor } else { 0 },
            full: if self.mount == THROUGH { 0 } else { troubles.full },
        }
    }

    /// Whether what was written is there, and not only what was synced.
    fn is_sure(&self, now: Troubles) -> bool {
        let now = self.concerning(now);
        now.are_over() && self.sure == Some(now)
    }

    fn write(&mut self, file: &File, block: usize) -> io::Result<()> {
        let known = &mut self.blocks[block];
        known.written += 1;
        let content: Vec<u8> =
            words(self.mount, block, known.written).flat_map(u64::to_le_bytes).take(BLOCK_BYTES).collect();
        file.write_all_at(&content, (block * BLOCK_BYTES) as u64)?;
        if self.mount == THROUGH {
            known.synced = known.written;
        }
        Ok(())
    }

    fn sync(&mut self, file: &File, now: Troubles) -> io::Result<()> {
        file.sync_data()?;
        // What was refused before is not there although this has gone well.
        if self.is_sure(now) {
            self.blocks.iter_mut().for_each(|block| block.synced = block.written);
        }
        Ok(())
    }

    /// Writes everything anew.
    fn settle(&mut self, file: &File, now: Troubles) -> io::Result<()> {
        (0..BLOCKS).try_for_each(|block| self.write(file, block))?;
        file.sync_data()?;
        self.blocks.iter_mut().for_each(|block| block.synced = block.written);
        self.sure = Some(self.concerning(now));
        Ok(())
    }

    fn verify(&self, via: usize, block: usize, now: Troubles) -> io::Result<()> {
        let (known, mut found) = (self.blocks[block], vec![0; BLOCK_BYTES]);
        self.open(via)?.read_exact_at(&mut found, (block * BLOCK_BYTES) as u64)?;
        let is_sure = self.is_sure(now) && self.is_sure(self.recorder.troubles());
        let versions = if is_sure { known.written } else { known.synced }..=known.written;
        let contents: Vec<Vec<u64>> =
            versions.clone().map(|version| words(self.mount, block, version).collect()).collect();
        for (at, word) in found.chunks_exact(WORD_BYTES).enumerate() {
            let word = u64::from_le_bytes(word.try_into().unwrap());
            let is_right = contents.iter().any(|content| content[at] == word);
            let Self { mount, .. } = *self;
            let place = at * WORD_BYTES;
            assert!(
                is_right,
                "block {block} of mount {mount} has other bytes at {place} than one of {versions:?}, through mount {via}"
            );
        }
        self.recorder.note_verified(BLOCK_BYTES);
        Ok(())
    }

    /// Everything is well now, so all is there on all mounts.
    fn end(&mut self) {
        let now = self.recorder.troubles();
        let verified = self.open(self.mount).and_then(|file| {
            self.settle(&file, now)?;
            (0..MOUNTS).try_for_each(|via| (0..BLOCKS).try_for_each(|block| self.verify(via, block, now)))
        });
        if let Err(error) = verified {
            self.recorder.may_fail(self.mount, now, &error);
        }
    }
}

/// What stands in a block, which no other block and no other version has.
fn words(mount: usize, block: usize, version: u64) -> impl Iterator<Item = u64> {
    let mut random = Random::new((mount as u64) << 48 ^ (block as u64) << 40 ^ version);
    (0..BLOCK_BYTES / WORD_BYTES).map(move |_| random.next_u64())
}
