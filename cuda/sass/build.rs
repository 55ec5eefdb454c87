//! Reads `isa.txt`, whose first lines describe its grammar, and writes the table that the decoder interprets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::{env, error::Error, fs, path::Path};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The architectures, in the order of their bits; `src/arch.rs` has the same order.
const ARCHS: [u32; 5] = [80, 86, 87, 89, 90];

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=isa.txt");
    let mut table = Table::default();
    let text = fs::read_to_string("isa.txt")?;
    // Lists can be written below their use.
    for lists in [true, false] {
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim_end();
            if !line.trim().is_empty() && line.starts_with("list ") == lists {
                table.line(line).map_err(|error| format!("isa.txt:{}: {error}", number + 1))?;
            }
        }
    }
    let out = env::var("OUT_DIR")?;
    fs::write(Path::new(&out).join("isa.rs"), table.emit()?)?;
    Ok(())
}

#[derive(Default)]
struct Table {
    /// Names of values, by the name of the list.
    lists: BTreeMap<String, String>,
    /// Operands that can be written in several ways: conditions and text of each.
    alternatives: BTreeMap<String, Vec<(String, String)>>,
    open_alternative: Option<String>,
    forms: Vec<FormText>,
    /// The most modifiers and the most operands of a form.
    longest: (usize, usize),
    ops: BTreeSet<String>,
    /// Opcodes that have a name and no row, with the architectures that have them.
    named: BTreeSet<(u16, u16, String)>,
    /// Cycles until the registers and the predicates of an instruction can be read.
    cycles: BTreeMap<String, (u8, u8)>,
    modifiers: BTreeSet<String>,
}

/// A form as Rust, and the opcode that it is found by.
struct FormText {
    opcode: u16,
    text: String,
}

/// What the parts of a row have claimed so far.
#[derive(Default, Clone)]
struct Claims {
    /// Bits that fields name.
    known: u128,
    /// Bits that have one value, and the value.
    fixed: u128,
    value: u128,
}

impl Claims {
    fn claim(&mut self, start: u32, length: u32) {
        self.known |= mask(start, length);
    }

    fn fix(&mut self, start: u32, length: u32, value: u128) -> Result<()> {
        if value >= 1 << length {
            return Err(format!("{value:#x} does not fit {length} bits at {start}").into());
        }
        self.fixed |= mask(start, length);
        self.value |= value << start;
        Ok(())
    }
}

fn mask(start: u32, length: u32) -> u128 {
    ((1 << length) - 1) << start
}

impl Table {
    fn line(&mut self, line: &str) -> Result<()> {
        if line.starts_with(' ') {
            let name =
                self.open_alternative.clone().ok_or("an indented line belongs to an `alt`")?;
            let (conditions, text) =
                line.split_once('|').ok_or("expected `CONDITIONS | OPERAND`")?;
            let alternative = (conditions.trim().to_owned(), text.trim().to_owned());
            self.alternatives.entry(name).or_default().push(alternative);
            return Ok(());
        }
        self.open_alternative = None;
        let (word, rest) =
            line.split_once(char::is_whitespace).ok_or("expected more than one word")?;
        match word {
            "list" => {
                let (name, values) = rest
                    .trim()
                    .split_once(char::is_whitespace)
                    .ok_or("expected `list NAME VALUES`")?;
                let list = self.lists.entry(name.to_owned()).or_default();
                write!(list, " {}", values.trim())?;
            }
            "cycles" => {
                let mut words = rest.split_whitespace();
                let mut number = || {
                    words.next().and_then(|word| word.parse().ok()).ok_or("expected two numbers")
                };
                let cycles = (number()?, number()?);
                self.cycles.extend(words.map(|name| (name.to_owned(), cycles)));
            }
            "named" => self.name_opcodes(rest)?,
            "alt" => self.open_alternative = Some(rest.trim().to_owned()),
            name => {
                let (head, operands) = rest.split_once('|').unwrap_or((rest, ""));
                self.row(name, head.trim(), operands.trim())?;
            }
        }
        Ok(())
    }

    /// `NAME sm:80-89 OPCODE …`.
    fn name_opcodes(&mut self, text: &str) -> Result<()> {
        let mut words = text.split_whitespace().peekable();
        let name = words.next().ok_or("expected a name")?;
        let archs = match words.peek().and_then(|word| word.strip_prefix("sm:")) {
            Some(range) => {
                words.next();
                arch_bits(range)?
            }
            None => u16::MAX,
        };
        self.ops.insert(name.to_owned());
        for opcode in words {
            self.named.insert((u16::from_str_radix(opcode, 16)?, archs, name.to_owned()));
        }
        Ok(())
    }

    /// One row of the table: every form and every alternative of it.
    fn row(&mut self, name: &str, head: &str, operands: &str) -> Result<()> {
        for (start, _) in operands.match_indices('$') {
            let rest = &operands[start + 1..];
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let Some(alternatives) =
                self.alternatives.get(&rest[..end]).filter(|_| !rest[end..].starts_with('@'))
            else {
                continue;
            };
            for (conditions, text) in alternatives.clone() {
                let operands = format!("{}{text}{}", &operands[..start], &rest[end..]);
                self.row(name, &format!("{head} {conditions}"), &operands)?;
            }
            return Ok(());
        }
        let (code, head) = head.split_once(char::is_whitespace).unwrap_or((head, ""));
        for opcode in opcodes(code)? {
            for head in powers(head)? {
                let text = self.form(name, opcode, &head, operands)?;
                self.forms.push(FormText { opcode, text });
            }
        }
        Ok(())
    }

    fn form(&mut self, name: &str, opcode: u16, head: &str, operands: &str) -> Result<String> {
        let mut claims = Claims::default();
        claims.fix(0, 12, opcode.into())?;
        claims.claim(12, 4);
        claims.claim(105, 21);
        let mut archs = u16::MAX;
        let mut uniform_guard = false;
        let mut modifiers = String::new();
        for word in head.split_whitespace() {
            if let Some(condition) = word.strip_prefix("if:") {
                for condition in condition.split(',') {
                    let (bits, value) =
                        condition.split_once('=').ok_or("expected `if:BITS=VALUE`")?;
                    let (start, length) = piece(bits)?;
                    claims.fix(start, length, number(value)?)?;
                }
            } else if let Some(bits) = word.strip_prefix("any:") {
                let (start, length) = piece(bits)?;
                claims.claim(start, length);
            } else if let Some(range) = word.strip_prefix("sm:") {
                archs &= arch_bits(range)?;
            } else if word == "guard:UP" {
                uniform_guard = true;
            } else {
                write!(modifiers, "{},", self.choice(word, None, &mut claims)?)?;
            }
        }
        let mut fields = String::new();
        for operand in split_operands(operands) {
            write!(fields, "{},", self.operand(operand, opcode, &mut claims)?)?;
        }
        self.ops.insert(name.to_owned());
        self.longest.0 = self.longest.0.max(modifiers.matches("Choice {").count());
        self.longest.1 = self.longest.1.max(fields.matches("Field {").count());
        let fixed = !claims.known | claims.fixed;
        Ok(format!(
            "Form {{ op: Op::{}, mask: {fixed:#x}, value: {:#x}, archs: {archs}, uniform_guard: {uniform_guard}, \
             modifiers: &[{modifiers}], operands: &[{fields}] }}",
            identifier(name),
            claims.value
        ))
    }

    /// `NAME`, `NAME@BIT`, `A/B/-@BITS` or `$LIST@BITS`; `-` has no name, `_` is no instruction. Where there is
    /// no place, `usual` is it.
    fn choice(
        &mut self,
        text: &str,
        usual: Option<(u32, u32)>,
        claims: &mut Claims,
    ) -> Result<String> {
        let (names, place) = match text.split_once('@') {
            Some((names, place)) => (names, Some(place)),
            None => (text, None),
        };
        let list = match names.strip_prefix('$') {
            Some(list) => self.lists.get(list).ok_or_else(|| format!("no list {list}"))?.clone(),
            None => names.replace('/', " "),
        };
        let mut values: Vec<&str> = list.split_whitespace().collect();
        let pieces = match (place, usual) {
            (Some(place), _) => pieces(place)?,
            (None, Some(usual)) if names.starts_with('$') => vec![usual],
            _ => vec![],
        };
        if values.len() == 1 && !pieces.is_empty() {
            values.insert(0, "-");
        }
        let width: u32 = pieces.iter().map(|piece| piece.1).sum();
        if values.len() > 1 << width {
            return Err(format!("{text}: {} values for {width} bits", values.len()).into());
        }
        values.resize(1 << width, "_");
        for &(start, length) in &pieces {
            claims.claim(start, length);
        }
        let mut meanings = String::new();
        for value in values {
            meanings.push_str(&match value {
                "-" => "Meaning::Silent,".to_owned(),
                "_" => "Meaning::Illegal,".to_owned(),
                name => {
                    self.modifiers.insert(name.to_owned());
                    format!("Meaning::Named(Modifier::{}),", identifier(name))
                }
            });
        }
        Ok(format!("Choice {{ bits: {}, values: &[{meanings}] }}", bits_text(&pieces)))
    }

    fn operand(&mut self, text: &str, opcode: u16, claims: &mut Claims) -> Result<String> {
        let (text, hidden) = hidden(text)?;
        let (text, joined) = match text.strip_prefix('_') {
            Some(text) => (text, true),
            None => (text, false),
        };
        if let Some(address) = text.find('[').filter(|at| !text[..*at].contains('(')) {
            return self.address(&text[..address], &text[address..], hidden, claims);
        }
        let (core, attributes) = match text.split_once('(') {
            Some((core, rest)) => (core, rest.strip_suffix(')').ok_or("expected `)`")?),
            None => (text, ""),
        };
        let slot = Slot::of(core, opcode, attributes)?;
        slot.claim(claims)?;
        let mut negate = None;
        let mut absolute = None;
        let mut invert = None;
        let mut reuse = slot.reuse;
        let mut marked_written = false;
        let mut suffixes = String::new();
        for attribute in attributes.split_whitespace() {
            let (kind, rest) = attribute.split_at(1);
            let bit = |usual: Option<u32>| match rest {
                "" => Ok(usual),
                rest => rest.parse().map(Some).map_err(|_| format!("expected a bit, found {rest}")),
            };
            match kind {
                // Immediates have their sign in themselves.
                "-" | "|" | "~" if slot.is_immediate() => {}
                "=" => marked_written = true,
                "*" => {
                    reuse = bit(None)?.filter(|_| slot.is_register);
                    // The usual ones are part of the control information.
                    reuse.filter(|bit| *bit < 105).into_iter().for_each(|bit| claims.claim(bit, 1));
                }
                "-" => negate = bit(slot.negate)?,
                "!" => negate = bit(slot.negate)?,
                "|" => absolute = bit(slot.absolute)?,
                "~" => invert = bit(slot.negate)?,
                "." if !slot.is_immediate() => {
                    write!(suffixes, "{},", self.choice(rest, slot.half, claims)?)?;
                }
                "." => {}
                // The type of an immediate.
                ":" => {}
                _ => return Err(format!("unknown attribute {attribute}").into()),
            }
        }
        for bit in [negate, absolute, invert].into_iter().flatten() {
            claims.claim(bit, 1);
        }
        let kind = core.trim_end_matches(|c: char| c.is_ascii_digit());
        let start = slot.claimed.first().map(|place| place.0);
        let is_written = marked_written
            || matches!((kind, start), ("R" | "UR", Some(16)) | ("P" | "UP", Some(81 | 84)));
        let source = match slot.named {
            true => {
                let names = self.choice(core, None, claims)?;
                format!("Source::Named({names})")
            }
            false => slot.source.clone(),
        };
        Ok(format!(
            "Field {{ source: {source}, negate: {negate:?}, absolute: {absolute:?}, invert: {invert:?}, \
             reuse: {:?}, suffixes: &[{suffixes}], hidden: {hidden}, joined: {joined}, \
             is_written: {is_written} }}",
            reuse
        ))
    }

    /// `[BASE+UNIFORM+OFFSET]` after nothing, after a descriptor, or after the bank of a constant.
    fn address(
        &mut self,
        before: &str,
        text: &str,
        hidden: String,
        claims: &mut Claims,
    ) -> Result<String> {
        let mut groups = text.split('[').skip(1).map(|group| group.trim_end_matches(']'));
        let first = groups.next().ok_or("expected `[`")?;
        let (outer, inner) = match groups.next() {
            Some(inner) => (Some(first), inner),
            None => (None, first),
        };
        let mut base = None;
        let mut uniform = None;
        let mut offset = "Bits(&[])".to_owned();
        for part in inner.split('+') {
            let (register, suffixes) = part.split_once('.').unwrap_or((part, ""));
            let mut suffix_text = String::new();
            for suffix in suffixes.split('.').filter(|suffix| !suffix.is_empty()) {
                write!(suffix_text, "{},", self.choice(suffix, None, claims)?)?;
            }
            if let Some(place) = part.strip_prefix('I') {
                let (start, length) = piece(place)?;
                claims.claim(start, length);
                offset = bits_text(&[(start, length)]);
            } else if let Some(start) = register.strip_prefix("UR") {
                claims.claim(start.parse()?, 6);
                uniform = Some(start.to_owned());
            } else if let Some(start) = register.strip_prefix('R') {
                claims.claim(start.parse()?, 8);
                base = Some(format!(
                    "Base {{ register: {start}, uniform: false, suffixes: &[{suffix_text}] }}"
                ));
            } else {
                return Err(format!("unknown part {part} of an address").into());
            }
        }
        if let (true, None, Some(start)) = (before == "c", &base, &uniform) {
            base = Some(format!("Base {{ register: {start}, uniform: true, suffixes: &[] }}"));
        }
        let base = base.map_or("None".to_owned(), |base| format!("Some({base})"));
        let uniform = uniform.map_or("None".to_owned(), |uniform| format!("Some({uniform})"));
        let source = match (before, outer) {
            ("", None) => format!(
                "Source::Memory {{ descriptor: None, hide_descriptor: true, base: {base}, uniform: {uniform}, \
                 offset: {offset} }}"
            ),
            ("desc" | "hidden", Some(outer)) => {
                let register = outer.strip_prefix("UR").ok_or("expected a uniform register")?;
                let (start, behind) = register.split_once('+').unwrap_or((register, "0"));
                let (start, behind): (u32, u8) = (start.parse()?, behind.parse()?);
                claims.claim(start, 6);
                format!(
                    "Source::Memory {{ descriptor: Some(Descriptor {{ start: {start}, behind: {behind} }}), \
                     hide_descriptor: {}, base: {base}, uniform: {uniform}, offset: {offset} }}",
                    before == "hidden"
                )
            }
            ("c", Some(outer)) => {
                let (start, length) = piece(outer.strip_prefix('U').ok_or("expected a number")?)?;
                claims.claim(start, length);
                let bank = bits_text(&[(start, length)]);
                format!(
                    "Source::Indexed {{ bank: Bank::Number({bank}), index: {base}, offset: {offset} }}"
                )
            }
            ("cx", Some(outer)) => {
                let start: u32 =
                    outer.strip_prefix("UR").ok_or("expected a uniform register")?.parse()?;
                claims.claim(start, 6);
                format!(
                    "Source::Indexed {{ bank: Bank::Bindless({start}), index: {base}, offset: {offset} }}"
                )
            }
            _ => return Err(format!("unknown address {before}{text}").into()),
        };
        Ok(format!(
            "Field {{ source: {source}, negate: None, absolute: None, invert: None, reuse: None, suffixes: &[], \
             hidden: {hidden}, joined: false, is_written: false }}"
        ))
    }

    fn emit(&mut self) -> Result<String> {
        let mut out = String::new();
        emit_names(&mut out, "Op", "The name of an instruction.", &self.ops)?;
        emit_names(
            &mut out,
            "Modifier",
            "A word behind the name of an instruction or an operand.",
            &self.modifiers,
        )?;
        let (modifiers, operands) = self.longest;
        for (name, what, most) in
            [("MODIFIERS", "modifiers", modifiers), ("OPERANDS", "operands", operands)]
        {
            writeln!(
                out,
                "/// The most {what} that an instruction has.\npub const MAX_{name}: usize = {most};\n"
            )?;
        }
        writeln!(
            out,
            "/// Cycles until the registers and the predicates that it writes can be read."
        )?;
        writeln!(out, "pub(crate) fn cycles(op: Op) -> Option<(u8, u8)> {{\n    match op {{")?;
        for (name, cycles) in &self.cycles {
            if !self.ops.contains(name) {
                return Err(format!("isa.txt: `cycles` of {name}, which no row has").into());
            }
            writeln!(out, "        Op::{} => Some({cycles:?}),", identifier(name))?;
        }
        writeln!(out, "        _ => None,\n    }}\n}}\n")?;
        // Rows keep the order of the table: the first that fits is the one.
        self.forms.sort_by_key(|form| form.opcode);
        writeln!(out, "pub(crate) static FORMS: [Form; {}] = [", self.forms.len())?;
        for form in &self.forms {
            writeln!(out, "    {},", form.text)?;
        }
        writeln!(out, "];\n\n/// The first form of each opcode, and the one after its last.")?;
        writeln!(out, "pub(crate) static FORMS_OF: [(u16, u16); 4096] = [")?;
        for opcode in 0..4096 {
            let first = self.forms.partition_point(|form| form.opcode < opcode);
            let last = self.forms.partition_point(|form| form.opcode <= opcode);
            writeln!(out, "    ({first}, {last}),")?;
        }
        writeln!(
            out,
            "];\n\n/// Opcodes that have a name and no form: opcode, architectures and name."
        )?;
        writeln!(out, "pub(crate) static NAMED: [(u16, u16, Op); {}] = [", self.named.len())?;
        for (opcode, archs, name) in &self.named {
            writeln!(out, "    ({opcode}, {archs}, Op::{}),", identifier(name))?;
        }
        writeln!(out, "];")?;
        Ok(out)
    }
}

/// A place that the usual operands have, with the bits that belong to it.
struct Slot {
    source: String,
    claimed: Vec<(u32, u32)>,
    negate: Option<u32>,
    absolute: Option<u32>,
    half: Option<(u32, u32)>,
    reuse: Option<u32>,
    is_register: bool,
    /// Is it A, B or C, whose place depends on the opcode?
    letter: bool,
    named: bool,
}

impl Slot {
    fn is_immediate(&self) -> bool {
        self.letter && self.negate.is_none()
    }

    fn plain(source: String, claimed: &[(u32, u32)]) -> Slot {
        Slot {
            source,
            claimed: claimed.to_vec(),
            negate: None,
            absolute: None,
            half: None,
            reuse: None,
            is_register: false,
            letter: false,
            named: false,
        }
    }

    fn of(core: &str, opcode: u16, attributes: &str) -> Result<Slot> {
        let swapped = matches!(opcode >> 9, 2 | 3 | 7);
        let letter = match core.trim_start_matches('U') {
            "A" => Some(24),
            "B" => Some(if swapped { 64 } else { 32 }),
            "C" => Some(if swapped { 32 } else { 64 }),
            _ => None,
        };
        if let Some(start) = letter {
            let kind = match start {
                32 => opcode >> 9,
                _ => 1,
            };
            let mut slot = Slot::letter(kind, start, attributes)?;
            slot.letter = true;
            slot.reuse = match core {
                _ if kind != 1 => None,
                "A" => Some(122),
                "B" => Some(123),
                _ => Some(124),
            };
            if kind == 1 && core.starts_with('U') {
                slot.source = format!("Source::Uniform({start})");
                slot.claimed = vec![(start, 6)];
                slot.reuse = None;
            }
            return Ok(slot);
        }
        let digits = core.find(|c: char| c.is_ascii_digit()).unwrap_or(core.len());
        let (kind, place) = core.split_at(digits);
        let start = || place.parse::<u32>().map_err(|_| format!("unknown operand {core}"));
        Ok(match kind {
            "R" => {
                let mut slot = Slot::letter(1, start()?, "")?;
                slot.is_register = true;
                slot
            }
            "NP" | "NUP" => {
                let uniform = kind == "NUP";
                let source =
                    format!("Source::StoredInverted {{ start: {}, uniform: {uniform} }}", start()?);
                let mut slot = Slot::plain(source, &[(start()?, 3)]);
                slot.negate = Some(start()? + 3);
                slot
            }
            "UR" => Slot::plain(format!("Source::Uniform({})", start()?), &[(start()?, 6)]),
            "P" | "UP" => {
                let name = if kind == "P" { "Predicate" } else { "UniformPredicate" };
                let mut slot =
                    Slot::plain(format!("Source::{name}({})", start()?), &[(start()?, 3)]);
                slot.negate = Some(start()? + 3);
                slot
            }
            "B" => Slot::plain(format!("Source::Barrier({})", start()?), &[(start()?, 4)]),
            "SB" => Slot::plain(format!("Source::Scoreboard({})", start()?), &[(start()?, 3)]),
            "I" | "U" => {
                let pieces = pieces(place)?;
                let name = if kind == "I" { "Signed" } else { "Unsigned" };
                Slot::plain(format!("Source::{name}({})", bits_text(&pieces)), &pieces)
            }
            "gdesc" | "desc" => {
                let group = kind == "gdesc";
                let source =
                    format!("Source::Descriptor {{ start: {}, group: {group} }}", start()?);
                Slot::plain(source, &[(start()?, 6)])
            }
            "Q" => {
                let pieces = pieces(place)?;
                Slot::plain(format!("Source::Signs({})", bits_text(&pieces)), &pieces)
            }
            "M" => {
                let pieces = pieces(place)?;
                Slot::plain(format!("Source::Scoreboards({})", bits_text(&pieces)), &pieces)
            }
            "T" | "S" => {
                let (place, scale) = place.split_once('*').unwrap_or((place, "0"));
                let pieces = pieces(place)?;
                let name = if kind == "T" { "Target" } else { "Scaled" };
                let source =
                    format!("Source::{name} {{ bits: {}, scale: {scale} }}", bits_text(&pieces));
                Slot::plain(source, &pieces)
            }
            _ if core.contains('@') => Slot { named: true, ..Slot::plain(String::new(), &[]) },
            _ if core.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => {
                Slot::plain(format!("Source::Word({core:?})"), &[])
            }
            _ => return Err(format!("unknown operand {core}").into()),
        })
    }

    /// An operand at `start`: 1 a register, 4 and 2 an immediate, 5 and 3 a constant, 6 and 7 a uniform register.
    fn letter(kind: u16, start: u32, attributes: &str) -> Result<Slot> {
        let mut slot = match kind {
            2 | 4 => {
                let source =
                    match attributes.split_whitespace().find_map(|word| word.strip_prefix(':')) {
                        None => "Source::Signed(Bits(&[(32, 32)]))",
                        Some("u") => "Source::Unsigned(Bits(&[(32, 32)]))",
                        Some("f32") => "Source::Float32",
                        Some("f64") => "Source::Float64",
                        Some("f16") => "Source::Half2",
                        Some("bf16") => "Source::BFloat2",
                        Some(other) => return Err(format!("unknown type {other}").into()),
                    };
                return Ok(Slot::plain(source.to_owned(), &[(32, 32)]));
            }
            // Bit 91 and a uniform register in place of the bank: that is one more way to write it.
            3 | 5 => Slot::plain("Source::Constant".to_owned(), &[(40, 14), (54, 5)]),
            6 | 7 => Slot::plain(format!("Source::Uniform({start})"), &[(start, 6), (91, 1)]),
            _ => Slot::plain(format!("Source::Register({start})"), &[(start, 8)]),
        };
        slot.is_register = kind == 1;
        (slot.negate, slot.absolute, slot.half) = match start {
            24 => (Some(72), Some(73), Some((74, 2))),
            32 => (Some(63), Some(62), Some((60, 2))),
            64 => (Some(75), Some(74), Some((81, 2))),
            _ => (None, None, None),
        };
        slot.reuse = match (start, kind) {
            (24, 1) => Some(122),
            (32, 1) => Some(123),
            (64, 1) => Some(124),
            _ => None,
        };
        Ok(slot)
    }

    fn claim(&self, claims: &mut Claims) -> Result<()> {
        for &(start, length) in &self.claimed {
            // The uniform operand of an ALU form is marked.
            match (start, length) {
                (91, 1) => claims.fix(91, 1, 1)?,
                _ => claims.claim(start, length),
            }
        }
        Ok(())
    }
}

/// When an operand is not written: `?` the default, `?N` a number, `??` always.
fn hidden(text: &str) -> Result<(&str, String)> {
    let (text, hidden) = match text.split_once('?') {
        None => (text, "Hidden::Never".to_owned()),
        Some((text, "")) => (text, "Hidden::Default".to_owned()),
        Some((text, "?")) => (text, "Hidden::Always".to_owned()),
        Some((text, value)) => (text, format!("Hidden::Number({})", number(value)?)),
    };
    Ok((text, hidden))
}

/// Operands are separated by commas outside brackets.
fn split_operands(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let mut parts: Vec<&str> = text
        .split(|c| {
            match c {
                '(' | '[' => depth += 1,
                ')' | ']' => depth -= 1,
                _ => {}
            }
            c == ',' && depth == 0
        })
        .map(str::trim)
        .collect();
    parts.retain(|part| !part.is_empty());
    parts
}

/// `210`, or `010[28ac]`: the opcode in each of these forms.
fn opcodes(text: &str) -> Result<Vec<u16>> {
    let Some((code, forms)) = text.split_once('[') else {
        return Ok(vec![u16::from_str_radix(text, 16)?]);
    };
    let code = u16::from_str_radix(code, 16)?;
    let forms = forms.strip_suffix(']').ok_or("expected `]`")?;
    let digit = |form: char| form.to_digit(16).ok_or_else(|| format!("{form} is no form"));
    forms.chars().map(|form| Ok(code + ((digit(form)? as u16) << 8))).collect()
}

/// `power:BITS` is a condition: a power of two above 1, but not the sign. It becomes one for each.
fn powers(head: &str) -> Result<Vec<String>> {
    let Some((before, rest)) = head.split_once("power:") else {
        return Ok(vec![head.to_owned()]);
    };
    let (bits, after) = rest.split_once(' ').unwrap_or((rest, ""));
    let (_, length) = piece(bits)?;
    Ok((1..length - 1).map(|bit| format!("{before}if:{bits}={} {after}", 1_u64 << bit)).collect())
}

/// `80`, `80-89` or `90-`.
fn arch_bits(range: &str) -> Result<u16> {
    let (from, to) = range.split_once('-').unwrap_or((range, range));
    let (from, to): (u32, u32) =
        (from.parse()?, if to.is_empty() { u32::MAX } else { to.parse()? });
    let inside = |arch: &u32| (from..=to).contains(arch);
    Ok(ARCHS.iter().enumerate().filter(|(_, arch)| inside(arch)).map(|(bit, _)| 1 << bit).sum())
}

/// `START` or `START:LENGTH`.
fn piece(text: &str) -> Result<(u32, u32)> {
    let (start, length) = text.split_once(':').unwrap_or((text, "1"));
    let parse = |text: &str| text.parse().map_err(|_| format!("expected bits, found {text}"));
    let (start, length): (u32, u32) = (parse(start)?, parse(length)?);
    match length {
        1..=64 if start + length <= 128 => Ok((start, length)),
        _ => Err(format!("no such bits: {text}").into()),
    }
}

/// Pieces of a field, lowest first: `START:LENGTH+START:LENGTH`.
fn pieces(text: &str) -> Result<Vec<(u32, u32)>> {
    text.split('+').map(piece).collect()
}

fn bits_text(pieces: &[(u32, u32)]) -> String {
    format!("Bits(&{pieces:?})")
}

fn number(text: &str) -> Result<u128> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u128::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("expected a number, found {text}").into())
}

/// A name of NVIDIA's as an identifier of Rust.
fn identifier(name: &str) -> String {
    let mut out: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert(0, '_');
    }
    out
}

fn emit_names(out: &mut String, name: &str, doc: &str, values: &BTreeSet<String>) -> Result<()> {
    writeln!(out, "/// {doc}\n#[allow(non_camel_case_types, clippy::upper_case_acronyms)]")?;
    writeln!(
        out,
        "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]\n#[repr(u16)]"
    )?;
    writeln!(out, "pub enum {name} {{")?;
    for value in values {
        writeln!(out, "    /// `{value}`\n    {},", identifier(value))?;
    }
    writeln!(out, "}}\n\nimpl {name} {{\n    /// As it is written.")?;
    writeln!(out, "    pub fn text(self) -> &'static str {{\n        const TEXTS: &[&str] = &[")?;
    for value in values {
        writeln!(out, "            {value:?},")?;
    }
    writeln!(out, "        ];\n        TEXTS[self as usize]\n    }}\n}}\n")?;
    Ok(())
}
