//! Finds the layout that a `#[nvproxy(name, driver, since)]` asks for, or says why there is none.

use core::cmp::Ordering;

use super::compare::{Comparison, agrees};
use super::message::Message;
use super::{Abi, Driver, Item, Layout, order, same, same_layout};

/// How many layouts or tags a message lists at most.
const LISTED: usize = 12;

/// What a derive asks for.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// The driver's name of the struct.
    pub name: &'static str,
    /// The branch, where one is named; or a tag, which stands for itself as with `since`.
    pub driver: Option<&'static str>,
    /// The tag whose layout is meant, where one is named.
    pub since: Option<&'static str>,
}

/// The part of a query that a message belongs to, so that it is shown there in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryPart {
    /// `name = "…"`, or the struct's identifier.
    Name,
    /// `driver = "…"`.
    Driver,
    /// `since = "…"`.
    Since,
}

/// Why a query has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The build has no driver at all, and the query names none.
    NoDriver,
    /// The branch is not in this build.
    Disabled,
    UnknownTag(&'static Driver),
    /// None of these drivers has the name.
    UnknownItem(&'static [Driver]),
    /// The name first appears at this later tag.
    NotYet(&'static Driver, &'static str),
    /// The name is gone since this tag.
    Gone(&'static Driver, &'static str),
    /// The layouts over these drivers and their tags differ.
    Ambiguous(&'static [Driver]),
}

/// The layout a query asks for, if there is exactly one.
pub const fn find(abi: &'static Abi, query: &Query) -> Option<&'static Layout> {
    match resolve(abi, query) {
        Ok(layout) => Some(layout),
        Err(_) => None,
    }
}

/// Stops the compilation if the query has no answer because of the part at `place`.
#[track_caller]
#[allow(clippy::panic, reason = "a panic in a constant is how a compile error is raised")]
pub const fn assert_found(abi: &'static Abi, query: &Query, place: QueryPart) {
    if let Err(fault) = resolve(abi, query) {
        if fault.place(query) as u8 == place as u8 {
            let message = explain(abi, query, fault);
            panic!("{}", message.as_str())
        }
    }
}

/// Stops the compilation if the user's struct is not that of the tag which the query names, but of
/// another tag.
#[track_caller]
#[allow(clippy::panic, reason = "a panic in a constant is how a compile error is raised")]
pub const fn assert_tag(abi: &'static Abi, query: &Query, comparison: &Comparison) {
    let Some(found) = comparison.driver else { return };
    if let Some((tag, layout)) = other_tag(abi, query, comparison) {
        let mut message = Message::new();
        message.push(comparison.own.name);
        message.push(" is the layout of ");
        message.push(query.name);
        message.push(" from ");
        message.push(tag);
        message.push(" on");
        message.place(layout);
        message.push(", not that of ");
        message.push(match (query.since, query.driver) {
            (Some(tag), _) | (None, Some(tag)) => tag,
            (None, None) => found.since,
        });
        message.push("\nhelp: name that tag, or make it the struct of yours");
        panic!("{}", message.as_str())
    }
}

/// The first tag whose layout of the name is the user's struct.
const fn other_tag(
    abi: &'static Abi,
    query: &Query,
    comparison: &Comparison,
) -> Option<(&'static str, &'static Layout)> {
    let mut at = 0;
    while at < abi.drivers.len() {
        let driver = &abi.drivers[at];
        at += 1;
        let Some(item) = item(driver, query.name) else { continue };
        let mut event = 0;
        while event < item.events.len() {
            if let (tag, Some(layout)) = item.events[event] {
                if agrees(&Comparison { driver: Some(layout), ..*comparison }) {
                    return Some((driver.tags[tag as usize], layout));
                }
            }
            event += 1;
        }
    }
    None
}

impl Fault {
    const fn place(self, query: &Query) -> QueryPart {
        match self {
            Fault::Disabled if query.driver.is_some() => QueryPart::Driver,
            Fault::UnknownTag(_) | Fault::NotYet(..) | Fault::Gone(..) if query.since.is_none() => {
                QueryPart::Driver
            }
            Fault::Disabled | Fault::UnknownTag(_) | Fault::NotYet(..) | Fault::Gone(..) => {
                QueryPart::Since
            }
            Fault::NoDriver | Fault::UnknownItem(_) | Fault::Ambiguous(_) => QueryPart::Name,
        }
    }
}

const fn resolve(abi: &'static Abi, query: &Query) -> Result<&'static Layout, Fault> {
    let drivers = match candidates(abi, query) {
        Ok(drivers) => drivers,
        Err(fault) => return Err(fault),
    };
    match (tag_of(query, drivers), drivers) {
        (Some(tag), [driver]) => at_tag(driver, query.name, tag),
        _ => only_layout(drivers, query.name),
    }
}

/// The tag that a query names: its `since`, or a `driver` that is more than the branch.
const fn tag_of(query: &Query, drivers: &[Driver]) -> Option<&'static str> {
    match (query.since, query.driver, drivers) {
        (Some(tag), ..) => Some(tag),
        (None, Some(named), [driver]) if !same(named, driver.name) => Some(named),
        _ => None,
    }
}

/// The drivers that a query can mean. With a tag it is one.
const fn candidates(abi: &'static Abi, query: &Query) -> Result<&'static [Driver], Fault> {
    let found = match (query.driver, query.since) {
        (Some(name), _) => driver_of(abi, name),
        (None, Some(tag)) => driver_with_tag(abi, tag),
        (None, None) if abi.drivers.is_empty() => return Err(Fault::NoDriver),
        (None, None) => return Ok(abi.drivers),
    };
    match found {
        Some(driver) => Ok(core::slice::from_ref(driver)),
        None => Err(Fault::Disabled),
    }
}

/// The driver of a branch, or of the branch that a tag belongs to.
const fn driver_of(abi: &'static Abi, tag: &str) -> Option<&'static Driver> {
    let mut at = 0;
    while at < abi.drivers.len() {
        if in_branch(tag, abi.drivers[at].name) {
            return Some(&abi.drivers[at]);
        }
        at += 1;
    }
    None
}

const fn driver_with_tag(abi: &'static Abi, tag: &str) -> Option<&'static Driver> {
    let mut at = 0;
    while at < abi.drivers.len() {
        if tag_index(&abi.drivers[at], tag).is_some() {
            return Some(&abi.drivers[at]);
        }
        at += 1;
    }
    driver_of(abi, tag)
}

/// Whether a tag is `branch` itself or starts with `branch` and a dot.
const fn in_branch(tag: &str, branch: &str) -> bool {
    let (tag, branch) = (tag.as_bytes(), branch.as_bytes());
    let mut at = 0;
    while at < branch.len() {
        if at >= tag.len() || tag[at] != branch[at] {
            return false;
        }
        at += 1;
    }
    tag.len() == at || tag[at] == b'.'
}

const fn tag_index(driver: &Driver, tag: &str) -> Option<usize> {
    let mut at = 0;
    while at < driver.tags.len() {
        if same(driver.tags[at], tag) {
            return Some(at);
        }
        at += 1;
    }
    None
}

const fn item(driver: &Driver, name: &str) -> Option<&'static Item> {
    let items = driver.items;
    let (mut low, mut high) = (0, items.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match order(items[middle].name, name) {
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
            Ordering::Equal => return Some(&items[middle]),
        }
    }
    None
}

const fn at_tag(driver: &'static Driver, name: &str, tag: &str) -> Result<&'static Layout, Fault> {
    let Some(index) = tag_index(driver, tag) else { return Err(Fault::UnknownTag(driver)) };
    let Some(item) = item(driver, name) else {
        return Err(Fault::UnknownItem(core::slice::from_ref(driver)));
    };
    let mut last = 0;
    while last < item.events.len() && item.events[last].0 as usize <= index {
        last += 1;
    }
    if last > 0 {
        return match item.events[last - 1] {
            (_, Some(layout)) => Ok(layout),
            (since, None) => Err(Fault::Gone(driver, driver.tags[since as usize])),
        };
    }
    match item.events {
        [(since, _), ..] => Err(Fault::NotYet(driver, driver.tags[*since as usize])),
        [] => Err(Fault::UnknownItem(core::slice::from_ref(driver))),
    }
}

/// The layout of a name over all tags of all these drivers, where it is the same everywhere.
const fn only_layout(drivers: &'static [Driver], name: &str) -> Result<&'static Layout, Fault> {
    let mut first: Option<&'static Layout> = None;
    let mut at = 0;
    while at < drivers.len() {
        if let Some(item) = item(&drivers[at], name) {
            let mut event = 0;
            while event < item.events.len() {
                match (first, item.events[event].1) {
                    (Some(one), Some(other)) if !same_layout(one, other) => {
                        return Err(Fault::Ambiguous(drivers));
                    }
                    (None, Some(layout)) => first = Some(layout),
                    _ => {}
                }
                event += 1;
            }
        }
        at += 1;
    }
    match first {
        Some(layout) => Ok(layout),
        None => Err(Fault::UnknownItem(drivers)),
    }
}

const fn explain(abi: &'static Abi, query: &Query, fault: Fault) -> Message {
    let mut message = Message::new();
    match fault {
        Fault::NoDriver => no_driver(&mut message, abi),
        Fault::Disabled => disabled(&mut message, abi, query),
        Fault::UnknownTag(driver) => unknown_tag(&mut message, driver, query),
        Fault::UnknownItem(drivers) => unknown_item(&mut message, abi, drivers, query.name),
        Fault::NotYet(driver, tag) => {
            absent(&mut message, driver, query);
            message.push(" has it from ");
            message.push(tag);
            message.push(" on\nhelp: name that tag or a later one");
        }
        Fault::Gone(driver, tag) => {
            absent(&mut message, driver, query);
            message.push(" dropped it in ");
            message.push(tag);
            message.push("\nhelp: name a tag that has it, or remove the struct");
        }
        Fault::Ambiguous(drivers) => ambiguous(&mut message, drivers, query),
    }
    message
}

const fn no_driver(message: &mut Message, abi: &Abi) {
    message.push("no driver is enabled: add features = [\"");
    feature(
        message,
        match abi.known {
            [.., newest] => newest,
            [] => "…",
        },
    );
    message.push("\"] to nvabi; known are ");
    names(message, abi.known);
}

const fn disabled(message: &mut Message, abi: &'static Abi, query: &Query) {
    let asked = match (query.driver, query.since) {
        (Some(driver), _) => driver,
        (None, Some(tag)) => tag,
        (None, None) => "",
    };
    let mut at = 0;
    while at < abi.known.len() {
        if in_branch(asked, abi.known[at]) {
            message.push("driver ");
            message.push(abi.known[at]);
            message.push(" is not enabled: add features = [\"");
            feature(message, abi.known[at]);
            message.push("\"] to nvabi; this build has ");
            driver_names(message, abi.drivers);
            return;
        }
        at += 1;
    }
    message.push(if query.driver.is_some() { "driver " } else { "the driver of tag " });
    message.push(asked);
    message.push(" is unknown; known are ");
    names(message, abi.known);
}

/// `driver-550` for 550; a driver of a family has the family's name in its own: `tegra-r36`.
const fn feature(message: &mut Message, driver: &'static str) {
    let bytes = driver.as_bytes();
    let mut at = 0;
    while at < bytes.len() && bytes[at] != b'-' {
        at += 1;
    }
    message.push(if at == bytes.len() { "driver-" } else { "" });
    message.push(driver);
}

const fn names(message: &mut Message, names: &[&str]) {
    let mut at = 0;
    while at < names.len() {
        message.push(if at == 0 { "" } else { ", " });
        message.push(names[at]);
        at += 1;
    }
    message.push(if names.is_empty() { "none" } else { "" });
}

const fn driver_names(message: &mut Message, drivers: &[Driver]) {
    let mut at = 0;
    while at < drivers.len() {
        message.push(if at == 0 { "" } else { ", " });
        message.push(drivers[at].name);
        at += 1;
    }
    message.push(if drivers.is_empty() { "none" } else { "" });
}

const fn unknown_tag(message: &mut Message, driver: &Driver, query: &Query) {
    let asked = match (query.since, query.driver) {
        (Some(tag), _) | (None, Some(tag)) => tag,
        (None, None) => "",
    };
    message.push(asked);
    message.push(" is no tag of driver ");
    message.push(driver.name);
    let mut at = 0;
    while at < driver.tags.len() && matches!(version_order(driver.tags[at], asked), Ordering::Less)
    {
        at += 1;
    }
    let end = if at + 2 < driver.tags.len() { at + 2 } else { driver.tags.len() };
    let mut near = at.saturating_sub(2);
    message.push("\nhelp: the nearest are ");
    let mut separator = "";
    while near < end {
        message.push(separator);
        message.push(driver.tags[near]);
        separator = ", ";
        near += 1;
    }
}

const fn unknown_item(
    message: &mut Message,
    abi: &'static Abi,
    drivers: &'static [Driver],
    name: &str,
) {
    message.push(if drivers.len() == 1 { "driver " } else { "none of the drivers " });
    driver_names(message, drivers);
    message.push(if drivers.len() == 1 { " has no " } else { " has " });
    message.quoted(name);
    let mut at = 0;
    while at < abi.drivers.len() {
        if item(&abi.drivers[at], name).is_some() {
            message.push("\nhelp: driver ");
            message.push(abi.drivers[at].name);
            message.push(" has it");
            return;
        }
        at += 1;
    }
    match nearest(drivers, name) {
        Some(nearest) => {
            message.push("\nhelp: did you mean ");
            message.quoted(nearest);
            message.push("?");
        }
        None => message.push(
            "\nhelp: no name is near it; a name that no supported ioctl uses needs nvabi's feature \"full\"",
        ),
    }
}

const fn absent(message: &mut Message, driver: &Driver, query: &Query) {
    message.quoted(query.name);
    message.push(" is not in ");
    message.push(match (query.since, query.driver) {
        (Some(tag), _) | (None, Some(tag)) => tag,
        (None, None) => driver.name,
    });
    message.push(": driver ");
    message.push(driver.name);
}

const fn ambiguous(message: &mut Message, drivers: &'static [Driver], query: &Query) {
    message.quoted(query.name);
    message.push(" has an ambiguous layout:");
    let mut last: Option<&'static Layout> = None;
    let mut listed = 0;
    let mut at = 0;
    while at < drivers.len() {
        let events = match item(&drivers[at], query.name) {
            Some(item) => item.events,
            None => &[],
        };
        let mut event = 0;
        while event < events.len() {
            if let (tag, Some(layout)) = events[event] {
                let repeats = match last {
                    Some(last) => same_layout(last, layout),
                    None => false,
                };
                if !repeats {
                    listed += 1;
                    if listed <= LISTED {
                        message.push("\n  ");
                        message.push(drivers[at].tags[tag as usize]);
                        message.push(": ");
                        message.size(layout.size);
                    }
                }
                last = Some(layout);
            }
            event += 1;
        }
        at += 1;
    }
    if listed > LISTED {
        message.push("\n  and ");
        message.number((listed - LISTED) as u32);
        message.push(" more");
    }
    message.push(if query.driver.is_some() {
        "\nhelp: add `since = \"…\"` with the tag whose layout this struct has"
    } else {
        "\nhelp: add `driver = \"…\"` or `since = \"…\"` for the layout this struct has"
    });
}

/// The name that shares the most of its beginning and end with the asked one, if that is at least
/// half of the longer one. Cheap on purpose: it runs over thousands of names in a constant, so the
/// newest driver that has a like name decides.
const fn nearest(drivers: &'static [Driver], name: &str) -> Option<&'static str> {
    let mut best = None;
    let mut best_score = 0;
    let mut driver = drivers.len();
    while driver > 0 && best.is_none() {
        driver -= 1;
        let items = drivers[driver].items;
        let mut at = 0;
        while at < items.len() {
            let score = likeness(items[at].name, name);
            if score > best_score {
                best_score = score;
                best = Some(items[at].name);
            }
            at += 1;
        }
    }
    best
}

/// How many per mille of the longer name the two share at both ends, or 0 below one half. Upper and
/// lower case letters are alike.
pub(super) const fn likeness(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let (short, long) = if a.len() < b.len() { (a.len(), b.len()) } else { (b.len(), a.len()) };
    if long == 0 || 2 * short < long {
        return 0;
    }
    // Upper and lower case differ in bit 5 alone.
    let mut head = 0;
    while head < short && a[head] | 0x20 == b[head] | 0x20 {
        head += 1;
    }
    let (mut tail_a, mut tail_b) = (a.len(), b.len());
    let mut alike = head;
    while alike < short && a[tail_a - 1] | 0x20 == b[tail_b - 1] | 0x20 {
        tail_a -= 1;
        tail_b -= 1;
        alike += 1;
    }
    if 2 * alike < long { 0 } else { alike * 1000 / long }
}

/// Order of two tags by their numbers, so that `100.10` comes after `100.2`.
const fn version_order(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let (mut in_a, mut in_b) = (0, 0);
    while in_a < a.len() && in_b < b.len() {
        let (from_a, next_a) = number(a, in_a);
        let (from_b, next_b) = number(b, in_b);
        if from_a != from_b {
            return if from_a < from_b { Ordering::Less } else { Ordering::Greater };
        }
        (in_a, in_b) = (next_a, next_b);
    }
    match (in_a < a.len(), in_b < b.len()) {
        (false, true) => Ordering::Less,
        (true, false) => Ordering::Greater,
        _ => Ordering::Equal,
    }
}

/// The number that starts at `at`, and where the next one starts.
const fn number(text: &[u8], mut at: usize) -> (u32, usize) {
    let mut value: u32 = 0;
    while at < text.len() && text[at].is_ascii_digit() {
        value = value.saturating_mul(10).saturating_add((text[at] - b'0') as u32);
        at += 1;
    }
    while at < text.len() && !text[at].is_ascii_digit() {
        at += 1;
    }
    (value, at)
}

#[cfg(test)]
mod tests {
    use super::super::{Field, LayoutKind, Type};
    use super::*;

    const U32: Type = Type::Int { size: 4, signed: false };

    const fn layout(since: &'static str, fields: &'static [Field]) -> Layout {
        let size = fields.len() as u32 * 4;
        Layout {
            name: "FORD",
            kind: LayoutKind::Struct,
            size,
            align: 4,
            since,
            source: "a.h:1",
            fields,
        }
    }

    static OLD: Layout = layout("100.1", &[Field { name: "depth", offset: 0, ty: U32 }]);
    static NEW: Layout = layout(
        "100.10",
        &[Field { name: "width", offset: 0, ty: U32 }, Field { name: "depth", offset: 4, ty: U32 }],
    );
    static AGAIN: Layout = layout("200.1", &[Field { name: "depth", offset: 0, ty: U32 }]);

    static ABI: Abi = Abi {
        drivers: &[
            Driver {
                name: "100",
                feature: "driver-100",
                tags: &["100.1", "100.2", "100.10"],
                items: &[
                    Item { name: "BRIDGE", events: &[(0, Some(&OLD)), (1, None)] },
                    Item { name: "FORD", events: &[(0, Some(&OLD)), (2, Some(&NEW))] },
                    Item { name: "MOAT", events: &[(1, Some(&OLD))] },
                ],
            },
            Driver {
                name: "200",
                feature: "driver-200",
                tags: &["200.1"],
                items: &[
                    Item { name: "FORD", events: &[(0, Some(&AGAIN))] },
                    Item { name: "MOAT", events: &[(0, Some(&AGAIN))] },
                ],
            },
        ],
        known: &["100", "200", "300"],
    };

    fn ask(name: &'static str, driver: &'static str, since: &'static str) -> Query {
        let given = |text: &'static str| (!text.is_empty()).then_some(text);
        Query { name, driver: given(driver), since: given(since) }
    }

    fn since(query: Query) -> Option<&'static str> {
        find(&ABI, &query).map(|layout| layout.since)
    }

    fn complaint(query: Query) -> (QueryPart, String) {
        let fault = resolve(&ABI, &query).unwrap_err();
        (fault.place(&query), explain(&ABI, &query, fault).as_str().to_owned())
    }

    #[test]
    fn a_tag_chooses_the_layout_that_holds_there() {
        assert_eq!(since(ask("FORD", "", "100.1")), Some("100.1"));
        assert_eq!(since(ask("FORD", "100", "100.2")), Some("100.1"));
        assert_eq!(since(ask("FORD", "100", "100.10")), Some("100.10"));
        assert_eq!(since(ask("FORD", "200", "")), Some("200.1"));
    }

    #[test]
    fn equal_layouts_of_several_drivers_need_no_choice() {
        assert_eq!(since(ask("MOAT", "", "")), Some("100.1"));
    }

    #[test]
    fn layouts_that_differ_are_listed() {
        let (place, text) = complaint(ask("FORD", "", ""));
        assert_eq!(place, QueryPart::Name);
        assert!(
            text.contains("\n  100.1: 4 bytes\n  100.10: 8 bytes\n  200.1: 4 bytes\n"),
            "{text}"
        );
        assert!(complaint(ask("FORD", "100", "")).1.contains("add `since"));
    }

    #[test]
    fn a_name_that_is_not_there_yet_or_no_more_says_from_when() {
        assert_eq!(
            complaint(ask("MOAT", "", "100.1")).1.lines().next(),
            Some("`MOAT` is not in 100.1: driver 100 has it from 100.2 on")
        );
        let (place, text) = complaint(ask("BRIDGE", "", "100.10"));
        assert_eq!(place, QueryPart::Since);
        assert!(text.starts_with("`BRIDGE` is not in 100.10: driver 100 dropped it in 100.2"));
    }

    #[test]
    fn drivers_that_are_missing_are_told_apart() {
        let (place, text) = complaint(ask("FORD", "300", ""));
        assert_eq!(place, QueryPart::Driver);
        assert!(text.starts_with("driver 300 is not enabled"), "{text}");
        let (place, text) = complaint(ask("FORD", "", "300.4"));
        assert_eq!(place, QueryPart::Since);
        assert!(text.starts_with("driver 300 is not enabled"), "{text}");
        assert_eq!(
            complaint(ask("FORD", "400", "")).1,
            "driver 400 is unknown; known are 100, 200, 300"
        );
    }

    #[test]
    fn the_nearest_name_or_tag_is_offered() {
        assert!(complaint(ask("FORT", "100", "")).1.ends_with("did you mean `FORD`?"));
        assert!(complaint(ask("BRIDGE", "200", "")).1.ends_with("driver 100 has it"));
        assert!(
            complaint(ask("FORD", "", "100.3")).1.ends_with("nearest are 100.1, 100.2, 100.10")
        );
    }

    #[test]
    fn tags_are_ordered_by_number() {
        assert_eq!(version_order("100.2", "100.10"), Ordering::Less);
        assert_eq!(version_order("550.100", "550.100.00"), Ordering::Less);
        assert_eq!(version_order("550.54.14", "550.54.14"), Ordering::Equal);
    }
}
