//! The ioctls of the display: of its DRM nodes, and of the mode setter, which has one request in whose
//! parameters an enumerator says what is asked.
//!
//! No table of the driver tells what they take: it is the record that is named as the ioctl, but for case
//! and underscores.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::lock::{Fact, History, ItemKind, Lock, state_at};
use crate::model::{self, request_size};

const DRM: &str = "drm";
const MODESET: &str = "modeset";
/// The enum of what the mode setter is asked.
const COMMANDS: &str = "NvKmsIoctlCommand";

/// The surfaces that tell of them.
pub const SURFACES: [&str; 2] = [DRM, MODESET];

/// Whether a name may be one of theirs.
pub fn is_ioctl(name: &str) -> bool {
    name.contains("_IOCTL_")
}

/// An ioctl at a tag.
#[derive(Debug, Clone, Copy)]
pub struct Ioctl<'l> {
    /// `drm` or `modeset`.
    pub surface: &'static str,
    /// Its name in the header.
    pub name: &'l str,
    /// The whole request, or the mode setter's enumerator.
    pub number: i128,
    /// The record that its argument points to.
    pub params: Option<&'l str>,
}

impl Ioctl<'_> {
    /// Whether it is known what it takes; a request tells when that is nothing.
    pub fn is_mapped(&self) -> bool {
        self.params.is_some() || self.request().is_some_and(|request| request_size(request) == 0)
    }

    /// The whole request, as it is passed to `ioctl`; the mode setter's number is none.
    pub fn request(&self) -> Option<u64> {
        u64::try_from(self.number).ok().filter(|_| self.surface == DRM)
    }
}

/// Every ioctl of the display in a tag's facts, by surface.
pub fn ioctls(facts: &model::Facts) -> Vec<Ioctl<'_>> {
    let records = |surface: &str| {
        let records = facts.surfaces.get(surface).into_iter().flat_map(|s| &s.records);
        Records::of(records.map(|(name, record)| (name.as_str(), record.size)))
    };
    let drm = facts.surfaces.get(DRM).into_iter().flat_map(|drm| &drm.constants);
    let requests = drm.filter_map(|(name, c)| Some((name.as_str(), request(name, c.value)?)));
    let modeset = facts.surfaces.get(MODESET);
    let commands = modeset.and_then(|modeset| modeset.enums.get(COMMANDS));
    let of = Of { drm: &records(DRM), modeset: &records(MODESET), size: &|size| Some(*size) };
    let requests = requests.filter_map(|(name, request)| of.request(name, request));
    let commands = commands.into_iter().flat_map(|commands| &commands.variants);
    requests.chain(commands.filter_map(|(name, number)| of.command(name, *number))).collect()
}

/// What tells of the ioctls of the display at every tag of a lock.
pub struct Ioctls<'l> {
    /// The constants that are requests at some tag.
    requests: Vec<(&'l str, &'l History)>,
    /// The enum of what the mode setter is asked, in each header that has it at some tag.
    commands: Vec<&'l History>,
    drm: Records<'l, &'l History>,
    modeset: Records<'l, &'l History>,
}

impl<'l> Ioctls<'l> {
    /// Of a lock.
    pub fn of_lock(lock: &'l Lock) -> Self {
        let items = |surface: &'static str, kind: ItemKind| {
            let headers = lock.headers.iter().filter(move |((of, _), _)| of == surface);
            let items = headers.flat_map(|(_, header)| &header.items);
            items.filter(move |((of, _), _)| *of == kind).map(|((_, name), h)| (name.as_str(), h))
        };
        let commands = items(MODESET, ItemKind::Enum).filter(|(name, _)| *name == COMMANDS);
        Self {
            requests: items(DRM, ItemKind::Constant).filter(|(name, _)| is_ioctl(name)).collect(),
            commands: commands.map(|(_, history)| history).collect(),
            drm: Records::of(items(DRM, ItemKind::Record)),
            modeset: Records::of(items(MODESET, ItemKind::Record)),
        }
    }

    /// Those of a tag that are wanted, by surface.
    pub fn at(&self, tag: usize, wanted: &dyn Fn(&str) -> bool) -> Vec<Ioctl<'l>> {
        let fact = |history: &'l History| state_at(history, tag).map(|placed| &*placed.fact);
        let size = |history: &&'l History| match fact(history) {
            Some(Fact::Record { size, .. }) => Some(*size),
            _ => None,
        };
        let of = Of { drm: &self.drm, modeset: &self.modeset, size: &size };
        let requests = self.requests.iter().filter(|(name, _)| wanted(name));
        let requests = requests.filter_map(|(name, history)| match fact(history) {
            Some(Fact::Constant(value)) => of.request(name, request(name, *value)?),
            _ => None,
        });
        let commands = self.commands.iter().find_map(|history| match fact(history) {
            Some(Fact::Enum { variants, .. }) => Some(variants),
            _ => None,
        });
        let commands = commands.into_iter().flatten().filter(|(name, _)| wanted(name));
        requests.chain(commands.filter_map(|(name, number)| of.command(name, *number))).collect()
    }
}

/// The names of the ioctls of every tag.
pub fn names(lock: &Lock) -> BTreeSet<&str> {
    let ioctls = Ioctls::of_lock(lock);
    let all = (0..lock.tags.len()).flat_map(|tag| ioctls.at(tag, &|_| true));
    all.map(|ioctl| ioctl.name).collect()
}

/// A constant is a whole request where its parts say so.
fn request(name: &str, value: i128) -> Option<u64> {
    let request = u64::try_from(value).ok().filter(|request| request >> 8 & 0xff != 0);
    request.filter(|_| is_ioctl(name))
}

/// Where the records of the ioctls are looked for.
struct Of<'r, 'l, R> {
    drm: &'r Records<'l, R>,
    modeset: &'r Records<'l, R>,
    /// The size of a record, where there is one.
    size: &'r dyn Fn(&R) -> Option<u64>,
}

impl<'l, R> Of<'_, 'l, R> {
    fn request(&self, name: &'l str, request: u64) -> Option<Ioctl<'l>> {
        let (_, what) = name.split_once("_IOCTL_")?;
        let (what, size) = (plain(what), request_size(request));
        let names = ["", "params"].map(|end| [format!("{what}{end}"), format!("drm{what}{end}")]);
        let fits = |record: &R| (self.size)(record).is_some_and(|own| size == 0 || own == size);
        let params = self.drm.named(names.as_flattened(), fits);
        Some(Ioctl { surface: DRM, name, number: request.into(), params })
    }

    fn command(&self, name: &'l str, number: i128) -> Option<Ioctl<'l>> {
        let what = name.strip_prefix("NVKMS_IOCTL_")?;
        let names = [format!("nvkms{}params", plain(what))];
        let params = self.modeset.named(&names, |record| (self.size)(record).is_some());
        Some(Ioctl { surface: MODESET, name, number, params })
    }
}

/// Records by their names without case and underscores.
struct Records<'l, R>(FxHashMap<String, Vec<(&'l str, R)>>);

impl<'l, R> Records<'l, R> {
    fn of(records: impl Iterator<Item = (&'l str, R)>) -> Self {
        let mut found: FxHashMap<String, Vec<_>> = FxHashMap::default();
        for (name, record) in records {
            found.entry(plain(name)).or_default().push((name, record));
        }
        Self(found)
    }

    /// The first record of one of these names that fits.
    fn named(&self, names: &[String], fits: impl Fn(&R) -> bool) -> Option<&'l str> {
        let found = names.iter().filter_map(|name| self.0.get(name)).flatten();
        found.filter(|(_, record)| fits(record)).map(|(name, _)| *name).min()
    }
}

fn plain(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}
