//! From TOML to a profile.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::expr::{self, Expr};
use super::{
    Case, Entry, Filled, Filler, IndexList, ListUse, Node, ObjectRule, Piece, Place, Problem,
    Profile, Source, Value, source,
};

/// How many profiles may extend each other.
const MAX_DEPTH: usize = 8;
/// How deep tables and lists may be nested.
const MAX_NESTING: usize = 16;

/// Words of an answer that are no fields: no field has a dash in its name.
const ONLY_IF: &str = "only-if";
const FAILS_WITH: &str = "fails-with";
const SET_STATE: &str = "set-state";
const OF_GPU: &str = "of-gpu";
const WITHOUT_GPU: &str = "without-gpu";
const FROM_LIST: &str = "from-list";

type Table<'i> = DeTable<'i>;
type Item<'i> = Spanned<DeValue<'i>>;

/// A profile with all that it extends.
pub(super) fn load(name: &str) -> Result<Profile, Vec<Problem>> {
    let first = source(name, None).map_err(|message| vec![problem(message, None)])?;
    let stem = Path::new(name).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Ok(Profile { name: stem.unwrap_or_else(|| name.to_owned()), ..of_source(first)? })
}

/// The same of the text of a file.
pub(super) fn of_source(first: Source) -> Result<Profile, Vec<Problem>> {
    let mut profile = Profile::default();
    let first = Arc::new(first);
    let mut next = extended(&first)?;
    let mut chain = vec![first];
    while let Some((name, from)) = next {
        let folder = from.as_ref().and_then(|place: &Place| Path::new(&place.source.path).parent());
        let folder =
            folder.filter(|_| from.as_ref().is_some_and(|place| !place.source.is_embedded));
        let source =
            source(&name, folder).map_err(|message| vec![problem(message, from.as_ref())])?;
        let source = Arc::new(source);
        next = extended(&source)?;
        chain.push(source);
        if chain.len() > MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} profiles extend each other");
            return Err(vec![problem(message, from.as_ref())]);
        }
    }
    let mut problems = Vec::new();
    // What extends comes after what it extends.
    for source in chain.into_iter().rev() {
        let mut reader = Reader { source: &source, profile: &mut profile, problems: &mut problems };
        reader.file();
    }
    if problems.is_empty() { Ok(profile) } else { Err(problems) }
}

fn problem(message: String, place: Option<&Place>) -> Problem {
    let gravity = super::Gravity::Wrong;
    Problem { gravity, code: "profile-not-read", message, place: place.cloned(), help: None }
}

/// What a file extends, and where it says so.
fn extended(source: &Arc<Source>) -> Result<Option<(String, Option<Place>)>, Vec<Problem>> {
    let table = parse(source)?;
    let Some(item) = table.get("extends") else { return Ok(None) };
    let place = Place { source: source.clone(), span: item.span() };
    match item.get_ref().as_str() {
        Some(name) => Ok(Some((name.to_owned(), Some(place)))),
        None => Err(vec![problem("expected the name of a profile".to_owned(), Some(&place))]),
    }
}

fn parse(source: &Arc<Source>) -> Result<DeTable<'_>, Vec<Problem>> {
    DeTable::parse(&source.text).map(Spanned::into_inner).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let place = Place { source: source.clone(), span };
        vec![problem(error.message().to_owned(), Some(&place))]
    })
}

struct Reader<'a> {
    source: &'a Arc<Source>,
    profile: &'a mut Profile,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn file(&mut self) {
        let source = self.source.clone();
        let table = match parse(&source) {
            Ok(table) => table,
            Err(problems) => return self.problems.extend(problems),
        };
        for (key, item) in &table {
            match key.get_ref().as_ref() {
                "extends" => {}
                "lists" => self.each(item, Self::list),
                "answers" => self.each(item, Self::answer),
                "shared" => self.each(item, Self::shared),
                "objects" => self.each(item, Self::object),
                name => self.values(name, item, 0),
            }
        }
    }

    fn place(&self, item: &Item<'_>) -> Place {
        Place { source: self.source.clone(), span: item.span() }
    }

    fn wrong(&mut self, message: impl Into<String>, item: &Item<'_>) {
        let place = self.place(item);
        self.problems.push(Problem::wrong("profile-not-read", message, &place));
    }

    fn each(&mut self, item: &Item<'_>, read: fn(&mut Self, &str, &Item<'_>)) {
        let Some(table) = self.table(item) else { return };
        for (key, item) in table {
            read(self, key.get_ref(), item);
        }
    }

    fn table<'i, 't>(&mut self, item: &'t Item<'i>) -> Option<&'t Table<'i>> {
        let table = item.get_ref().as_table();
        if table.is_none() {
            self.wrong(format!("expected a table, found {}", item.get_ref().type_str()), item);
        }
        table
    }

    /// A value, or values by their names.
    fn values(&mut self, name: &str, item: &Item<'_>, depth: usize) {
        if depth > MAX_NESTING {
            return self.wrong(format!("tables are nested more than {MAX_NESTING} deep"), item);
        }
        if let Some(table) = item.get_ref().as_table() {
            for (key, item) in table {
                self.values(&format!("{name}.{}", key.get_ref()), item, depth + 1);
            }
        } else if let Some(node) = self.node(item, 0) {
            self.profile.values.insert(name.to_owned(), node);
        }
    }

    fn node(&mut self, item: &Item<'_>, depth: usize) -> Option<Node> {
        let place = self.place(item);
        let value = match item.get_ref() {
            DeValue::Boolean(value) => Value::Number(i128::from(*value)),
            DeValue::Integer(integer) => {
                let Ok(number) = i128::from_str_radix(integer.as_str(), integer.radix()) else {
                    self.wrong(format!("`{}` has too many digits", integer.as_str()), item);
                    return None;
                };
                Value::Number(number)
            }
            DeValue::String(text) => match text.strip_prefix('=') {
                Some(text) => Value::Expr(self.expression(text, item)?),
                None => Value::Text(self.pieces(text, item)?),
            },
            DeValue::Array(items) if depth <= MAX_NESTING => {
                let nodes = items.iter().map(|item| self.node(item, depth + 1));
                Value::List(nodes.collect::<Option<_>>()?)
            }
            other => {
                let found = other.type_str();
                self.wrong(format!("expected a number, a text or a list, found {found}"), item);
                return None;
            }
        };
        Some(Node { place, value })
    }

    fn expression(&mut self, text: &str, item: &Item<'_>) -> Option<Expr> {
        match expr::parse(text) {
            Ok(expr) => Some(expr),
            Err(error) => {
                self.wrong(format!("`{}` is no expression: {error}", text.trim()), item);
                None
            }
        }
    }

    /// A text, in which expressions stand in braces.
    fn pieces(&mut self, text: &str, item: &Item<'_>) -> Option<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((inner, after)) = after.split_once('}') else {
                self.wrong("`{` has no `}`", item);
                return None;
            };
            pieces.push(Piece::Plain(before.to_owned()));
            pieces.push(Piece::Expr(self.expression(inner, item)?));
            rest = after;
        }
        pieces.push(Piece::Plain(rest.to_owned()));
        Some(pieces)
    }

    fn list(&mut self, name: &str, item: &Item<'_>) {
        let Some(table) = self.table(item) else { return };
        let known = self.profile.lists.get(name).map(|list| list.prefix.clone());
        let own = table.get("prefix").and_then(|item| item.get_ref().as_str());
        let Some(prefix) = own.map(str::to_owned).or(known) else {
            return self.wrong(format!("list `{name}` has no `prefix`"), item);
        };
        let mut entries = BTreeMap::new();
        for (key, item) in table {
            let key = key.get_ref().as_ref();
            match key {
                "prefix" => {}
                _ => drop(self.entry(item).map(|entry| entries.insert(key.to_owned(), entry))),
            }
        }
        let new = IndexList { prefix: prefix.clone(), entries: BTreeMap::new() };
        let list = self.profile.lists.entry(name.to_owned()).or_insert(new);
        list.prefix = prefix;
        list.entries.extend(entries);
    }

    fn entry(&mut self, item: &Item<'_>) -> Option<Entry> {
        let place = self.place(item);
        let fields = match item.get_ref().as_table() {
            Some(table) => {
                let fields = table
                    .iter()
                    .map(|(key, item)| Some((key.get_ref().to_string(), self.node(item, 0)?)));
                fields.collect::<Option<_>>()?
            }
            None => vec![(String::new(), self.node(item, 0)?)],
        };
        Some(Entry { place, fields })
    }

    /// One case, or several in the order in which they are tried.
    fn answer(&mut self, name: &str, item: &Item<'_>) {
        let cases = match item.get_ref() {
            DeValue::Array(items) => items.iter().filter_map(|item| self.case(item)).collect(),
            _ => self.case(item).into_iter().collect(),
        };
        self.profile.answers.insert(name.to_owned(), cases);
    }

    fn case(&mut self, item: &Item<'_>) -> Option<Case> {
        let place = self.place(item);
        let mut case = Case {
            place,
            only_if: None,
            fails_with: None,
            of_gpu: None,
            without_gpu: None,
            set_state: Vec::new(),
            fields: Vec::new(),
        };
        for (key, item) in self.table(item)? {
            let key = key.get_ref().as_ref();
            match key {
                ONLY_IF => case.only_if = Some(self.node(item, 0)?),
                FAILS_WITH => case.fails_with = Some(self.node(item, 0)?),
                OF_GPU => case.of_gpu = Some((self.text(item)?, self.place(item))),
                WITHOUT_GPU => case.without_gpu = Some(self.node(item, 0)?),
                SET_STATE => {
                    for (key, item) in self.table(item)? {
                        let node = self.node(item, 0)?;
                        case.set_state.push((format!("state.{}", key.get_ref()), node));
                    }
                }
                word if word.contains('-') && !word.starts_with('+') => {
                    let words = [ONLY_IF, FAILS_WITH, SET_STATE, OF_GPU, WITHOUT_GPU].join(", ");
                    self.wrong(format!("`{word}` is none of {words}"), item);
                }
                path => self.fields(path, item, &mut case.fields, 0),
            }
        }
        Some(case)
    }

    fn text(&mut self, item: &Item<'_>) -> Option<String> {
        let text = item.get_ref().as_str().map(str::to_owned);
        if text.is_none() {
            self.wrong(format!("expected a text, found {}", item.get_ref().type_str()), item);
        }
        text
    }

    /// A field, or fields of a record or of an array of records.
    fn fields(&mut self, path: &str, item: &Item<'_>, fields: &mut Vec<Filled>, depth: usize) {
        if depth > MAX_NESTING {
            return self.wrong(format!("tables are nested more than {MAX_NESTING} deep"), item);
        }
        let place = self.place(item);
        let (path, is_optional) = match path.strip_suffix('?') {
            Some(path) => (path, true),
            None => (path, false),
        };
        let filled = |with| Filled { place, path: path.to_owned(), is_optional, with };
        let mark = if is_optional { "?" } else { "" };
        match item.get_ref() {
            DeValue::Table(table) if table.contains_key(FROM_LIST) => {
                if let Some(list) = self.list_use(table, item) {
                    fields.push(filled(Filler::List(list)));
                }
            }
            DeValue::Table(table) => {
                for (key, item) in table {
                    let key = key.get_ref().as_ref();
                    let own = key.strip_suffix('?').unwrap_or(key);
                    let mark = if own == key { mark } else { "?" };
                    self.fields(&format!("{path}.{own}{mark}"), item, fields, depth + 1);
                }
            }
            DeValue::Array(items) if items.iter().any(|item| item.get_ref().is_table()) => {
                for (index, item) in items.iter().enumerate() {
                    self.fields(&format!("{path}[{index}]{mark}"), item, fields, depth + 1);
                }
            }
            _ => {
                if let Some(node) = self.node(item, 0) {
                    fields.push(filled(Filler::Value(node)));
                }
            }
        }
    }

    fn list_use(&mut self, table: &Table<'_>, item: &Item<'_>) -> Option<ListUse> {
        let mut words = BTreeMap::new();
        for (key, item) in table {
            let key = key.get_ref().as_ref();
            if ![FROM_LIST, "count-in", "key-in", "value-in", "entry-of"].contains(&key) {
                self.wrong(format!("a list has no `{key}`"), item);
            }
            words.insert(key.to_owned(), self.text(item)?);
        }
        let Some(count_in) = words.remove("count-in") else {
            self.wrong(
                "the list has no `count-in`, the field with the number of its entries",
                item,
            );
            return None;
        };
        let mut or = |key: &str, other: &str| words.remove(key).unwrap_or_else(|| other.to_owned());
        let (key_in, value_in) = (or("key-in", "index"), or("value-in", "data"));
        let list = or(FROM_LIST, "");
        Some(ListUse { list, count_in, key_in, value_in, entry_of: words.remove("entry-of") })
    }

    fn shared(&mut self, name: &str, item: &Item<'_>) {
        let Some(case) = self.case(item) else { return };
        // Field by field, as values are: a card has some that others lack.
        match self.profile.shared.get_mut(name) {
            Some(known) => {
                known.fields.retain(|old| !case.fields.iter().any(|new| new.path == old.path));
                known.fields.extend(case.fields);
            }
            None => drop(self.profile.shared.insert(name.to_owned(), case)),
        }
    }

    /// A number that fits; a complaint where it is none.
    fn number_of<T: TryFrom<i128>>(&mut self, item: &Item<'_>, what: &str) -> Option<T> {
        let number = match self.node(item, 0).map(|node| node.value) {
            Some(Value::Number(number)) => T::try_from(number).ok(),
            _ => None,
        };
        if number.is_none() {
            self.wrong(format!("expected {what}"), item);
        }
        number
    }

    fn object(&mut self, name: &str, item: &Item<'_>) {
        let place = self.place(item);
        let Some(table) = self.table(item) else { return };
        let mut rule =
            ObjectRule { place, below: Vec::new(), commands: None, shared: None, registers: None };
        for (key, item) in table {
            match key.get_ref().as_ref() {
                "below" => {
                    let Some(items) = item.get_ref().as_array() else {
                        return self
                            .wrong("expected a list of `client`, `device`, `subdevice`", item);
                    };
                    for item in items.iter() {
                        match item.get_ref().as_str() {
                            Some(word @ ("client" | "device" | "subdevice")) => {
                                rule.below.push(word.to_owned());
                            }
                            _ => self.wrong("expected `client`, `device` or `subdevice`", item),
                        }
                    }
                }
                "commands" => {
                    rule.commands =
                        self.number_of(item, "the upper half of the number of a command");
                }
                "shared" => rule.shared = self.text(item),
                "registers" => {
                    rule.registers = self.number_of(item, "bytes, more than none");
                    if rule.registers == Some(0) {
                        self.wrong("expected bytes, more than none", item);
                    }
                }
                other => {
                    let message = format!(
                        "an object has no `{other}`: expected below, commands, registers, shared"
                    );
                    self.wrong(message, item);
                }
            }
        }
        self.profile.objects.insert(name.to_owned(), rule);
    }
}
