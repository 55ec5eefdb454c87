//! The ioctls of the display: of its DRM nodes, and of the mode setter, which has one request in whose
//! parameters an enumerator says what is asked.
//!
//! No table of the driver tells what they take: it is the record that is named as the ioctl, but for case
//! and underscores.

use std::collections::{BTreeMap, HashMap};

use crate::lock::{Fact, ItemKind, Lock, state_at};
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

/// What the ioctls of a tag are known by.
#[derive(Default)]
pub struct Facts<'l> {
    requests: Vec<(&'l str, u64)>,
    commands: Option<&'l BTreeMap<String, i128>>,
    drm: Records<'l>,
    modeset: Records<'l>,
}

/// Names and sizes of records, by their names without case and underscores.
#[derive(Default)]
struct Records<'l>(HashMap<String, Vec<(&'l str, u64)>>);

impl<'l> Facts<'l> {
    /// Of a tag's facts.
    pub fn of(facts: &'l model::Facts) -> Self {
        let mut found = Self::default();
        if let Some(drm) = facts.surfaces.get(DRM) {
            drm.constants.iter().for_each(|(name, c)| found.add_request(name, c.value));
            drm.records.iter().for_each(|(name, record)| found.drm.add(name, record.size));
        }
        if let Some(modeset) = facts.surfaces.get(MODESET) {
            found.commands = modeset.enums.get(COMMANDS).map(|commands| &commands.variants);
            modeset.records.iter().for_each(|(name, r)| found.modeset.add(name, r.size));
        }
        found
    }

    /// Of what a lock says of a tag.
    pub fn of_lock(lock: &'l Lock, tag: usize) -> Self {
        let mut found = Self::default();
        let headers = lock
            .headers
            .iter()
            .filter(|((surface, _), _)| [DRM, MODESET].contains(&surface.as_str()));
        for ((surface, _), header) in headers {
            for ((kind, name), history) in &header.items {
                let wanted = match kind {
                    ItemKind::Record => true,
                    ItemKind::Constant => surface == DRM,
                    ItemKind::Enum => surface == MODESET && name == COMMANDS,
                    _ => false,
                };
                let Some(placed) = state_at(history, tag).filter(|_| wanted) else { continue };
                match &*placed.fact {
                    Fact::Record { size, .. } if surface == DRM => found.drm.add(name, *size),
                    Fact::Record { size, .. } => found.modeset.add(name, *size),
                    Fact::Constant(value) => found.add_request(name, *value),
                    Fact::Enum { variants, .. } => found.commands = Some(variants),
                    _ => {}
                }
            }
        }
        found
    }

    /// A constant is a whole request where its parts say so.
    fn add_request(&mut self, name: &'l str, value: i128) {
        let request = u64::try_from(value).ok().filter(|request| request >> 8 & 0xff != 0);
        if let Some(request) = request.filter(|_| is_ioctl(name)) {
            self.requests.push((name, request));
        }
    }
}

impl<'l> Records<'l> {
    fn add(&mut self, name: &'l str, size: u64) {
        self.0.entry(plain(name)).or_default().push((name, size));
    }

    /// The first record of one of these names, and of that size where it is known.
    fn named(&self, names: &[String], size: Option<u64>) -> Option<&'l str> {
        let found = names.iter().filter_map(|name| self.0.get(name)).flatten();
        let found = found.filter(|(_, there)| size.is_none_or(|size| size == *there));
        found.map(|(name, _)| *name).min()
    }
}

fn plain(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

/// Every ioctl of the display at a tag, by surface.
pub fn ioctls<'l>(facts: &Facts<'l>) -> Vec<Ioctl<'l>> {
    let mut found = Vec::new();
    for (name, request) in &facts.requests {
        let Some((_, what)) = name.split_once("_IOCTL_") else { continue };
        let (what, size) = (plain(what), request_size(*request));
        let names = ["", "params"].map(|end| [format!("{what}{end}"), format!("drm{what}{end}")]);
        let params = facts.drm.named(names.as_flattened(), (size > 0).then_some(size));
        found.push(Ioctl { surface: DRM, name, number: (*request).into(), params });
    }
    for (name, number) in facts.commands.into_iter().flatten() {
        let Some(what) = name.strip_prefix("NVKMS_IOCTL_") else { continue };
        let params = facts.modeset.named(&[format!("nvkms{}params", plain(what))], None);
        found.push(Ioctl { surface: MODESET, name, number: *number, params });
    }
    found
}
