//! Which tags names are taken from, and their tables, read while the program already runs.

use std::fs;
use std::thread::{self, JoinHandle};

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_pipeline::lock::{self, LockedTag};
use nvabi_pipeline::model::Facts;
use nvabi_pipeline::tag::Tag;
use nvabi_reports::decode::sniff::{Audit, Event, Nodes, Tables, What};
use nvabi_reports::decode::value;

use crate::context::{Context, Family, spec_of};

/// Where L4T says its release.
const TEGRA_FILE: &str = "/etc/nv_tegra_release";

/// `-EINVAL`.
const REFUSED: i64 = -(libc::EINVAL as i64);

/// What is said of the drivers: by a person, and by the machine that the program ran on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Versions {
    /// With `--tag`.
    pub(crate) asked: Vec<Tag>,
    /// By the machine.
    pub(crate) machine: Vec<Tag>,
}

impl Versions {
    /// What this machine says, beside what was asked for.
    pub(crate) fn of_machine(asked: &[Tag]) -> Self {
        let x86 = nvabi::driver::installed().and_then(|version| version.parse().ok());
        let tegra = fs::read_to_string(TEGRA_FILE).ok().and_then(|text| release(&text));
        Self { asked: asked.to_vec(), machine: x86.into_iter().chain(tegra).collect() }
    }

    /// The tag of a family that names are wanted of: as asked for, else as the machine says, else as the
    /// driver told the program, else the newest of the lock.
    fn wanted<'t>(
        &'t self,
        family: &str,
        told: Option<&'t Tag>,
        locked: &'t [LockedTag],
    ) -> Option<&'t Tag> {
        let newest = locked.last().map(|newest| &newest.tag);
        let said = Self::of_family(&self.asked, family).or(Self::of_family(&self.machine, family));
        said.or(told).or(newest)
    }

    fn of_family<'t>(tags: &'t [Tag], family: &str) -> Option<&'t Tag> {
        tags.iter().find(|tag| tag.family() == family)
    }
}

/// The release in `# R36 (release), REVISION: 4.3, GCID: …`.
fn release(text: &str) -> Option<Tag> {
    let rest = text.lines().next()?.split_once("# R")?.1;
    let (major, rest) = rest.split_once(' ')?;
    let minor = rest.split_once("REVISION: ")?.1.split(',').next()?;
    // A revision that ends in zero has none.
    let minor = minor.trim().trim_end_matches(".0");
    format!("tegra-r{major}.{minor}").parse().ok()
}

/// The names of both families.
pub(crate) struct Names {
    families: Vec<Known>,
    versions: Versions,
    /// The version that the driver told the program.
    told: Option<Tag>,
    tables: Option<Tables>,
    /// What a person should know of the tags, not said yet.
    said: Vec<String>,
    /// Why there are no names.
    failed: Option<Report>,
}

/// A family and its lock.
struct Known {
    family: Family,
    tags: Vec<LockedTag>,
    /// The facts of the tag that is likely to be asked for, being read.
    loading: Option<JoinHandle<Result<Facts, Report>>>,
}

impl Known {
    /// Begins to read the facts of the tag that `versions` name.
    fn new(family: Family, versions: &Versions) -> Result<Self, Report> {
        let tags = lock::read_tags(&family.lock)?;
        let wanted = versions.wanted(&family.name, None, &tags);
        let loading = wanted.and_then(|tag| nearest(&tags, tag)).cloned().map(|tag| {
            let lock = family.lock.clone();
            thread::spawn(move || lock::read_facts(&lock, &tag))
        });
        Ok(Self { family, tags, loading })
    }

    /// The facts of one of its tags.
    fn facts(&mut self, tag: &Tag) -> Result<Facts, Report> {
        let failed = || Diagnostic::error("sniff-lock", "the lock could not be read");
        let loaded = self.loading.take().map(JoinHandle::join);
        match loaded.map(|facts| facts.unwrap_or_else(|_| Err(failed().into()))).transpose()? {
            Some(facts) if facts.tag == *tag => Ok(facts),
            _ => lock::read_facts(&self.family.lock, tag),
        }
    }
}

impl Names {
    /// Begins to read the locks. A tag that no family has is refused.
    pub(crate) fn new(context: &Context<'_>, versions: Versions) -> Result<Self, Report> {
        let families = context.families()?.into_iter().filter(|family| lock::exists(&family.lock));
        let families: Vec<Family> = families.collect();
        for tag in &versions.asked {
            let same = versions.asked.iter().filter(|other| other.family() == tag.family()).count();
            if same > 1 {
                let help = "give one tag of the x86 driver and one of Jetson's";
                let message = format!("two tags of one driver family, one of them {tag}");
                return Err(Diagnostic::error("sniff-tags", message).help(help).into());
            }
            if !families.iter().any(|family| family.name == tag.family()) {
                context.family(Some(tag))?;
            }
        }
        let families = families.into_iter().map(|family| Known::new(family, &versions));
        Ok(Self {
            families: families.collect::<Result<_, Report>>()?,
            versions,
            told: None,
            tables: None,
            said: Vec::new(),
            failed: None,
        })
    }

    /// Which files are devices; `more` are globs of other files of interest.
    pub(crate) fn nodes(&self, more: &[String]) -> Nodes {
        Nodes::new(self.families.iter().flat_map(|known| &known.family.specs), more)
    }

    pub(crate) fn versions(&self) -> &Versions {
        &self.versions
    }

    /// The names at the tags that are known so far.
    pub(crate) fn tables(&mut self) -> &Tables {
        if self.tables.is_none() {
            let tables = self.build();
            self.tables = Some(tables);
        }
        self.tables.get_or_insert_default()
    }

    /// Takes in what a call shows of the driver's version.
    pub(crate) fn learn(&mut self, event: &Event) {
        let is_known = Versions::of_family(&self.versions.asked, "")
            .or(Versions::of_family(&self.versions.machine, ""))
            .or(self.told.as_ref())
            .is_some();
        let (What::Ioctl(ioctl), false) = (&event.what, is_known) else { return };
        let place = self.tables().place(&ioctl.file.node, ioctl.request, "versionString");
        // A program that names another version is refused, and told the driver's.
        let is_answered = matches!(event.result, Some(0 | REFUSED));
        let (Some((at, size)), true) = (place, is_answered) else { return };
        let after = ioctl.pieces.first().and_then(|piece| piece.after.as_ref());
        let Some(text) = after.and_then(|after| after.get(at..at.checked_add(size)?)) else {
            return;
        };
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        if let Some(tag) = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
            self.told = Some(tag);
            self.tables = None;
        }
    }

    /// What a person should know of the tags.
    pub(crate) fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }

    /// Why there are no names, if so.
    pub(crate) fn failed(&mut self) -> Option<Report> {
        self.failed.take()
    }

    /// Adds to findings about sizes the tags at which a type has the size that was found.
    pub(crate) fn add_tags(&mut self, audit: &mut Audit) {
        for finding in audit.findings().filter(|finding| !finding.types.is_empty()) {
            match self.tags_of_size(&finding.types, finding.found) {
                Ok(tags) => finding.tags = tags,
                Err(report) => self.failed = Some(report),
            }
        }
    }

    /// The tags at which one of some types has a size, as spans.
    fn tags_of_size(&self, types: &[String], size: u64) -> Result<Vec<String>, Report> {
        let mut spans = Vec::new();
        for known in &self.families {
            for ty in types {
                let names = lock::Names { names: &[ty], specs: &[], surfaces: &[] };
                let sizes = value::sizes(&lock::read_names(&known.family.lock, names)?, ty);
                let of_size = sizes.into_iter().filter(|(known, ..)| *known == size);
                spans.extend(of_size.map(|(_, first, last)| value::span(&first, &last)));
            }
        }
        spans.dedup();
        Ok(spans)
    }

    fn build(&mut self) -> Tables {
        match self.try_build() {
            Ok(tables) => tables,
            Err(report) => {
                self.failed = Some(report);
                Tables::default()
            }
        }
    }

    fn try_build(&mut self) -> Result<Tables, Report> {
        let mut tables = Tables::default();
        for known in &mut self.families {
            let name = &known.family.name;
            let asked = Versions::of_family(&self.versions.asked, name);
            let machine = Versions::of_family(&self.versions.machine, name);
            let told = self.told.as_ref().filter(|tag| tag.family() == name);
            let Some(wanted) = self.versions.wanted(name, told, &known.tags).cloned() else {
                continue;
            };
            let Some(tag) = nearest(&known.tags, &wanted).cloned() else { continue };
            if tag != wanted {
                self.said.push(format!(
                    "the lock has no tag {wanted}: using the names of {tag}, the nearest; \
                     `nvabi ranges --nearest {wanted}` compares their ABIs"
                ));
            } else if asked.is_none() && (told.is_some() || machine.is_some()) {
                self.said.push(format!("using the names of {tag}, which the driver reports"));
            }
            tables.add(known.facts(&tag)?, spec_of(&known.family.specs, &tag)?);
        }
        Ok(tables)
    }
}

/// A locked tag, or the one next to it, of the same branch if there is one.
fn nearest<'l>(locked: &'l [LockedTag], tag: &Tag) -> Option<&'l Tag> {
    let at = locked.partition_point(|known| known.tag < *tag);
    let above = locked.get(at).map(|known| &known.tag);
    let below = at.checked_sub(1).and_then(|at| locked.get(at)).map(|known| &known.tag);
    let of_branch = |known: &&Tag| known.branch() == tag.branch();
    above
        .filter(|known| *known == tag)
        .or(below.filter(of_branch))
        .or(above.filter(of_branch))
        .or(below)
        .or(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(text: &str) -> Tag {
        text.parse().unwrap()
    }

    #[test]
    fn jetsons_say_their_release() {
        let text = "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64";
        assert_eq!(release(text), Some(tag("tegra-r36.4.3")));
        assert_eq!(release("# R36 (release), REVISION: 4.0, GCID: 1"), Some(tag("tegra-r36.4")));
        assert_eq!(release("R36"), None);
    }

    #[test]
    fn the_nearest_tag_is_of_the_same_branch() {
        let locked = ["535.288.01", "550.40.07", "550.90.07", "570.86.15"];
        let locked = locked.map(|t| LockedTag { tag: tag(t), headers: String::new() });
        let near = |t: &str| nearest(&locked, &tag(t)).map(Tag::as_str);
        assert_eq!(near("550.90.07"), Some("550.90.07"));
        assert_eq!(near("550.54.14"), Some("550.40.07"));
        assert_eq!(near("550.30"), Some("550.40.07"));
        assert_eq!(near("560.28.03"), Some("550.90.07"));
        assert_eq!(near("515.43.04"), Some("535.288.01"));
    }
}
