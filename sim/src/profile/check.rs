//! A profile against the interface of a driver: names, widths, lengths.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::eval::{MAX_DEPTH, UNREAD};
use super::expr::Expr;
use super::{
    Case, Datum, Filled, Filler, Gravity, ListUse, Node, Piece, Place, Problem, Profile, Scope,
    Value, evaluate, unnamed_class,
};
use crate::rm::{self, FieldRange, Interface};

/// Numbers that every card says, since the simulator asks for them, and what they may be: loading takes so many bits of
/// them, and a card without memory is none.
const NUMBERS: [(&str, RangeInclusive<i128>); 13] = [
    ("identity.class", 0..=0xff_ffff),
    ("identity.device", 1..=0xffff),
    ("identity.vendor", 1..=0xffff),
    ("identity.subsystem", 0..=0xffff_ffff),
    ("identity.revision", 0..=0xff),
    ("identity.interrupt", 0..=0xffff),
    ("memory.size", 1..=MOST_BYTES),
    ("bars.registers.base", 0..=MOST_BYTES),
    ("bars.registers.size", LEAST_REGISTERS..=MOST_BYTES),
    ("bars.window.base", 0..=MOST_BYTES),
    ("bars.window.size", LEAST_WINDOW..=MOST_BYTES),
    ("identity.architecture", ANY),
    ("identity.implementation", ANY),
];
/// What no card has more of. They may be left out, and 0 is not known.
const OPTIONAL: [(&str, RangeInclusive<i128>); 15] = [
    ("board.module", 0..=MOST_ENGINES),
    ("copies.count", 0..=MOST_ENGINES),
    ("fan.count", 0..=MOST_ENGINES),
    ("graphics.max_gpcs", 0..=MOST_ENGINES),
    ("graphics.max_tpcs_per_gpc", 0..=MOST_ENGINES),
    ("links.count", 0..=MOST_ENGINES),
    ("pcie.generation", 0..=MOST_GENERATIONS),
    ("pcie.host_generation", 0..=MOST_GENERATIONS),
    ("pcie.width", 0..=32),
    ("state.temperature", 0..=MOST_DEGREES),
    ("thermal.current", 0..=MOST_DEGREES),
    ("thermal.max_operating", 0..=MOST_DEGREES),
    ("thermal.memory", 0..=MOST_DEGREES),
    ("thermal.shutdown", 0..=MOST_DEGREES),
    ("thermal.slowdown", 0..=MOST_DEGREES),
];
/// Masks of them have 32 bits.
const MOST_ENGINES: i128 = 32;
/// The newest of PCIe that the driver's headers name (NV2080_CTRL_BUS_INFO_PCIE_LINK_CAP_GEN_*).
const MOST_GENERATIONS: i128 = 6;
/// As many as `nvabi rm inject` lets a card have, which every NVML shows.
const MOST_DEGREES: i128 = 200;
/// The registers of every card since Turing, whose doorbells are behind most of them.
const LEAST_REGISTERS: i128 = 16 << 20;
/// Less than any card's window is, and enough to map something.
const LEAST_WINDOW: i128 = 1 << 20;
/// Of each pair the first is not more than the second.
const ORDERED: [(&str, &str); 7] = [
    ("memory.reserved", "memory.size"),
    ("power.min_limit", "power.max_limit"),
    ("power.min_limit", "power.default_limit"),
    ("power.default_limit", "power.max_limit"),
    ("clocks.graphics.min", "clocks.graphics.max"),
    ("clocks.memory.min", "clocks.memory.max"),
    ("clocks.video.min", "clocks.video.max"),
];
const ANY: RangeInclusive<i128> = i128::MIN..=i128::MAX;
/// No card has so much, and no machine so many addresses.
const MOST_BYTES: i128 = 1 << 52;
const TEXTS: [&str; 3] = ["identity.name", "identity.short_name", "identity.bios"];
const LISTS: [&str; 2] = ["classes", "engines"];

/// What the simulator knows of a GPU, by the names that expressions have for it.
pub(crate) const SIMULATED: [&str; 25] = [
    "gpu.index",
    "gpu.minor",
    "gpu.domain",
    "gpu.bus",
    "gpu.slot",
    "gpu.id",
    "gpu.attached",
    "gpu.count",
    "gpu.uuid",
    "sim.memory_used",
    "sim.memory_free",
    "sim.window_free",
    "sim.window_largest",
    "sim.bytes_read",
    "sim.bytes_written",
    "sim.instances",
    "sim.is_busy",
    "sim.memory_busy",
    "sim.graphics_busy",
    "sim.microseconds",
    "sim.energy",
    "sim.heat_time",
    "driver.branch",
    "driver.version",
    "params.size",
];

impl Profile {
    /// What is wrong with it for a driver, in the order of the file.
    ///
    /// What is [`Gravity::NotOfThisDriver`] for every driver is wrong as well: that is for who checks several
    /// to say.
    pub fn check(&self, interface: &Interface) -> Vec<Problem> {
        let mut check = Check { profile: self, interface, problems: Vec::new() };
        check.all();
        let mut problems = check.problems;
        let place =
            |it: &Problem| it.place.as_ref().map(|it| (it.source.path.clone(), it.span.start));
        problems.sort_by_key(place);
        problems.dedup();
        problems
    }

    /// Why a driver does not know the card: it has none of its classes that compute.
    pub fn unknown_to(&self, interface: &Interface) -> Option<Problem> {
        let node = self.values.get("classes")?;
        let scope = Known { profile: self, interface: None, record: None };
        let Ok(Datum::List(classes)) = evaluate(node, &scope, 0) else { return None };
        let names = classes.into_iter().filter_map(|item| match item {
            Datum::Text(name) if name.contains("_COMPUTE_") => Some(name),
            _ => None,
        });
        let names: Vec<String> = names.collect();
        if names.is_empty() || names.iter().any(|name| interface.has_class(name)) {
            return None;
        }
        let (driver, own, names) = (&interface.tag, &self.name, names.join(", "));
        let message = format!("{driver} does not know the card `{own}`: it has no class {names}");
        let problem = Problem::wrong("profile-unknown-card", message, &node.place);
        Some(problem.help("name a newer driver with `--tag`, or another card"))
    }

    /// Values that nothing refers to and no card that this build carries has: names that were not meant. What could not
    /// be read may refer to those that it names.
    pub(super) fn unknown_values(&self, unread: &[Problem]) -> Vec<Problem> {
        let mut used = BTreeSet::new();
        for node in self.nodes() {
            each_expr(node, &mut |expr| {
                if let Expr::Value(name) = expr {
                    used.insert(name.as_str().to_owned());
                }
            });
        }
        let cases = self.answers.values().flatten();
        used.extend(cases.flat_map(|case| case.set_state.iter().map(|(name, _)| name.clone())));
        let is_state = |name: &str| {
            let state = name.strip_prefix("reset.").map(|name| format!("state.{name}"));
            state.is_some_and(|name| self.values.contains_key(&name))
        };
        let mut left: Vec<(&String, &Node)> = self.values.iter().collect();
        let places = unread.iter().filter_map(|problem| problem.place.as_ref());
        let unread: Vec<&str> = places.map(Place::text).collect();
        let is_in_unread = |name: &str| unread.iter().any(|text| text.contains(name));
        left.retain(|(name, node)| {
            let is_own = !node.place.source.is_embedded;
            is_own && !used.contains(*name) && !is_state(name) && !is_in_unread(name)
        });
        if left.is_empty() {
            return Vec::new();
        }
        let carried = super::carried_values();
        left.retain(|(name, _)| !carried.contains(*name));
        let problems = left.into_iter().map(|(name, node)| {
            let message = format!("nothing has or uses a value `{name}`");
            let place = self.names.get(name).unwrap_or(&node.place);
            let problem = Problem::wrong("profile-unknown-value", message, place);
            match nearest(name, carried.iter().map(String::as_str)) {
                Some(near) => problem.help(format!("did you mean `{near}`?")),
                None => problem.help("remove it, or use it in an answer"),
            }
        });
        problems.collect()
    }

    /// Problems of values that no driver is needed for.
    pub(super) fn values_without_value(&self) -> Vec<Problem> {
        let scope = Known { profile: self, interface: None, record: None };
        let mut problems = Vec::new();
        let mut told = BTreeSet::new();
        for (name, node) in &self.values {
            if let (Err(message), false) = (evaluate(node, &scope, 0), depends(node)) {
                told.insert(name.as_str());
                if message == UNREAD {
                    continue;
                }
                let message = format!("`{name}`: {message}");
                problems.push(Problem::wrong("profile-no-value", message, &node.place));
            }
        }
        let needed = NUMBERS.iter().map(|(name, _)| (name, "a number"));
        let needed = needed.chain(TEXTS.iter().map(|name| (name, "a text")));
        let needed = needed.chain(LISTS.iter().map(|name| (name, "a list")));
        for (name, kind) in needed.filter(|(name, _)| !told.contains(**name)) {
            let value = scope.value(name, 0);
            let is_right = matches!(
                (&value, kind),
                (Ok(Datum::Number(_)), "a number")
                    | (Ok(Datum::Text(_)), "a text")
                    | (Ok(Datum::List(_)), "a list")
            );
            if !is_right {
                let message = format!("profile `{}` has no `{name}`, {kind}", self.name);
                let place = self.values.get(*name).map(|node| node.place.clone());
                let code = "profile-no-value";
                let gravity = Gravity::Wrong;
                problems.push(Problem { gravity, code, message, place, help: None });
            }
        }
        problems.extend(self.out_of_range(&scope));
        problems.extend(self.out_of_order(&scope));
        problems.extend(self.without_name(&scope));
        problems.extend(self.other_tpcs(&scope));
        problems
    }

    /// Numbers that no card has.
    fn out_of_range(&self, scope: &Known<'_>) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (name, range) in NUMBERS.into_iter().chain(OPTIONAL) {
            let known = self.number_in(scope, name);
            if let Some((number, node)) = known.filter(|(number, _)| !range.contains(number)) {
                let message =
                    format!("`{name}` is {number}: expected {} to {}", range.start(), range.end());
                problems.push(Problem::wrong("profile-does-not-fit", message, &node.place));
            }
        }
        let window = self.number_in(scope, "bars.window.size");
        if let Some((size, node)) = window.filter(|(size, _)| size.count_ones() != 1) {
            let message = format!("`bars.window.size` is {size}: expected a power of two");
            problems.push(Problem::wrong("profile-does-not-fit", message, &node.place));
        }
        problems
    }

    /// A number that needs no driver, and where it is.
    fn number_in(&self, scope: &Known<'_>, name: &str) -> Option<(i128, &Node)> {
        let node = self.values.get(name).filter(|node| !depends(node))?;
        Some((evaluate(node, scope, 0).ok()?.number()?, node))
    }

    /// Numbers that are more than others of the same card.
    fn out_of_order(&self, scope: &Known<'_>) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (low, high) in ORDERED {
            let both = self.number_in(scope, low).zip(self.number_in(scope, high));
            let Some(((least, node), (most, _))) = both else { continue };
            // A most of 0 is not known.
            if most != 0 && least > most {
                let message = format!("`{low}` is {least}, and `{high}` no more than {most}");
                problems.push(Problem::wrong("profile-does-not-fit", message, &node.place));
            }
        }
        problems
    }

    /// A card is shown by its name.
    fn without_name(&self, scope: &Known<'_>) -> Option<Problem> {
        let node = self.values.get("identity.name").filter(|node| !depends(node))?;
        let Ok(Datum::Text(name)) = evaluate(node, scope, 0) else { return None };
        let message = "`identity.name` is empty: expected what the card is called";
        let is_empty = name.trim().is_empty();
        is_empty.then(|| Problem::wrong("profile-does-not-fit", message, &node.place))
    }

    /// The TPCs of each GPC are as many as the chip may have, and in all as many as the card says.
    fn other_tpcs(&self, scope: &Known<'_>) -> Vec<Problem> {
        let node = self.values.get("graphics.tpcs").filter(|node| !depends(node));
        let counts = node.and_then(|node| Some((node, evaluate(node, scope, 0).ok()?)));
        let Some((node, Datum::List(counts))) = counts else { return Vec::new() };
        let counts: Vec<i128> = counts.iter().filter_map(Datum::number).collect();
        let (gpcs, most) = (counts.len() as i128, counts.iter().copied().max().unwrap_or(0));
        // What is 0 is not known.
        let known = |name| self.number_in(scope, name).map_or(0, |(number, _)| number);
        let [max_gpcs, max_tpcs, count] =
            ["graphics.max_gpcs", "graphics.max_tpcs_per_gpc", "graphics.tpc_count"].map(known);
        let sum: i128 = counts.iter().sum();
        let complaints = [
            (
                max_gpcs != 0 && gpcs > max_gpcs,
                format!("has {gpcs} GPCs, and `graphics.max_gpcs` is {max_gpcs}"),
            ),
            (
                max_tpcs != 0 && most > max_tpcs,
                format!("has {most} TPCs in a GPC, and `graphics.max_tpcs_per_gpc` is {max_tpcs}"),
            ),
            (
                gpcs != 0 && count != 0 && sum != count,
                format!("has {sum} TPCs in all, and `graphics.tpc_count` is {count}"),
            ),
        ];
        let problem = |message| {
            let message = format!("`graphics.tpcs` {message}");
            Problem::wrong("profile-does-not-fit", message, &node.place)
        };
        let wrong = complaints.into_iter().filter(|(is_wrong, _)| *is_wrong);
        wrong.map(|(_, message)| problem(message)).collect()
    }
}

/// Whether a value is known only while a driver or a caller is there.
fn depends(node: &Node) -> bool {
    let mut does = false;
    each_expr(node, &mut |expr| does |= matches!(expr, Expr::Constant(_) | Expr::Field(_)));
    does
}

pub(crate) fn each_expr(node: &Node, then: &mut dyn FnMut(&Expr)) {
    match &node.value {
        Value::Number(_) | Value::Unread => {}
        Value::Expr(expr) => each_inner(expr, then),
        Value::Text(pieces) => {
            for piece in pieces {
                if let Piece::Expr(expr) = piece {
                    each_inner(expr, then);
                }
            }
        }
        Value::List(nodes) => nodes.iter().for_each(|node| each_expr(node, then)),
    }
}

pub(crate) fn each_inner(expr: &Expr, then: &mut dyn FnMut(&Expr)) {
    then(expr);
    match expr {
        Expr::Number(_) | Expr::Value(_) | Expr::Field(_) | Expr::Constant(_) => {}
        Expr::Count(inner) | Expr::Unary(_, inner) => each_inner(inner, then),
        Expr::Binary(_, left, right)
        | Expr::ByBit(left, right)
        | Expr::AtMost(left, right)
        | Expr::AtLeast(left, right) => {
            each_inner(left, then);
            each_inner(right, then);
        }
        Expr::Choice(condition, value, other) => {
            for inner in [condition, value, other] {
                each_inner(inner, then);
            }
        }
    }
}

/// What names mean before there is a caller.
struct Known<'a> {
    profile: &'a Profile,
    interface: Option<&'a Interface>,
    record: Option<&'a str>,
}

impl Scope for Known<'_> {
    fn value(&self, name: &str, depth: usize) -> Result<Datum, String> {
        if depth > MAX_DEPTH {
            return Err("values refer to each other in a circle".to_owned());
        }
        if let Some(node) = self.profile.values.get(name) {
            return evaluate(node, self, depth);
        }
        match name {
            "gpu.uuid" | "driver.version" => Ok(Datum::Text(String::new())),
            // Of a divisor too.
            _ if SIMULATED.contains(&name) => Ok(Datum::Number(1)),
            _ => Err(format!("there is no value `{name}`")),
        }
    }

    fn field(&self, path: &str) -> Result<i128, String> {
        if path.starts_with('+') {
            let found = rm::offset_field(path).map(|_| 0);
            return found
                .ok_or_else(|| format!("`{path}` is no offset: expected +0x10 or +0x10:8"));
        }
        let (Some(interface), Some(record)) = (self.interface, self.record) else { return Ok(0) };
        match interface.place(record, path) {
            Some(_) => Ok(0),
            None => Err(format!("{record} has no field `{path}` in {}", interface.tag)),
        }
    }

    fn constant(&self, name: &str) -> Result<i128, String> {
        let Some(interface) = self.interface else { return Ok(0) };
        let found = interface.constant_of_profile(name);
        found.ok_or_else(|| format!("there is no constant {name} in {}", interface.tag))
    }
}

struct Check<'a> {
    profile: &'a Profile,
    interface: &'a Interface,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn all(&mut self) {
        let profile = self.profile;
        // Others have been looked at without a driver.
        for node in profile.values.values().filter(|node| depends(node)) {
            self.names(node, None, false);
        }
        self.card_name();
        for list in profile.lists.values() {
            for (key, entry) in &list.entries {
                let name = format!("{}{key}", list.prefix);
                let is_number = key.starts_with("0x");
                if !is_number && self.interface.constant_of_profile(&name).is_none() {
                    let message = format!("there is no index {name} in {}", self.interface.tag);
                    let code = "profile-unknown-index";
                    self.problems.push(Problem::not_of_this_driver(code, message, &entry.place));
                }
                for (_, node) in &entry.fields {
                    self.names(node, None, false);
                }
            }
        }
        for (name, cases) in &profile.answers {
            for case in cases {
                self.answer(name, case);
            }
        }
        for (name, case) in &profile.shared {
            self.shared(name, case);
        }
        for (name, rule) in &profile.objects {
            self.object(name, &rule.place);
        }
        let interface = self.interface;
        let has_class = |name: &str| interface.has_class(name);
        self.listed("classes", "profile-unknown-class", "class ", has_class);
        let number = |name: &str| interface.constant(&format!("NV2080_ENGINE_TYPE_{name}"));
        let has_engine = |name: &str| number(name).is_some();
        self.listed("engines", "profile-unknown-engine", "NV2080_ENGINE_TYPE_", has_engine);
    }

    /// Names in a list, of what the driver has.
    fn listed(
        &mut self,
        list: &str,
        code: &'static str,
        what: &str,
        is_known: impl Fn(&str) -> bool,
    ) {
        let scope = Known { profile: self.profile, interface: None, record: None };
        let Some(Value::List(nodes)) = self.profile.values.get(list).map(|node| &node.value) else {
            return;
        };
        for node in nodes {
            let problem = match evaluate(node, &scope, 0) {
                Ok(Datum::Text(name)) if is_known(&name) => continue,
                Err(message) if message == UNREAD => continue,
                Ok(Datum::Text(name)) => {
                    let message = format!("there is no {what}{name} in {}", self.interface.tag);
                    Problem::not_of_this_driver(code, message, &node.place)
                }
                _ => Problem::wrong(code, format!("`{list}` has names alone"), &node.place),
            };
            self.problems.push(problem);
        }
    }

    /// A class by its name, or by its number where no header names it.
    fn object(&mut self, name: &str, place: &Place) {
        let tag = &self.interface.tag;
        let problem = match name.strip_prefix("0x").map(|digits| u32::from_str_radix(digits, 16)) {
            Some(Ok(number)) if name != unnamed_class(number) => {
                let message = format!("expected `{}`, found `{name}`", unnamed_class(number));
                Problem::wrong("profile-unknown-class", message, place)
            }
            Some(Ok(number)) => {
                let Some(class) = self.interface.class(number) else { return };
                let message = format!("{name} has a name in {tag}: {}", class.name);
                Problem::not_of_this_driver("profile-unnamed-class", message, place)
            }
            Some(Err(_)) => {
                let message = format!("`{name}` is no number of a class");
                Problem::wrong("profile-unknown-class", message, place)
            }
            None if self.interface.has_class(name) => return,
            None => {
                let message = format!("there is no class {name} in {tag}");
                Problem::not_of_this_driver("profile-unknown-class", message, place)
            }
        };
        self.problems.push(problem);
    }

    /// What code answers with the name of the card.
    fn card_name(&mut self) {
        let (record, path) = ("NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS", "gpuNameString.ascii");
        let name = self.profile.values.get("identity.name");
        if let Some((node, range)) = name.zip(self.interface.place(record, path)) {
            self.fits(node, range, "identity.name", None, false);
        }
    }

    fn answer(&mut self, name: &str, case: &Case) {
        if name.starts_with("0x") {
            return self.unnamed(name, case);
        }
        let known = self.interface.commands.iter().find(|command| command.name == name);
        let Some(known) = known else {
            let message = format!("there is no command {name} in {}", self.interface.tag);
            let code = "profile-unknown-command";
            return self.problems.push(Problem::not_of_this_driver(code, message, &case.place));
        };
        if rm::is_answered_in_code(name) {
            let message = format!("{name} is answered by the simulator's own code");
            let problem = Problem::wrong("profile-answered-in-code", message, &case.place);
            self.problems.push(problem.help("remove the answer, or the code"));
        }
        let record = known.params.as_deref();
        self.case(record, case);
        for filled in &case.fields {
            self.field(record.unwrap_or_default(), filled);
        }
    }

    fn shared(&mut self, record: &str, case: &Case) {
        if self.interface.size(record).is_none() {
            let message = format!("there is no record {record} in {}", self.interface.tag);
            let code = "profile-unknown-record";
            return self.problems.push(Problem::not_of_this_driver(code, message, &case.place));
        }
        for filled in &case.fields {
            self.field(record, filled);
        }
    }

    fn case(&mut self, record: Option<&str>, case: &Case) {
        let conditions = case.only_if.iter().chain(&case.fails_with).chain(&case.without_gpu);
        for node in conditions.chain(case.set_state.iter().map(|(_, node)| node)) {
            self.names(node, record, false);
        }
        for (name, node) in &case.set_state {
            if !self.profile.values.contains_key(name) {
                let message = format!("there is no state `{name}`");
                let problem = Problem::wrong("profile-no-value", message, &node.place);
                self.problems.push(problem.help("give it a first value in [state]"));
            }
        }
        if let (Some((path, place)), Some(record)) = (&case.of_gpu, record) {
            self.place_of(record, path, place, false);
        }
    }

    /// A command that no header names has no record: its fields are offsets.
    fn unnamed(&mut self, name: &str, case: &Case) {
        let number = u32::from_str_radix(name.trim_start_matches("0x"), 16);
        if number.is_err() {
            let message = format!("`{name}` is no number of a command");
            self.problems.push(Problem::wrong("profile-unknown-command", message, &case.place));
        }
        let named = number.ok().and_then(|number| self.interface.command(number));
        if let Some(named) = named {
            let message = format!("{name} has a name in {}: {}", self.interface.tag, named.name);
            let code = "profile-unnamed-command";
            return self.problems.push(Problem::not_of_this_driver(code, message, &case.place));
        }
        self.case(None, case);
        for filled in &case.fields {
            let range = rm::offset_field(&filled.path);
            match (&filled.with, range) {
                (Filler::Value(node), Some(range)) => {
                    self.fits(node, range, &filled.path, None, false)
                }
                _ => {
                    let message = format!(
                        "{name} is in no header: expected fields such as +0x10 (4 bytes) or +0x10:8, found `{}`",
                        filled.path
                    );
                    self.problems.push(Problem::wrong(
                        "profile-unknown-field",
                        message,
                        &filled.place,
                    ));
                }
            }
        }
    }

    fn place_of(
        &mut self,
        record: &str,
        path: &str,
        place: &Place,
        is_optional: bool,
    ) -> Option<FieldRange> {
        let found = self.interface.place(record, path);
        if found.is_none() {
            let message = format!("{record} has no field `{path}` in {}", self.interface.tag);
            let code = "profile-unknown-field";
            self.problems.push(if is_optional {
                Problem::not_of_this_driver(code, message, place)
            } else {
                Problem::wrong(code, message, place)
                    .help(format!("name it `{path}?` if other drivers have it"))
            });
        }
        found
    }

    fn field(&mut self, record: &str, filled: &Filled) {
        let Filled { path, place, is_optional, with } = filled;
        let Some(range) = self.place_of(record, path, place, *is_optional) else { return };
        match with {
            Filler::Value(node) => self.fits(node, range, path, Some(record), *is_optional),
            Filler::List(list) => self.list(record, path, list, place),
        }
    }

    fn list(&mut self, record: &str, path: &str, list: &ListUse, place: &Place) {
        let Some(known) = self.profile.lists.get(&list.list) else {
            let message = format!("there is no list `{}`", list.list);
            return self.problems.push(Problem::wrong("profile-no-value", message, place));
        };
        self.place_of(record, &list.count_in, place, false);
        let inside = |field: &str| match &list.entry_of {
            Some(entry) => (entry.clone(), field.to_owned()),
            None => (record.to_owned(), format!("{path}[0].{field}")),
        };
        let (entry, key) = inside(&list.key_in);
        self.place_of(&entry, &key, place, false);
        for entry in known.entries.values() {
            for (field, node) in &entry.fields {
                let field = if field.is_empty() { &list.value_in } else { field };
                let (record, path) = inside(field);
                if let Some(range) = self.place_of(&record, &path, place, false) {
                    self.fits(node, range, field, None, false);
                }
            }
        }
    }

    /// Whether all names that a value is made of are there.
    fn names(&mut self, node: &Node, record: Option<&str>, is_optional: bool) -> bool {
        let scope = Known { profile: self.profile, interface: Some(self.interface), record };
        let mut wrong = Vec::new();
        each_expr(node, &mut |expr| {
            let found = match expr {
                // What a value is made of is looked at where it stands.
                Expr::Value(name) if self.profile.values.contains_key(name) => Ok(()),
                Expr::Value(name) => scope.value(name, 0).map(drop),
                Expr::Field(path) => scope.field(path).map(drop),
                Expr::Constant(name) => scope.constant(name).map(drop),
                _ => Ok(()),
            };
            wrong.extend(found.err());
        });
        let is_right = wrong.is_empty();
        for message in wrong {
            let problem = match is_optional {
                true => Problem::not_of_this_driver("profile-no-value", message, &node.place),
                false => Problem::wrong("profile-no-value", message, &node.place),
            };
            self.problems.push(problem);
        }
        is_right
    }

    /// Whether a field has room for a value.
    fn fits(
        &mut self,
        node: &Node,
        range: FieldRange,
        path: &str,
        record: Option<&str>,
        is_optional: bool,
    ) {
        if !self.names(node, record, is_optional) || depends_on_caller(node) {
            return;
        }
        let scope = Known { profile: self.profile, interface: Some(self.interface), record };
        // A value that has none is told where it stands.
        let Ok(datum) = evaluate(node, &scope, 0) else { return };
        if let Err(message) = range.fits(&datum) {
            let message = format!("`{path}`: {message}");
            self.problems.push(Problem::wrong("profile-does-not-fit", message, &node.place));
        }
    }
}

fn depends_on_caller(node: &Node) -> bool {
    let mut does = false;
    each_expr(node, &mut |expr| does |= matches!(expr, Expr::Field(_)));
    does
}

/// The name that is nearest to one that nothing has, if any is near.
fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = names.into_iter().map(|name| (strsim::levenshtein(wanted, name), name));
    let near = near.filter(|(distance, _)| *distance <= 1 + wanted.len() / 5);
    near.min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_meant() {
        let names = ["identity.name", "identity.sku", "memory.size"];
        assert_eq!(nearest("identity.nam", names), Some("identity.name"));
        assert_eq!(nearest("memory.sizee", names), Some("memory.size"));
        assert_eq!(nearest("fan.percent", names), None);
        let distance = strsim::levenshtein;
        assert_eq!((distance("", "abc"), distance("abc", "")), (3, 3));
        assert_eq!((distance("abc", "abc"), distance("kitten", "sitting")), (0, 3));
    }
}
