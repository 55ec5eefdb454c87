//! The structs of a crate that derive `NvProxy`, from its sources.

use std::fs;
use std::path::{Path, PathBuf};

use syn::ext::IdentExt as _;
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::{Attribute, Ident, Item, LitStr, Macro, Meta, Stmt, Token};

use super::RequestedName;
use nvabi_pipeline::diagnostic::{Diagnostic, Report, SourceSpan};

/// The derive's own name, and that of its attribute.
const DERIVE: &str = "NvProxy";
const ATTRIBUTE: &str = "nvproxy";

/// What a crate derives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Derives {
    /// The driver's names, each at its struct, in the order of the sources.
    pub names: Vec<RequestedName>,
    /// How many name a table of their own with `crate = "…"`: the lock is not about these.
    pub foreign: usize,
    /// The files in which macros speak of the derive: what these make is not seen.
    pub macros: Vec<String>,
}

/// The derives in the folder `src` of a crate.
pub fn of_crate(folder: &Path) -> Result<Derives, Report> {
    let src = folder.join("src");
    if !src.is_dir() {
        let message = format!("{} has no folder `src`", folder.display());
        let help = "give the folder of a crate: the one with its Cargo.toml";
        return Err(Diagnostic::error("ranges-no-crate", message).help(help).into());
    }
    let (mut derives, mut report) = (Derives::default(), Report::default());
    for path in sources(&src)? {
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
        let shown = path.display().to_string();
        match of_text(&shown, &text) {
            Ok(found) => {
                derives.names.extend(found.names);
                derives.foreign += found.foreign;
                derives.macros.extend(found.macros);
            }
            Err(complaint) => report.push(complaint),
        }
    }
    if report.diagnostics.is_empty() && derives.names.is_empty() {
        let message = format!("nothing in {} derives NvProxy", src.display());
        let mut complaint = Diagnostic::error("ranges-no-derives", message);
        if derives.foreign > 0 {
            let note = format!("{} name another table with `crate = \"…\"`", derives.foreign);
            complaint = complaint.note(note);
        }
        if !derives.macros.is_empty() {
            let files = derives.macros.join(", ");
            complaint = complaint.note(format!("what macros derive is not seen, in {files}"));
        }
        report.push(complaint);
    }
    report.into_result(derives).map(|(derives, _)| derives)
}

/// Every Rust source below a folder, sorted.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, Diagnostic> {
    let (mut files, mut pending) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder).map_err(|error| unreadable(&folder, &error))? {
            let entry = entry.map_err(|error| unreadable(&folder, &error))?;
            let (path, kind) = (entry.path(), entry.file_type());
            // A link to a folder could lead around in a circle.
            if kind.is_ok_and(|kind| kind.is_dir()) {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Diagnostic {
    Diagnostic::error("ranges-unreadable", format!("cannot read {}: {error}", path.display()))
}

/// The derives in one source file, `path` as it is to be shown.
pub fn of_text(path: &str, text: &str) -> Result<Derives, Diagnostic> {
    let file = syn::parse_file(text).map_err(|error| {
        Diagnostic::error("ranges-not-rust", format!("cannot parse {path}: {error}"))
            .help("run `cargo check` for the compiler's message")
    })?;
    let mut reader = Reader { path, text, derives: Derives::default() };
    file.items.iter().for_each(|item| reader.item(item));
    Ok(reader.derives)
}

struct Reader<'t> {
    path: &'t str,
    text: &'t str,
    derives: Derives,
}

impl Reader<'_> {
    fn item(&mut self, item: &Item) {
        match item {
            Item::Struct(item) => self.target(&item.attrs, &item.ident),
            Item::Union(item) => self.target(&item.attrs, &item.ident),
            Item::Mod(module) => {
                let items = module.content.iter().flat_map(|(_, items)| items);
                items.for_each(|item| self.item(item));
            }
            Item::Fn(function) => {
                for statement in &function.block.stmts {
                    match statement {
                        Stmt::Item(item) => self.item(item),
                        Stmt::Macro(statement) => self.invoked(&statement.mac),
                        _ => {}
                    }
                }
            }
            Item::Macro(item) => self.invoked(&item.mac),
            _ => {}
        }
    }

    /// A macro, made or used: what its tokens come to is not known here.
    fn invoked(&mut self, found: &Macro) {
        let tokens = found.tokens.to_string();
        let mut words = tokens.split(|c: char| !c.is_alphanumeric() && c != '_');
        if words.any(|word| word == DERIVE || word == ATTRIBUTE) {
            self.derives.macros = vec![self.path.to_owned()];
        }
    }

    fn target(&mut self, attributes: &[Attribute], ident: &Ident) {
        let mut args = Args::default();
        attributes.iter().for_each(|attribute| args.read(&attribute.meta));
        if !args.derived {
            return;
        }
        if args.foreign {
            self.derives.foreign += 1;
            return;
        }
        let own = ident.unraw().to_string();
        let place = self.place(&own, args.name.as_deref());
        self.derives.names.push(RequestedName { name: args.name.unwrap_or(own), place });
    }

    /// Where the driver's name stands, or else the struct's own. Tokens do not tell: proc-macro2
    /// counts lines only where a feature asks for it, and this crate is in users' builds.
    fn place(&self, own: &str, name: Option<&str>) -> Option<SourceSpan> {
        let quoted = name.and_then(|name| {
            let at = self.text.find(&format!("\"{name}\""))? + 1;
            Some(at..at + name.len())
        });
        let declared = || {
            let words = [format!("struct {own}"), format!("union {own}")];
            let at = words.iter().find_map(|words| Some(self.text.find(words)? + words.len()))?;
            Some(at - own.len()..at)
        };
        let span = quoted.or_else(declared)?;
        Some(SourceSpan { path: self.path.to_owned(), text: self.text.into(), span })
    }
}

/// What matters here of a struct's attributes; mistakes in them are for the derive to tell.
#[derive(Default)]
struct Args {
    /// By the derive's name; or, whatever it is called here, by the attribute that it alone has.
    derived: bool,
    name: Option<String>,
    foreign: bool,
}

impl Args {
    fn read(&mut self, meta: &Meta) {
        let Meta::List(list) = meta else { return };
        if list.path.is_ident("derive") {
            let paths = list.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated);
            self.derived |= paths.is_ok_and(|paths| paths.iter().any(is_nvproxy));
        } else if list.path.is_ident(ATTRIBUTE) {
            self.derived = true;
            let _ = list.parse_nested_meta(|meta| self.key(&meta));
        } else if list.path.is_ident("cfg_attr") {
            // Whatever its condition: the crate is meant as a whole.
            let metas = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            metas.iter().flatten().skip(1).for_each(|meta| self.read(meta));
        }
    }

    fn key(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        if meta.path.is_ident("name") {
            self.name = Some(text(meta)?);
        } else if meta.path.is_ident("crate") {
            self.foreign = !is_nvabi(&text(meta)?);
        } else if meta.input.peek(Token![=]) {
            meta.value()?.parse::<syn::Lit>()?;
        }
        Ok(())
    }
}

fn is_nvproxy(path: &syn::Path) -> bool {
    path.segments.last().is_some_and(|last| last.ident == DERIVE)
}

fn text(meta: &ParseNestedMeta<'_>) -> syn::Result<String> {
    Ok(meta.value()?.parse::<LitStr>()?.value())
}

/// `crate = "nvabi"` or `"::nvabi"` only say again what holds without it.
fn is_nvabi(path: &str) -> bool {
    path.trim_start_matches("::") == "nvabi"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> (Vec<String>, usize) {
        let found = of_text("src/a.rs", text).unwrap();
        (found.names.into_iter().map(|asked| asked.name).collect(), found.foreign)
    }

    #[test]
    fn takes_the_drivers_name_or_the_structs_own() {
        let text = r#"
            #[derive(Clone, nvabi::NvProxy)]
            #[nvproxy(flatten, driver = "550", name = "NVOS54_PARAMETERS")]
            #[repr(C)]
            struct Control { #[nvproxy(name = "hClient")] client: u32 }
            mod inner {
                #[derive(NvProxy)] pub union r#NvX { a: u32 }
            }
            fn f() {
                #[cfg_attr(feature = "check", derive(NvProxy), nvproxy(name = "NvHandle"))]
                struct Local(u32);
            }
            #[derive(Clone)]
            struct Other;
        "#;
        let wanted = ["NVOS54_PARAMETERS", "NvX", "NvHandle"].map(str::to_owned).to_vec();
        assert_eq!(names(text), (wanted, 0));
    }

    #[test]
    fn the_derive_is_found_under_another_name() {
        let text = r#"
            use nvabi::NvProxy as P;
            #[derive(P)] #[nvproxy(name = "NVOS64_PARAMETERS", driver = "550")] struct Alloc(u32);
        "#;
        assert_eq!(names(text), (vec!["NVOS64_PARAMETERS".to_owned()], 0));
    }

    #[test]
    fn macros_that_derive_are_told_of() {
        let of = |text: &str| of_text("src/a.rs", text).unwrap().macros;
        let made = "macro_rules! m { ($n:ident) => { #[derive(nvabi::NvProxy)] struct $n(u32); } }";
        assert_eq!(of(made), ["src/a.rs"]);
        assert_eq!(
            of("fn f() { wrap! { #[nvproxy(name = \"NvHandle\")] struct A(u32); } }"),
            ["src/a.rs"]
        );
        assert_eq!(of("thread_local! { static NVPROXY: u32 = 0; }"), [] as [&str; 0]);
    }

    #[test]
    fn another_table_is_counted_apart() {
        let text = r#"
            #[derive(NvProxy)] #[nvproxy(name = "drm_version", crate = "nvabi_pipeline::drm")] struct A(u32);
            #[derive(NvProxy)] #[nvproxy(name = "NvHandle", crate = "::nvabi")] struct B(u32);
        "#;
        assert_eq!(names(text), (vec!["NvHandle".to_owned()], 1));
    }

    #[test]
    fn a_name_stands_at_a_place() {
        let text = "#[derive(NvProxy)]\n#[nvproxy(name = \"NvHandle\")]\nstruct A(u32);\n";
        let found = of_text("src/a.rs", text).unwrap();
        let place = found.names[0].place.as_ref().unwrap();
        assert_eq!(
            (&text[place.span.clone()], place.line_and_column().as_str()),
            ("NvHandle", "src/a.rs:2:19")
        );
    }

    #[test]
    fn what_is_no_rust_is_named() {
        let complaint = of_text("src/a.rs", "struct {").unwrap_err();
        assert!(complaint.message.starts_with("cannot parse src/a.rs: "), "{complaint}");
    }
}
