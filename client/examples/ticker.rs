//! A service that runs on many machines and works on one of them at a time.
//!
//! ```text
//! fleasefs up /tmp/cluster
//! FLEASEFS_CLUSTER=/tmp/cluster cargo run --package client --example ticker -- /tmp/ticks   # in several terminals
//! ```
//!
//! One of the copies writes a line each second, the others wait. Kill it, freeze it, or kill the daemon that keeps its
//! lock: somebody goes on, and the file never gets lines of two copies at once. A copy that was frozen may still
//! believe for a moment that it has the lock. So the file itself keeps the highest token that has written to it, and
//! refuses lower ones: with that, no clock has to be right.

use std::env;
use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use client::{Client, Config, Lock, Token};
use rustix::fs::{FlockOperation, flock};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(file) = env::args_os().nth(1).map(PathBuf::from) else {
        return failed(&"name the file to write to");
    };
    match serve(&file).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&*error),
    }
}

fn failed(why: &dyn std::fmt::Display) -> ExitCode {
    // Nobody is left to be told if this fails.
    let _ = writeln!(io::stderr(), "ticker: {why}");
    ExitCode::FAILURE
}

/// Works whenever it has the lock, until it is interrupted.
async fn serve(file: &Path) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(&Config::find(None)?).await?;
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let lock = tokio::select! {
            lock = client.lock("ticker") => lock?,
            _ = &mut interrupted => break,
        };
        tokio::select! {
            // Somebody else may have it already; this copy waits for its turn again.
            () = lock.lost() => {}
            worked = work(&lock, file) => worked?,
            _ = &mut interrupted => {
                lock.release().await;
                break;
            }
        }
    }
    client.close().await;
    Ok(())
}

/// Writes until the file refuses it.
async fn work(lock: &Lock, file: &Path) -> io::Result<()> {
    let mut step = 0;
    while append(file, lock.token(), step)? {
        step += 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Adds a line, unless somebody with a higher token has.
fn append(path: &Path, token: Token, step: u64) -> io::Result<bool> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let last = text.lines().last().and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
    if last.is_some_and(|last| last > token.0) {
        return Ok(false);
    }
    writeln!(file, "{token} step {step} of process {}", std::process::id())?;
    Ok(true)
}
