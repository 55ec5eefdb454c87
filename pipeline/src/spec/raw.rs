//! The TOML of a spec as it is written. Unknown keys are refused everywhere.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::DeValue;

use super::table::{Read, Value, Word, Wrong, expected, tables};
use super::{AllocAction, ControlAction, Direction, HandleMeaning, ItemKind, TakenFor};

tables! {
    struct RawSpec {
        driver: String,
        parent: Option<Spanned<String>>,
        repository: Option<String>,
        tree: BTreeMap<String, RawTree>,
        tags: BTreeMap<Spanned<String>, BTreeMap<String, String>>,
        node: BTreeMap<Spanned<String>, RawNode>,
        targets: Vec<String>,
        surface: BTreeMap<String, Spanned<RawSurface>>,
        frontend: RawSection,
        uvm: RawSection,
        control: RawSection,
        class: RawSection,
        ioctl: RawSection,
        rm: Option<RawRm>,
        handles: BTreeMap<HandleMeaning, Vec<String>>,
        unions: BTreeMap<Spanned<String>, RawChoice>,
        disputed: BTreeMap<Spanned<String>, BTreeMap<Spanned<String>, RawDisputed>>,
        types: Option<RawTypes>,
        constants: Option<RawConstants>,
    }

    struct RawTree {
        repository: String,
    }

    struct RawNode {
        paths: Vec<String>,
        note: Option<String>,
    }

    struct RawSurface {
        removed: bool,
        tree: Option<Spanned<String>>,
        headers: Option<Vec<Spanned<String>>>,
        calls: Option<Vec<Spanned<String>>>,
        exclude: Option<Vec<String>>,
        include: Option<Vec<String>>,
        defines: Option<Vec<String>>,
        prelude: Option<String>,
        system: Option<Vec<String>>,
        language: Option<Language>,
        suffix: Option<String>,
        node: Option<Spanned<String>>,
    }

    /// What stands for the resource manager's classes and commands.
    struct RawRm {
        class: BTreeMap<String, RawClass>,
        control: BTreeMap<String, RawCommand>,
    }

    struct RawClass {
        number: u32,
        action: AllocAction,
    }

    struct RawCommand {
        number: u32,
        action: ControlAction,
    }

    struct RawChoice {
        by: Spanned<String>,
        members: BTreeMap<String, Spanned<String>>,
    }

    struct RawDisputed {
        theirs: TakenFor,
        evidence: String,
    }

    struct RawTypes {
        extra: Vec<Spanned<String>>,
        /// Inherited ones that the driver no longer has.
        removed: Vec<String>,
    }

    struct RawConstants {
        names: Vec<Spanned<String>>,
        statuses: Vec<Spanned<String>>,
    }

    struct RawItem {
        params: Option<RawParams>,
        parameterless: bool,
        array: bool,
        fds: Vec<Spanned<String>>,
        node: Option<Spanned<String>>,
        opens: BTreeMap<Spanned<String>, Spanned<String>>,
        files: BTreeMap<Spanned<String>, Spanned<String>>,
        pointers: Vec<RawPointer>,
        handles: BTreeMap<Spanned<String>, HandleMeaning>,
        plain: Vec<Spanned<String>>,
        caps: Vec<String>,
        number: Option<u32>,
        since: Option<Spanned<String>>,
        until: Option<Spanned<String>>,
        note: Option<String>,
        removed: bool,
    }

    struct RawPointer {
        field: Spanned<String>,
        len: Option<RawLength>,
        filled: Option<RawLength>,
        of: Option<Spanned<String>>,
        /// The parameters of an ioctl, of a command, or of a class.
        frontend: Option<RawLength>,
        control: Option<RawLength>,
        class: Option<RawLength>,
        dir: Option<Direction>,
        opaque: bool,
        fds: Vec<Spanned<String>>,
        pointers: Vec<RawPointer>,
        plain: Vec<Spanned<String>>,
    }
}

/// Calls by name.
pub(super) type RawSection = BTreeMap<Spanned<String>, RawItems>;

impl RawSpec {
    pub(super) fn sections(&self) -> [(ItemKind, &RawSection); 5] {
        let sections = [&self.frontend, &self.uvm, &self.control, &self.class, &self.ioctl];
        std::array::from_fn(|i| (ItemKind::ALL[i], sections[i]))
    }
}

/// One table, or several that hold for different tags.
#[derive(Debug)]
pub(super) struct RawItems(pub(super) Vec<RawItem>);

impl Read for RawItems {
    fn read(value: &Value<'_>, wrong: &mut Vec<Wrong>) -> Option<Self> {
        match value.get_ref() {
            DeValue::Table(_) => RawItem::read(value, wrong).map(|item| Self(vec![item])),
            DeValue::Array(_) => Vec::read(value, wrong).map(Self),
            _ => {
                expected("a table such as { params = \"NAME\" }, or an array of them", value, wrong)
            }
        }
    }
}

/// The name of a parameter type, or several.
#[derive(Debug)]
pub(super) struct RawParams(pub(super) Vec<Spanned<String>>);

impl Read for RawParams {
    fn read(value: &Value<'_>, wrong: &mut Vec<Wrong>) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(_) => Spanned::read(value, wrong).map(|name| Self(vec![name])),
            DeValue::Array(_) => Vec::read(value, wrong).map(Self),
            _ => expected("the name of a parameter type, or an array of names", value, wrong),
        }
    }
}

/// Fields, constants and numbers; or a number.
#[derive(Debug)]
pub(super) struct RawLength(pub(super) String);

impl Read for RawLength {
    fn read(value: &Value<'_>, wrong: &mut Vec<Wrong>) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(text) => Some(Self(text.to_string())),
            DeValue::Integer(_) => u32::read(value, wrong).map(|number| Self(number.to_string())),
            _ => expected("fields, constants and numbers", value, wrong),
        }
    }
}

/// The language of a surface's headers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Language {
    C,
    Cpp,
}

impl Language {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cpp => "c++",
        }
    }
}

impl Word for Language {
    const WORDS: &'static [(&'static str, Self)] =
        &[(Self::C.name(), Self::C), (Self::Cpp.name(), Self::Cpp)];
}

impl Word for AllocAction {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("container", Self::Container),
        ("address-space", Self::AddressSpace),
        ("group", Self::Group),
        ("subcontext", Self::Subcontext),
        ("channel", Self::Channel),
        ("compute", Self::Compute),
        ("copy", Self::Copy),
    ];
}

impl Word for ControlAction {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("nothing", Self::Nothing),
        ("boost", Self::Boost),
        ("token", Self::Token),
        ("gr-info", Self::GrInfo),
        ("class-list", Self::ClassList),
        ("uuid", Self::Uuid),
    ];
}

impl Word for HandleMeaning {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("client", Self::Client),
        ("parent", Self::Parent),
        ("object", Self::Object),
        ("new", Self::New),
        ("class", Self::Class),
        ("none", Self::None),
    ];
}

impl Word for TakenFor {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("fd", Self::Fd),
        ("pointer", Self::Pointer),
        ("handle", Self::Handle),
        ("number", Self::Number),
    ];
}

impl Word for Direction {
    const WORDS: &'static [(&'static str, Self)] =
        &[("in", Self::In), ("out", Self::Out), ("inout", Self::InOut)];
}
