//! Rules as they stand in a map, from text and to it.

use std::collections::BTreeSet;
use std::fmt;

use base::{Role, RoleError};
use serde::Deserialize;

use super::ids::{IdMap, NO_ID};
use super::{
    ANONYMOUS_DEFAULT, Export, ExportAccess, ExportPath, ExportPathError, Exports, IdMapError, IdRange,
    Squash,
};
use crate::{VolumeName, VolumeNameError};

/// No map has more rules.
pub const EXPORTS_MAX: usize = 256;
/// No rule names more clients.
pub const EXPORT_CLIENTS_MAX: usize = 256;

/// What stands for every volume, and for every client.
const ANY: &str = "*";
/// What the name of a client is written without.
const CLIENT: &str = "client/";

/// Why the rules of a map are none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExportsError {
    /// The list is bounded, as everything is.
    #[error("{0} rules stand under [[exports]]; join some, {EXPORTS_MAX} may be there")]
    TooMany(usize),
    /// One of them.
    #[error("rule {number} under [[exports]]: {source}")]
    Rule {
        /// Which, counted from 1.
        number: usize,
        /// What is wrong with it.
        source: ExportError,
    },
    /// It would look as if it counted.
    #[error(
        "rule {number} under [[exports]] never counts, because rule {first} names the same volume and clients, or more; put it \
         before that one, or remove it"
    )]
    Hidden {
        /// Which, counted from 1.
        number: usize,
        /// The rule that counts in its place.
        first: usize,
    },
}

/// Why a rule is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExportError {
    /// The volume.
    #[error("{0}; `volume` may be \"*\" for every volume")]
    Volume(#[from] VolumeNameError),
    /// Nobody.
    #[error("`clients` is empty; list names of clients, or [\"*\"] for all")]
    NoClients,
    /// The list is bounded, as everything is.
    #[error("`clients` lists {0}; {EXPORT_CLIENTS_MAX} may stand there: make a second rule for the others")]
    TooManyClients(usize),
    /// Not what a certificate can say.
    #[error("`clients`: {0}; a client's name is NAME of its role client/NAME")]
    Client(#[from] RoleError),
    /// A daemon or a supervisor.
    #[error("`clients` lists {0}, which uses no volume; list client/NAME or admin/NAME")]
    NoClient(Role),
    /// It is listed already.
    #[error("`clients` lists {0} twice; remove one")]
    SharedClient(Role),
    /// The others count for nothing.
    #[error("`clients` lists \"*\", which is everybody, and others beside it; remove either")]
    AllAndSome,
    /// The path.
    #[error(transparent)]
    Path(#[from] ExportPathError),
    /// Whoever means nobody would be root.
    #[error("`{key}` is 0, which is root; use the number of somebody who may do little")]
    AnonymousRoot {
        /// The key.
        key: &'static str,
    },
    /// The number that is nobody's.
    #[error("`{key}` is 4294967295, which systems take for no number; use another one")]
    AnonymousNone {
        /// The key.
        key: &'static str,
    },
    /// Numbers that mean others.
    #[error("`{key}` {source}")]
    Ids {
        /// The key.
        key: &'static str,
        /// What is wrong with the ranges.
        source: IdMapError,
    },
}

/// A rule as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenExport {
    volume: String,
    clients: Vec<String>,
    #[serde(default = "path_default")]
    path: String,
    access: ExportAccess,
    #[serde(default)]
    squash: Squash,
    #[serde(default = "anonymous_default")]
    anonymous_uid: u32,
    #[serde(default = "anonymous_default")]
    anonymous_gid: u32,
    #[serde(default)]
    map_uids: Vec<WrittenRange>,
    #[serde(default)]
    map_gids: Vec<WrittenRange>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRange {
    from: u32,
    to: u32,
    count: u32,
}

fn path_default() -> String {
    ExportPath::ROOT.to_string()
}

const fn anonymous_default() -> u32 {
    ANONYMOUS_DEFAULT
}

impl Exports {
    /// Checks the rules of a map.
    pub(crate) fn new(written: Vec<WrittenExport>) -> Result<Self, ExportsError> {
        if written.len() > EXPORTS_MAX {
            return Err(ExportsError::TooMany(written.len()));
        }
        let mut rules: Vec<Export> = Vec::new();
        for (number, written) in (1..).zip(written) {
            let rule = written.check().map_err(|source| ExportsError::Rule { number, source })?;
            if let Some(at) = rules.iter().position(|earlier| earlier.covers(&rule)) {
                return Err(ExportsError::Hidden { number, first: at + 1 });
            }
            rules.push(rule);
        }
        Ok(Self { rules })
    }
}

impl WrittenExport {
    fn check(self) -> Result<Export, ExportError> {
        let volume = if self.volume == ANY { None } else { Some(VolumeName::parse(&self.volume)?) };
        for (key, id) in [("anonymous_uid", self.anonymous_uid), ("anonymous_gid", self.anonymous_gid)] {
            match id {
                0 => return Err(ExportError::AnonymousRoot { key }),
                NO_ID => return Err(ExportError::AnonymousNone { key }),
                _ => {}
            }
        }
        Ok(Export {
            volume,
            clients: clients(&self.clients)?,
            path: ExportPath::parse(&self.path)?,
            access: self.access,
            squash: self.squash,
            anonymous_uid: self.anonymous_uid,
            anonymous_gid: self.anonymous_gid,
            uids: ids("map_uids", self.map_uids)?,
            gids: ids("map_gids", self.map_gids)?,
        })
    }
}

/// Whom the list names; none for everybody.
fn clients(listed: &[String]) -> Result<Option<BTreeSet<Role>>, ExportError> {
    match listed {
        [] => return Err(ExportError::NoClients),
        [all] if all == ANY => return Ok(None),
        _ if listed.len() > EXPORT_CLIENTS_MAX => return Err(ExportError::TooManyClients(listed.len())),
        _ if listed.iter().any(|name| name == ANY) => return Err(ExportError::AllAndSome),
        _ => {}
    }
    let mut clients = BTreeSet::new();
    for text in listed {
        let role = if text.contains('/') { text.parse()? } else { Role::Client(text.parse()?) };
        if !matches!(role, Role::Client(_) | Role::Admin(_)) {
            return Err(ExportError::NoClient(role));
        }
        if let Some(role) = clients.replace(role) {
            return Err(ExportError::SharedClient(role));
        }
    }
    Ok(Some(clients))
}

fn ids(key: &'static str, ranges: Vec<WrittenRange>) -> Result<IdMap, ExportError> {
    let ranges = ranges.into_iter().map(|WrittenRange { from, to, count }| IdRange { from, to, count });
    IdMap::new(ranges.collect()).map_err(|source| ExportError::Ids { key, source })
}

/// Writes a rule with every key that it has, so that what it says is the same whatever the defaults are.
pub(super) fn write(rule: &Export, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let any = || ANY.to_owned();
    let volume = rule.volume.as_ref().map_or_else(any, ToString::to_string);
    let clients = match &rule.clients {
        None => vec![any()],
        Some(clients) => clients.iter().map(client).collect(),
    };
    let clients: Vec<String> = clients.iter().map(|client| quoted(client)).collect();
    writeln!(f, "\n[[exports]]\nvolume = {}\nclients = [{}]", quoted(&volume), clients.join(", "))?;
    writeln!(f, "path = {}", quoted(&rule.path.to_string()))?;
    writeln!(f, "access = \"{}\"\nsquash = \"{}\"", rule.access.name(), rule.squash.name())?;
    writeln!(f, "anonymous_uid = {}\nanonymous_gid = {}", rule.anonymous_uid, rule.anonymous_gid)?;
    for (key, ids) in [("map_uids", &rule.uids), ("map_gids", &rule.gids)] {
        let range = |range: &IdRange| {
            format!("{{ from = {}, to = {}, count = {} }}", range.from, range.to, range.count)
        };
        let ranges: Vec<String> = ids.ranges().iter().map(range).collect();
        writeln!(f, "{key} = [{}]", ranges.join(", "))?;
    }
    Ok(())
}

/// How `clients` names a client.
fn client(role: &Role) -> String {
    let text = role.to_string();
    text.strip_prefix(CLIENT).map_or(text.clone(), str::to_owned)
}

/// A text as TOML has it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
