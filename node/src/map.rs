//! The cluster map: who the storage daemons are, and what all of them must agree on.
//!
//! It is static: an operator writes the next version to every machine. Two nodes talk only if their maps have the
//! same digest, so a cell has the same members wherever it is asked for.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base::{ClusterId, Epoch, Members, MembersError, NodeId, ObjectId, Seq, Span, View, ViewId};
use lease::{ClockGuard, Config, ConfigError, GuardConfig, GuardConfigError, ViewSource};
use serde::{Deserialize, Serialize};

use crate::exports::WrittenExport;
use crate::{CLOCK_FRESH, Exports, ExportsError, from_toml};

/// On how many members a lock is kept, unless the map says otherwise.
pub const REPLICAS_DEFAULT: u8 = 3;
/// Far more daemons than one static map is meant for.
pub(crate) const OSDS_MAX: usize = 1_000;

/// Checked: ids and addresses are distinct, and the settings hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterMap {
    cluster: ClusterId,
    version: u64,
    replicas: u8,
    settings: Settings,
    osds: BTreeMap<NodeId, Osd>,
    exports: Exports,
    digest: [u8; 32],
    /// The view of every cell, if there are no more daemons than replicas.
    common_view: Option<View>,
}

/// One storage daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Osd {
    /// Its number, never reused.
    pub id: NodeId,
    /// Where it listens: `host:port`.
    pub address: String,
}

/// What every node of a cluster must agree on. Times are in milliseconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The lease algorithm.
    pub algorithm: LeaseAlgorithm,
    /// The longest life of a lease, and so of a failover without a witness.
    pub t_max_ms: u32,
    /// The bound on the difference between two clocks.
    pub epsilon_ms: u32,
    /// How long a client's session lasts without being heard.
    pub session_ms: u32,
    /// By how much two clocks may differ in rate, in millionths.
    pub rate_error_ppm: u32,
}

/// How leases are decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeaseAlgorithm {
    /// Absolute expiry on synchronised clocks.
    #[default]
    Flease,
    /// Relative spans, no synchronisation.
    Paxoslease,
}

/// Why a text is no cluster map.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapError {
    /// Not TOML, a key that is unknown or missing, or a value of the wrong kind.
    #[error("{0}")]
    Syntax(String),
    /// The cluster's id.
    #[error(
        "`cluster` is `{0}`: an id is 32 hexadecimal digits; take it from the map that `fleasefs init` wrote"
    )]
    Cluster(String),
    /// The clocks could never be judged.
    #[error("`epsilon_ms` is too small for `rate_error_ppm`: {0}")]
    Guard(#[from] GuardConfigError),
    /// No daemon at all, or far too many.
    #[error("{0} daemons are listed under [[osds]]; a map has between 1 and {OSDS_MAX}")]
    Count(usize),
    /// An id is listed twice.
    #[error("node {0} is listed twice: give each daemon an id of its own")]
    Twice(NodeId),
    /// Two daemons cannot share an address.
    #[error("the address {0} is listed twice: give each daemon an address of its own")]
    SharedAddress(String),
    /// An address without a host or a port.
    #[error("`{0}` is no address: use host:port, with a port from 1 to 65535")]
    Address(String),
    /// Too many or too few replicas.
    #[error("`replicas` cannot be {replicas}: {source}")]
    Replicas {
        /// What was asked for.
        replicas: u8,
        /// Why not.
        source: MembersError,
    },
    /// A session that is over when it begins.
    #[error("`session_ms` cannot be 0: no client could keep a lock; the default is 800")]
    NoSession,
    /// The times do not go together.
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// The rules for volumes.
    #[error(transparent)]
    Exports(#[from] ExportsError),
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cluster: String,
    version: u64,
    #[serde(default = "replicas_default")]
    replicas: u8,
    #[serde(default)]
    lease: Settings,
    osds: Vec<Osd>,
    #[serde(default)]
    exports: Vec<WrittenExport>,
}

const fn replicas_default() -> u8 {
    REPLICAS_DEFAULT
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            algorithm: LeaseAlgorithm::Flease,
            t_max_ms: 2_000,
            epsilon_ms: 100,
            session_ms: 800,
            rate_error_ppm: 120_000,
        }
    }
}

impl Settings {
    /// The lease protocol's configuration under these settings; everything else is as it is by default.
    pub fn lease_config(&self) -> Config {
        let millis = |ms: u32| Span::from_millis(ms.into());
        let t_max = millis(self.t_max_ms);
        Config {
            t_max,
            epsilon: millis(self.epsilon_ms),
            session: millis(self.session_ms),
            rate_error_ppm: self.rate_error_ppm,
            renew_after: t_max / 3,
            ..Config::default()
        }
    }
}

impl LeaseAlgorithm {
    /// Its name in a map.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flease => "flease",
            Self::Paxoslease => "paxoslease",
        }
    }
}

impl ClusterMap {
    /// Reads and checks the text of a map.
    pub fn parse(text: &str) -> Result<Self, MapError> {
        let file: File = from_toml(text).map_err(MapError::Syntax)?;
        let cluster = file.cluster.parse().map_err(|_| MapError::Cluster(file.cluster))?;
        let map = Self::new(cluster, file.version, file.replicas, file.lease, file.osds)?;
        map.check_clocks()?;
        Ok(map.with_exports(Exports::new(file.exports)?))
    }

    /// Checks that clocks that are heard as often as daemons hear them can be judged.
    pub fn check_clocks(&self) -> Result<(), MapError> {
        let lease = self.settings.lease_config();
        ClockGuard::new(GuardConfig::new(&lease, CLOCK_FRESH, self.osds.len()))?;
        Ok(())
    }

    /// Checks the parts of a map.
    pub fn new(
        cluster: ClusterId,
        version: u64,
        replicas: u8,
        settings: Settings,
        osds: Vec<Osd>,
    ) -> Result<Self, MapError> {
        if !(1..=OSDS_MAX).contains(&osds.len()) {
            return Err(MapError::Count(osds.len()));
        }
        if settings.session_ms == 0 {
            return Err(MapError::NoSession);
        }
        settings.lease_config().check()?;
        Members::new((0..replicas.into()).map(NodeId))
            .map_err(|source| MapError::Replicas { replicas, source })?;
        let mut by_id = BTreeMap::new();
        for osd in osds {
            // Others could not call a port that the system picks.
            if !is_address(&osd.address) || has_port_zero(&osd.address) {
                return Err(MapError::Address(osd.address));
            }
            if by_id.values().any(|other: &Osd| other.address == osd.address) {
                return Err(MapError::SharedAddress(osd.address));
            }
            if let Some(other) = by_id.insert(osd.id, osd) {
                return Err(MapError::Twice(other.id));
            }
        }
        let exports = Exports::default();
        let mut map = Self {
            cluster,
            version,
            replicas,
            settings,
            osds: by_id,
            exports,
            digest: [0; 32],
            common_view: None,
        };
        map.digest = map.digest_now();
        if map.osds.len() <= replicas.into() {
            map.common_view = Some(map.view_of(map.osds.keys().copied()));
        }
        Ok(map)
    }

    /// The same map with these rules for volumes, which are in its digest.
    fn with_exports(self, exports: Exports) -> Self {
        let map = Self { exports, ..self };
        Self { digest: map.digest_now(), ..map }
    }

    /// The map as text; reading it gives an equal map. Without rules for volumes it says nothing about them, as maps did
    /// before there were any: so their digests stay what they were.
    pub fn to_text(&self) -> String {
        use std::fmt::Write;
        let Settings { algorithm, t_max_ms, epsilon_ms, session_ms, rate_error_ppm } = &self.settings;
        let mut text = format!(
            "cluster = \"{}\"\nversion = {}\nreplicas = {}\n\n[lease]\nalgorithm = \"{}\"\nt_max_ms = {t_max_ms}\n\
             epsilon_ms = {epsilon_ms}\nsession_ms = {session_ms}\nrate_error_ppm = {rate_error_ppm}\n",
            self.cluster,
            self.version,
            self.replicas,
            algorithm.name()
        );
        for Osd { id, address } in self.osds.values() {
            let written = write!(text, "\n[[osds]]\nid = {id}\naddress = \"{address}\"\n");
            written.expect("a string takes everything");
        }
        text + &self.exports.to_string()
    }

    fn digest_now(&self) -> [u8; 32] {
        blake3::hash(self.to_text().as_bytes()).into()
    }

    /// Which cluster.
    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Which version of its map; an operator raises it with every change.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// On how many members a lock is kept, if there are as many.
    pub const fn replicas(&self) -> u8 {
        self.replicas
    }

    /// A digest of everything in the map.
    pub const fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// What all nodes agree on.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Who may use which volume.
    pub const fn exports(&self) -> &Exports {
        &self.exports
    }

    /// The daemons in the order of their ids.
    pub fn osds(&self) -> impl ExactSizeIterator<Item = &Osd> {
        self.osds.values()
    }

    /// One daemon.
    pub fn osd(&self, id: NodeId) -> Option<&Osd> {
        self.osds.get(&id)
    }

    /// The members of a cell, the preferred primary first: rendezvous hashing, so that every node finds the same, and
    /// primaries spread evenly.
    pub fn members(&self, cell: ObjectId) -> Vec<NodeId> {
        let mut ranked: Vec<(u64, NodeId)> = self.osds.keys().map(|&id| (weight(cell, id), id)).collect();
        ranked.sort_unstable();
        ranked.into_iter().take(self.replicas.into()).map(|(_, id)| id).collect()
    }

    /// The view of every cell, if there are no more daemons than replicas.
    pub const fn common_view(&self) -> Option<&View> {
        self.common_view.as_ref()
    }

    /// The view of a cell.
    pub fn view(&self, cell: ObjectId) -> Cow<'_, View> {
        match &self.common_view {
            Some(view) => Cow::Borrowed(view),
            None => Cow::Owned(self.view_of(self.members(cell))),
        }
    }

    fn view_of(&self, members: impl IntoIterator<Item = NodeId>) -> View {
        let members = Members::new(members).expect("a map has 1 to 15 replicas, each listed once");
        View { id: ViewId { epoch: Epoch::default(), seq: Seq(self.version) }, members }
    }
}

impl ViewSource for ClusterMap {
    fn view(&self, cell: ObjectId) -> Option<Cow<'_, View>> {
        Some(Self::view(self, cell))
    }
}

fn weight(cell: ObjectId, node: NodeId) -> u64 {
    base::mix(cell.high ^ base::mix(cell.low ^ base::mix(node.0.into())))
}

/// Whether `address` looks like `host:port`.
pub fn is_address(address: &str) -> bool {
    // Names, addresses of both kinds, and the interface after an address.
    let is_of_host = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]%".contains(&b);
    let is_host = |host: &str| !host.is_empty() && host.bytes().all(is_of_host);
    address.rsplit_once(':').is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok())
}

fn has_port_zero(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(_, port)| port.parse() == Ok(0_u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn osd(id: u32) -> Osd {
        Osd { id: NodeId(id), address: format!("10.0.0.{id}:7000") }
    }

    fn map(osds: Vec<Osd>) -> Result<ClusterMap, MapError> {
        ClusterMap::new(ClusterId([7; 16]), 1, 3, Settings::default(), osds)
    }

    #[test]
    fn a_map_reads_as_it_is_written() {
        let written = map((1..=5).map(osd).collect()).unwrap();
        assert_eq!(ClusterMap::parse(&written.to_text()), Ok(written));
    }

    #[test]
    fn a_map_without_rules_for_volumes_has_the_digest_that_it_always_had() {
        // Daemons of before and of now have to let each other in.
        let text = "cluster = \"07070707070707070707070707070707\"\nversion = 1\nreplicas = 3\n\n[lease]\n\
                    algorithm = \"flease\"\nt_max_ms = 2000\nepsilon_ms = 100\nsession_ms = 800\n\
                    rate_error_ppm = 120000\n\n[[osds]]\nid = 1\naddress = \"10.0.0.1:7000\"\n";
        let map = ClusterMap::parse(text).unwrap();
        assert_eq!(map.to_text(), text);
        assert_eq!(map.digest(), *blake3::hash(text.as_bytes()).as_bytes());
        assert_eq!(map.clone().with_exports(Exports::default()), map);
    }

    #[test]
    fn the_digest_covers_everything() {
        let one = map((1..=3).map(osd).collect()).unwrap();
        let text = one.to_text();
        for (from, to) in
            [("version = 1", "version = 2"), ("t_max_ms = 2000", "t_max_ms = 3000"), ("0.3:", "0.4:")]
        {
            let other = ClusterMap::parse(&text.replace(from, to)).unwrap();
            assert_ne!(other.digest(), one.digest(), "{from}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let text = map((1..=3).map(osd).collect()).unwrap().to_text();
        for (from, to, expected) in [
            ("version = 1", "versoin = 1", "unknown field `versoin`"),
            ("id = 2", "id = 1", "node 1 is listed twice"),
            ("10.0.0.2", "10.0.0.1", "the address 10.0.0.1:7000 is listed twice"),
            ("10.0.0.2:7000", "10.0.0.2", "`10.0.0.2` is no address"),
            ("10.0.0.2:7000", "10.0.0.2:0", "`10.0.0.2:0` is no address: use host:port, with a port from 1"),
            ("10.0.0.2:7000", "http://b:7000", "`http://b:7000` is no address"),
            ("epsilon_ms = 100", "epsilon_ms = 90", "`epsilon_ms` is too small"),
            ("session_ms = 800", "session_ms = 0", "`session_ms` cannot be 0"),
            ("t_max_ms = 2000", "t_max_ms = 200", "t_max (200ms) must be longer than"),
            ("replicas = 3", "replicas = 0", "`replicas` cannot be 0"),
            ("replicas = 3", "replicas = 16", "`replicas` cannot be 16"),
            ("\"flease\"", "\"raft\"", "unknown variant `raft`"),
            ("cluster = \"07", "cluster = \"7", "`cluster` is `7"),
        ] {
            let error = ClusterMap::parse(&text.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(map(vec![]), Err(MapError::Count(0)));
    }

    #[test]
    fn cells_spread_over_all_daemons() {
        let map = map((1..=5).map(osd).collect()).unwrap();
        let mut firsts = BTreeMap::new();
        for low in 0..5_000 {
            let members = map.members(ObjectId::new(1, low));
            assert_eq!(members.len(), 3);
            *firsts.entry(members[0]).or_insert(0) += 1;
        }
        assert!(firsts.values().all(|count| (850..1_150).contains(count)), "{firsts:?}");
    }
}
