//! What `fleasefs who` and `fleasefs why` are asked about: a path inside a mount, or in a volume by its name; a lock; an object.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use base::{NodeId, ObjectId};
use client::{Client, Volume};
use namespace::{Attributes, InodeId, Kind, Name, Who};
use node::{Inspection, VolumeName, file_object, lock_cell, object_named};
use serde_json::Value;

/// How long the daemons have to say what a path names.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is asked about.
#[derive(clap::Args)]
pub(crate) struct Named {
    /// A path inside a mount, or VOLUME:PATH
    #[arg(value_name = "PATH", required_unless_present_any = ["lock", "object"])]
    path: Option<PathBuf>,

    /// A lock by its name, instead of a path
    #[arg(long, value_name = "NAME", conflicts_with_all = ["path", "object"])]
    lock: Option<String>,

    /// An object of `fleasefs object` by its name, instead of a path
    #[arg(long, value_name = "NAME", conflicts_with = "path")]
    object: Option<String>,

    /// The folder that `fleasefs init` or `fleasefs up` made, or a client.toml; default: that of the mount, or
    /// $FLEASEFS_CLUSTER
    #[arg(long, value_name = "DIR")]
    cluster: Option<PathBuf>,

    /// Print one JSON object; times are in microseconds since 1970, by the daemons' clocks
    #[arg(long)]
    json: bool,
}

/// What was found.
pub(crate) struct Found {
    /// How it was named.
    pub(crate) name: String,
    /// What of a volume it is.
    pub(crate) inode: Option<(VolumeName, Attributes)>,
    /// The objects that it consists of, what each is for, and what the daemons say of it.
    pub(crate) parts: Vec<Part>,
}

/// An object, and what each daemon of the map says of it.
pub(crate) struct Part {
    pub(crate) what: &'static str,
    pub(crate) object: ObjectId,
    pub(crate) told: Vec<(NodeId, Result<Inspection, String>)>,
}

/// A place in a volume.
struct Place {
    cluster: Option<PathBuf>,
    volume: VolumeName,
    /// Its names, from the root on.
    names: Vec<Name>,
}

impl Part {
    /// What those say who answer.
    pub(crate) fn answers(&self) -> impl Iterator<Item = &Inspection> {
        self.told.iter().filter_map(|(_, told)| told.as_ref().ok())
    }
}

impl Named {
    /// Finds it, asks all daemons about it, and prints what they say. It is a failure if of a part of it nobody can say anything.
    pub(crate) fn show(
        &self,
        whole: impl Fn(&Found) -> Value,
        print: impl Fn(&mut io::StdoutLock<'static>, &Found) -> io::Result<()>,
    ) -> anyhow::Result<ExitCode> {
        let found = self.look()?;
        let mut out = io::stdout().lock();
        let printed = if self.json { writeln!(out, "{}", whole(&found)) } else { print(&mut out, &found) };
        printed.context("could not print")?;
        let answered = found.parts.iter().all(|part| part.answers().next().is_some());
        Ok(if answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn look(&self) -> anyhow::Result<Found> {
        let place = self.path.as_deref().map(place).transpose()?;
        let of_mount = place.as_ref().and_then(|place| place.cluster.clone());
        let config = client::Config::find(self.cluster.clone().or(of_mount).as_deref())?;
        crate::runtime()?.block_on(async {
            let client = Client::connect(&config).await?.with_patience(PATIENCE);
            let found = self.ask(&client, place).await;
            client.close().await;
            found
        })
    }

    async fn ask(&self, client: &Client, place: Option<Place>) -> anyhow::Result<Found> {
        let (name, inode, objects) = match (place, &self.lock, &self.object) {
            (Some(place), ..) => {
                let name = self.path.as_deref().map_or_else(String::new, |path| path.display().to_string());
                let (attributes, objects) = objects(client, &place).await?;
                (name, Some((place.volume, attributes)), objects)
            }
            (None, Some(lock), _) => (lock.clone(), None, vec![("lock", lock_cell(lock))]),
            (None, None, Some(object)) => (object.clone(), None, vec![("object", object_named(object))]),
            (None, None, None) => bail!("name a path, or --lock or --object"),
        };
        let mut parts = Vec::new();
        for (what, object) in objects {
            parts.push(Part { what, object, told: client.inspect(object).await });
        }
        Ok(Found { name, inode, parts })
    }
}

/// The folder of the cluster that is mounted where a path is.
pub(crate) fn cluster_of(path: &Path) -> Option<PathBuf> {
    place(path).ok()?.cluster
}

/// The object that a path stands for: the content of a file, else the names of its volume.
pub(crate) async fn object_at(client: &Client, path: &Path) -> anyhow::Result<ObjectId> {
    let (_, objects) = objects(client, &place(path)?).await?;
    Ok(objects[0].1)
}

/// What is at a place, the objects that it consists of, and what each is for.
async fn objects(
    client: &Client,
    place: &Place,
) -> anyhow::Result<(Attributes, Vec<(&'static str, ObjectId)>)> {
    let volume = client.volume(&place.volume).await?;
    let attributes = walk(&volume, &place.names).await?;
    let mut objects = vec![("names", volume.object())];
    if attributes.kind == Kind::File {
        objects.insert(0, ("content", file_object(volume.object(), attributes.inode)));
    }
    Ok((attributes, objects))
}

/// What the names lead to. Links are not followed.
async fn walk(volume: &Volume, names: &[Name]) -> anyhow::Result<Attributes> {
    let mut found = volume.attributes(InodeId::ROOT).await?;
    for name in names {
        let missing = || {
            let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
            format!("`{name}` cannot be looked up in volume {}", volume.name())
        };
        found = volume.lookup(&Who::root(), found.inode, name.clone()).await.with_context(missing)?;
    }
    Ok(found)
}

/// Which place of which volume a path names. Nothing below a mount is touched: that might wait for what is being looked into.
fn place(path: &Path) -> anyhow::Result<Place> {
    let whole = std::path::absolute(path).with_context(|| path.display().to_string())?;
    let mounts = client_fuse::mounts().context("cannot read what is mounted")?;
    let longest = |whole: &Path| {
        let of = mounts.iter().filter(|mount| whole.starts_with(&mount.point));
        of.max_by_key(|mount| mount.point.as_os_str().len()).cloned()
    };
    let found = longest(&whole).map(|mount| (mount, whole.clone())).or_else(|| {
        // Perhaps by a link from elsewhere.
        let whole = path.canonicalize().ok()?;
        Some((longest(&whole)?, whole))
    });
    if let Some((mount, whole)) = found {
        let source = mount.source.to_str().and_then(|source| source.rsplit_once(':'));
        let (cluster, volume) =
            source.with_context(|| format!("{} is no mount of a volume", mount.point.display()))?;
        let inside = whole.strip_prefix(&mount.point).unwrap_or(Path::new(""));
        let volume = VolumeName::parse(volume).with_context(|| format!("no volume is called `{volume}`"))?;
        return Ok(Place { cluster: Some(cluster.into()), volume, names: names(inside)? });
    }
    let text = path.to_str().and_then(|text| text.split_once(':'));
    let Some((volume, inside)) = text else {
        bail!(
            "{} is in no mounted volume; name it as VOLUME:PATH, for example main:/{}",
            path.display(),
            path.display()
        )
    };
    let volume = VolumeName::parse(volume).with_context(|| format!("no volume is called `{volume}`"))?;
    Ok(Place { cluster: None, volume, names: names(Path::new(inside))? })
}

fn names(inside: &Path) -> anyhow::Result<Vec<Name>> {
    let mut names = Vec::new();
    for part in inside.components() {
        use std::path::Component;
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => {
                names.push(Name::new(name.as_bytes()).with_context(|| inside.display().to_string())?);
            }
            Component::ParentDir | Component::Prefix(_) => {
                ensure!(names.pop().is_some(), "{} leads out of the volume", inside.display());
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_volume_is_its_names() {
        let place = place(Path::new("main:/a/./b/../c")).unwrap();
        let named: Vec<&[u8]> = place.names.iter().map(Name::as_bytes).collect();
        assert_eq!((place.volume.as_str(), named), ("main", vec![b"a".as_slice(), b"c"]));
        assert!(super::place(Path::new("main:")).unwrap().names.is_empty());
    }

    #[test]
    fn a_path_outside_of_any_mount_says_what_to_do() {
        let error = place(Path::new("/nowhere/at/all")).err().unwrap().to_string();
        assert!(error.contains("VOLUME:PATH"), "{error}");
        assert!(place(Path::new("main:../a")).is_err());
    }
}
