//! From TOML to a profile.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

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
type Key<'i> = Spanned<DeString<'i>>;

/// A profile, as far as it could be read, and what could not be.
pub(super) struct Read {
    pub(super) profile: Profile,
    pub(super) problems: Vec<Problem>,
}

impl Read {
    /// All that is wrong with it whatever the driver.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut problems = self.problems.clone();
        problems.extend(self.profile.values_without_value());
        problems.extend(self.profile.unknown_values(&self.problems));
        problems
    }

    /// The profile, if nothing is wrong with it.
    pub(super) fn whole(self) -> Result<Profile, Vec<Problem>> {
        let problems = self.problems();
        if problems.is_empty() { Ok(self.profile) } else { Err(problems) }
    }
}

/// A profile with all that it extends.
pub(super) fn load(name: &str) -> Result<Read, Vec<Problem>> {
    let first = source(name, None).map_err(|message| vec![problem(message, None)])?;
    let stem = Path::new(name).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let mut read = of_source(first)?;
    read.profile.name = stem.unwrap_or_else(|| name.to_owned());
    Ok(read)
}

/// The same of the text of a file.
pub(super) fn of_source(first: Source) -> Result<Read, Vec<Problem>> {
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
    Ok(Read { profile, problems })
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
                name => self.values(name, self.place(key), item, 0),
            }
        }
    }

    fn place<T>(&self, item: &Spanned<T>) -> Place {
        Place { source: self.source.clone(), span: item.span() }
    }

    fn wrong<T>(&mut self, message: impl Into<String>, item: &Spanned<T>) {
        let place = self.place(item);
        self.problems.push(Problem::wrong("profile-not-read", message, &place));
    }

    fn each(&mut self, item: &Item<'_>, read: fn(&mut Self, &Key<'_>, &Item<'_>)) {
        let Some(table) = self.table(item) else { return };
        for (key, item) in table {
            read(self, key, item);
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
    fn values(&mut self, name: &str, named: Place, item: &Item<'_>, depth: usize) {
        if depth > MAX_NESTING {
            return self.wrong(format!("tables are nested more than {MAX_NESTING} deep"), item);
        }
        if let Some(table) = item.get_ref().as_table() {
            for (key, item) in table {
                let named = self.place(key);
                self.values(&format!("{name}.{}", key.get_ref()), named, item, depth + 1);
            }
            return;
        }
        let unread = Node { place: self.place(item), value: Value::Unread };
        let node = self.node(item, 0).unwrap_or(unread);
        self.profile.values.insert(name.to_owned(), node);
        self.profile.names.insert(name.to_owned(), named);
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
                // All are read, for what is wrong with each.
                let nodes: Vec<_> = items.iter().map(|item| self.node(item, depth + 1)).collect();
                Value::List(nodes.into_iter().collect::<Option<_>>()?)
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

    fn list(&mut self, key: &Key<'_>, item: &Item<'_>) {
        let name = key.get_ref().as_ref();
        let Some(table) = self.table(item) else { return };
        let known = self.profile.lists.get(name).map(|list| list.prefix.clone());
        let own = table.get("prefix").and_then(|item| item.get_ref().as_str());
        let Some(prefix) = own.map(str::to_owned).or(known) else {
            self.profile.lists.insert(name.to_owned(), IndexList::default());
            return self.wrong(format!("list `{name}` has no `prefix`"), key);
        };
        let mut entries = BTreeMap::new();
        for (key, item) in table.iter().filter(|(key, _)| key.get_ref() != "prefix") {
            entries.insert(key.get_ref().to_string(), self.entry(key, item));
        }
        let new = IndexList { prefix: prefix.clone(), entries: BTreeMap::new() };
        let list = self.profile.lists.entry(name.to_owned()).or_insert(new);
        list.prefix = prefix;
        list.entries.extend(entries);
    }

    fn entry(&mut self, key: &Key<'_>, item: &Item<'_>) -> Entry {
        let mut fields = Vec::new();
        match item.get_ref().as_table() {
            Some(table) => {
                for (key, item) in table {
                    let node = self.node(item, 0);
                    fields.extend(node.map(|node| (key.get_ref().to_string(), node)));
                }
            }
            None => fields.extend(self.node(item, 0).map(|node| (String::new(), node))),
        }
        Entry { place: self.place(key), fields }
    }

    /// One case, or several in the order in which they are tried.
    fn answer(&mut self, key: &Key<'_>, item: &Item<'_>) {
        let cases = match item.get_ref() {
            DeValue::Array(items) => items.iter().filter_map(|item| self.case(key, item)).collect(),
            _ => self.case(key, item).into_iter().collect(),
        };
        self.profile.answers.insert(key.get_ref().to_string(), cases);
    }

    fn case(&mut self, key: &Key<'_>, item: &Item<'_>) -> Option<Case> {
        let mut case = Case {
            place: self.place(key),
            only_if: None,
            fails_with: None,
            of_gpu: None,
            without_gpu: None,
            set_state: Vec::new(),
            fields: Vec::new(),
        };
        for (key, item) in self.table(item)? {
            match key.get_ref().as_ref() {
                ONLY_IF => case.only_if = self.node(item, 0),
                FAILS_WITH => case.fails_with = self.node(item, 0),
                OF_GPU => case.of_gpu = self.text(item).map(|path| (path, self.place(item))),
                WITHOUT_GPU => case.without_gpu = self.node(item, 0),
                SET_STATE => self.states(item, &mut case.set_state),
                word if word.contains('-') && !word.starts_with('+') => {
                    let words = [ONLY_IF, FAILS_WITH, SET_STATE, OF_GPU, WITHOUT_GPU].join(", ");
                    self.wrong(format!("`{word}` is none of {words}"), key);
                }
                path => self.fields(path, &self.place(key), item, &mut case.fields, 0),
            }
        }
        Some(case)
    }

    /// What a command changes.
    fn states(&mut self, item: &Item<'_>, states: &mut Vec<(String, Node)>) {
        let Some(table) = self.table(item) else { return };
        for (key, item) in table {
            let node = self.node(item, 0);
            states.extend(node.map(|node| (format!("state.{}", key.get_ref()), node)));
        }
    }

    fn text(&mut self, item: &Item<'_>) -> Option<String> {
        let text = item.get_ref().as_str().map(str::to_owned);
        if text.is_none() {
            self.wrong(format!("expected a text, found {}", item.get_ref().type_str()), item);
        }
        text
    }

    /// A field, which is named at a place, or fields of a record or of an array of records.
    fn fields(
        &mut self,
        path: &str,
        named: &Place,
        item: &Item<'_>,
        fields: &mut Vec<Filled>,
        depth: usize,
    ) {
        if depth > MAX_NESTING {
            return self.wrong(format!("tables are nested more than {MAX_NESTING} deep"), item);
        }
        let (path, is_optional) = match path.strip_suffix('?') {
            Some(path) => (path, true),
            None => (path, false),
        };
        let filled =
            |with| Filled { place: named.clone(), path: path.to_owned(), is_optional, with };
        let mark = if is_optional { "?" } else { "" };
        match item.get_ref() {
            DeValue::Table(table) if table.contains_key(FROM_LIST) => {
                if let Some(list) = self.list_use(table, item) {
                    fields.push(filled(Filler::List(list)));
                }
            }
            DeValue::Table(table) => {
                for (key, item) in table {
                    let named = self.place(key);
                    let key = key.get_ref().as_ref();
                    let own = key.strip_suffix('?').unwrap_or(key);
                    let mark = if own == key { mark } else { "?" };
                    self.fields(&format!("{path}.{own}{mark}"), &named, item, fields, depth + 1);
                }
            }
            DeValue::Array(items) if items.iter().any(|item| item.get_ref().is_table()) => {
                for (index, item) in items.iter().enumerate() {
                    self.fields(&format!("{path}[{index}]{mark}"), named, item, fields, depth + 1);
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
            let word = key.get_ref().as_ref();
            if ![FROM_LIST, "count-in", "key-in", "value-in", "entry-of"].contains(&word) {
                self.wrong(format!("a list has no `{word}`"), key);
            }
            words.insert(word.to_owned(), self.text(item)?);
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

    fn shared(&mut self, key: &Key<'_>, item: &Item<'_>) {
        let name = key.get_ref().as_ref();
        let Some(case) = self.case(key, item) else { return };
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

    fn object(&mut self, key: &Key<'_>, item: &Item<'_>) {
        let Some(table) = self.table(item) else { return };
        let name = key.get_ref().to_string();
        let mut rule = ObjectRule {
            place: self.place(key),
            below: Vec::new(),
            commands: None,
            shared: None,
            registers: None,
        };
        for (key, item) in table {
            match key.get_ref().as_ref() {
                "below" => rule.below = self.parents(item),
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
                    self.wrong(message, key);
                }
            }
        }
        self.profile.objects.insert(name, rule);
    }

    /// What an object may be below.
    fn parents(&mut self, item: &Item<'_>) -> Vec<String> {
        let Some(items) = item.get_ref().as_array() else {
            self.wrong("expected a list of `client`, `device`, `subdevice`", item);
            return Vec::new();
        };
        let mut parents = Vec::new();
        for item in items.iter() {
            match item.get_ref().as_str() {
                Some(word @ ("client" | "device" | "subdevice")) => parents.push(word.to_owned()),
                _ => self.wrong("expected `client`, `device` or `subdevice`", item),
            }
        }
        parents
    }
}
