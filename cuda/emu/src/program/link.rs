//! Modules into one program, as nvlink joins them: what each module's names stand for.

use std::collections::HashMap;
use std::fmt;

use crate::error::{LoadError, load_error};
use crate::ptx::{self, Linkage, Space};

/// A parsed module and what messages call it.
#[derive(Debug)]
pub(crate) struct Unit<'a> {
    /// Empty where the module is alone.
    pub(crate) name: &'a str,
    pub(crate) module: ptx::Module<'a>,
}

impl Unit<'_> {
    fn line(&self, line: u32) -> String {
        if self.name.is_empty() {
            format!("line {line}")
        } else {
            format!("{}, PTX line {line}", self.name)
        }
    }
}

/// What a name stands for: a number in [`Linked`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    Function(usize),
    Variable(usize),
}

/// The functions and variables that are left, each with the number of its unit.
#[derive(Debug, Default)]
pub(crate) struct Linked<'m, 'a> {
    pub(crate) functions: Vec<(usize, &'m ptx::Function<'a>)>,
    pub(crate) variables: Vec<(usize, &'m ptx::Variable<'a>)>,
    /// What names mean, by unit. A function that is declared and defined nowhere is not in it.
    pub(crate) scopes: Vec<HashMap<&'a str, Target>>,
}

/// Finds what every name stands for.
///
/// A definition that others see is there once; of weak ones the first counts. Declarations and
/// definitions of one name have to agree.
pub(crate) fn link<'m, 'a>(units: &'m [Unit<'a>]) -> Result<Linked<'m, 'a>, LoadError> {
    let mut linked = Linked::default();
    let mut public: HashMap<&'a str, (usize, Symbol<'m, 'a>)> = HashMap::new();
    for (at, unit) in units.iter().enumerate() {
        let mut own: HashMap<&'a str, Symbol<'m, 'a>> = HashMap::new();
        for symbol in symbols(&unit.module).filter(|symbol| symbol.is_defined()) {
            if let Some(first) = own.insert(symbol.name(), symbol) {
                return Err(twice(unit, symbol, unit, first));
            }
            if symbol.linkage() == Linkage::Local {
                continue;
            }
            let Some((other, first)) = public.get(symbol.name()).copied() else {
                public.insert(symbol.name(), (at, symbol));
                continue;
            };
            agree(unit, symbol, &units[other], first)?;
            match (first.linkage(), symbol.linkage()) {
                (_, Linkage::Weak) => {}
                (Linkage::Weak, _) => {
                    public.insert(symbol.name(), (at, symbol));
                }
                _ => return Err(twice(unit, symbol, &units[other], first)),
            }
        }
    }
    let mut numbers = HashMap::new();
    for (at, unit) in units.iter().enumerate() {
        for symbol in symbols(&unit.module).filter(|symbol| symbol.is_defined()) {
            let counts = |(unit, first): &(usize, Symbol<'_, '_>)| *unit == at && first.is(symbol);
            if symbol.linkage() == Linkage::Local || public.get(symbol.name()).is_some_and(counts) {
                numbers.insert((at, symbol.name()), linked.add(at, symbol));
            }
        }
    }
    for (at, unit) in units.iter().enumerate() {
        let mut scope = HashMap::new();
        for symbol in symbols(&unit.module) {
            let name = symbol.name();
            let own = numbers.get(&(at, name)).copied();
            let target = match (own, public.get(name)) {
                (Some(own), _) => own,
                (None, Some((other, first))) => {
                    agree(unit, symbol, &units[*other], *first)?;
                    numbers[&(*other, name)]
                }
                (None, None) => match symbol {
                    // Calls of it say so: nothing is wrong with a declaration.
                    Symbol::Function(_) => continue,
                    // Its size is the launch's.
                    Symbol::Variable(variable) if variable.space == Space::Shared => {
                        linked.add(at, symbol)
                    }
                    Symbol::Variable(variable) => {
                        return Err(undefined(name, variable.line).in_unit(unit.name));
                    }
                },
            };
            scope.insert(name, target);
        }
        linked.scopes.push(scope);
    }
    Ok(linked)
}

impl<'m, 'a> Linked<'m, 'a> {
    fn add(&mut self, unit: usize, symbol: Symbol<'m, 'a>) -> Target {
        match symbol {
            Symbol::Function(function) => {
                self.functions.push((unit, function));
                Target::Function(self.functions.len() - 1)
            }
            Symbol::Variable(variable) => {
                self.variables.push((unit, variable));
                Target::Variable(self.variables.len() - 1)
            }
        }
    }
}

/// A name that is declared, and needed.
pub(super) fn undefined(name: &str, line: u32) -> LoadError {
    load_error(line, format!("`{name}` is declared but defined nowhere"))
}

/// A definition or a declaration.
#[derive(Debug, Clone, Copy)]
enum Symbol<'m, 'a> {
    Function(&'m ptx::Function<'a>),
    Variable(&'m ptx::Variable<'a>),
}

fn symbols<'m, 'a>(module: &'m ptx::Module<'a>) -> impl Iterator<Item = Symbol<'m, 'a>> {
    let variables = module.variables.iter().map(Symbol::Variable);
    variables.chain(module.functions.iter().map(Symbol::Function))
}

impl<'a> Symbol<'_, 'a> {
    fn name(&self) -> &'a str {
        match self {
            Self::Function(function) => function.name,
            Self::Variable(variable) => variable.name,
        }
    }

    fn line(&self) -> u32 {
        match self {
            Self::Function(function) => function.line,
            Self::Variable(variable) => variable.line,
        }
    }

    fn linkage(&self) -> Linkage {
        match self {
            Self::Function(function) => function.linkage,
            Self::Variable(variable) => variable.linkage,
        }
    }

    fn is_defined(&self) -> bool {
        match self {
            Self::Function(function) => function.defined,
            Self::Variable(variable) => variable.linkage != Linkage::Extern,
        }
    }

    fn is(&self, other: Symbol<'_, '_>) -> bool {
        match (self, other) {
            (Self::Function(a), Symbol::Function(b)) => std::ptr::addr_eq(*a, b),
            (Self::Variable(a), Symbol::Variable(b)) => std::ptr::addr_eq(*a, b),
            _ => false,
        }
    }

    /// Whether both can be the same thing. An array of unknown length is of any.
    fn fits(&self, other: Symbol<'_, '_>) -> bool {
        let sizes = |list: &[ptx::Variable<'_>]| list.iter().map(|v| v.size).collect::<Vec<_>>();
        match (self, other) {
            (Self::Function(a), Symbol::Function(b)) => {
                a.entry == b.entry
                    && sizes(&a.params) == sizes(&b.params)
                    && sizes(&a.results) == sizes(&b.results)
            }
            (Self::Variable(a), Symbol::Variable(b)) => {
                a.space == b.space && (a.size == b.size || a.size == 0 || b.size == 0)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Symbol<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = |list: &[ptx::Variable<'_>]| {
            let sizes: Vec<_> = list.iter().map(|variable| variable.size.to_string()).collect();
            sizes.join(", ")
        };
        match self {
            Self::Function(function) => {
                let kind = if function.entry { "a kernel" } else { "a function" };
                write!(f, "{kind} of ({}) bytes", sizes(&function.params))?;
                match &function.results[..] {
                    [] => Ok(()),
                    results => write!(f, " that returns {}", sizes(results)),
                }
            }
            Self::Variable(variable) => {
                let space = match variable.space {
                    Space::Global => "global",
                    Space::Const => "constant",
                    Space::Shared => "shared",
                    Space::Local | Space::Param => "local",
                };
                write!(f, "{} bytes of {space} memory", variable.size)
            }
        }
    }
}

fn twice(
    unit: &Unit<'_>,
    symbol: Symbol<'_, '_>,
    other: &Unit<'_>,
    first: Symbol<'_, '_>,
) -> LoadError {
    let what = format!("`{}` is defined already: {}", symbol.name(), other.line(first.line()));
    load_error(symbol.line(), what).in_unit(unit.name)
}

fn agree(
    unit: &Unit<'_>,
    symbol: Symbol<'_, '_>,
    other: &Unit<'_>,
    first: Symbol<'_, '_>,
) -> Result<(), LoadError> {
    if symbol.fits(first) {
        return Ok(());
    }
    let place = other.line(first.line());
    let what = format!("`{}` is {symbol}, but {first} in {place}", symbol.name());
    Err(load_error(symbol.line(), what).in_unit(unit.name))
}
