//! What programs use: locks, objects, and what daemons say about themselves.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use client::{Client, Config};
//!
//! let client = Client::connect(&Config::find(None)?).await?;
//! let lock = client.lock("nightly-report").await?;
//! println!("the token for whatever checks it: {}", lock.token());
//! while lock.is_held() {
//!     // One step of the work, short against the session.
//! #   break;
//! }
//! lock.release().await;
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! A lock is the program's until it is released, or until its session could not be confirmed in time: then
//! [`Lock::is_held`] is false *before* anybody else can have the lock, and [`Lock::lost`] returns. A program that
//! was frozen meanwhile has not noticed: ask again before every act, or give the token to whatever is acted upon and
//! have it refuse lower ones, as `examples/ticker.rs` does.
//!
//! An [`Object`] is content that daemons keep. Whatever is asked of it is sent until it has a result, and takes effect
//! once.
//!
//! ```no_run
//! # async fn example(client: client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let object = client.object_named("nightly-report.txt")?;
//! object.create().await?;
//! object.append("all is well\n".into()).await?;
//! object.sync().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`core`](mod@core) decides; the rest of this crate is its driver.

mod ahead;
mod behind;
mod clock;
mod config;
pub mod core;
mod driver;
mod handles;
mod health;
mod holding;
mod holes;
mod lock;
mod objects;
mod orders;
mod reading;
mod reopening;
mod source;
mod volume_files;
mod volumes;
mod watch;

pub use config::{CLUSTER_VARIABLE, CONFIG_FILE, Config, ConfigError, commented};
pub use driver::{Client, ConnectError, DaemonState};
pub use health::{problems, waiting, what_may_be_lost};
pub use holding::FileLock;
pub use holes::Sought;
pub use lock::{Lock, LockError, NAME_BYTES_MAX};
pub use node::file::{FileError, READ_BYTES_MAX, Stat, WRITE_BYTES_MAX};
pub use node::{Status, Token, Unavailable};
pub use objects::{Object, ObjectError};
pub use orders::OrderError;
pub use volume_files::{Heir, VolumeFile};
pub use volumes::{Volume, VolumeError};
pub use watch::{Ended, Watch};
