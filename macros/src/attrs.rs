//! Reads a derive's input: the attributes and the shape of the struct. Collects every mistake
//! before it gives up.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Fields, Ident, LitStr, Member, Path, Type};

const STRUCT_KEYS: &str = "`name`, `driver`, `since`, `flatten`, `crate`";
const FIELD_KEYS: &str = "`name`";

/// A struct or union to check.
pub(crate) struct Target<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) is_union: bool,
    pub(crate) args: StructArgs,
    pub(crate) fields: Vec<TargetField<'a>>,
}

/// One of its fields.
pub(crate) struct TargetField<'a> {
    pub(crate) member: Member,
    pub(crate) ty: &'a Type,
    /// What the user calls it, without `r#`.
    pub(crate) name: String,
    /// What the driver calls it.
    pub(crate) driver_name: String,
    /// Whether the user gave that name.
    pub(crate) explicit: bool,
    pub(crate) span: Span,
}

/// `#[nvproxy(…)]` of the struct.
#[derive(Default)]
pub(crate) struct StructArgs {
    pub(crate) name: Option<LitStr>,
    pub(crate) driver: Option<LitStr>,
    pub(crate) since: Option<LitStr>,
    pub(crate) flatten: Option<Flatten>,
    pub(crate) krate: Option<Path>,
}

/// How leaves are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flatten {
    ByName,
    /// `flatten = "by_offset"`: only names that are given count.
    ByOffset,
}

/// The mistakes so far.
#[derive(Default)]
struct Mistakes(Option<Error>);

impl Mistakes {
    fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    fn say(&mut self, at: impl Spanned, text: impl std::fmt::Display) {
        self.add(Error::new(at.span(), text));
    }
}

/// Reads the input, or returns all its mistakes as one error.
pub(crate) fn read(input: &DeriveInput) -> Result<Target<'_>, Error> {
    let mut mistakes = Mistakes::default();
    check_repr(input, &mut mistakes);
    check_generics(input, &mut mistakes);
    let args = struct_args(&input.attrs, &mut mistakes);
    let fields = fields(input, &mut mistakes);
    // Flattened, the elements of an array have the same names.
    if args.flatten.is_none() {
        check_names(&fields, &mut mistakes);
    }
    match mistakes.0 {
        Some(error) => Err(error),
        None => Ok(Target {
            ident: &input.ident,
            is_union: matches!(input.data, Data::Union(_)),
            args,
            fields,
        }),
    }
}

fn check_repr(input: &DeriveInput, mistakes: &mut Mistakes) {
    if matches!(input.data, Data::Enum(_)) {
        return;
    }
    let mut fixed = false;
    for attr in input.attrs.iter().filter(|attr| attr.path().is_ident("repr")) {
        // What is wrong in a `repr` is for the compiler to say.
        let _ = attr.parse_nested_meta(|meta| {
            fixed |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            skip_argument(&meta)
        });
    }
    if !fixed {
        let name = &input.ident;
        mistakes.say(
            name,
            format_args!(
                "`{name}` has no fixed layout: rust may reorder its fields\nhelp: add #[repr(C)]"
            ),
        );
    }
}

/// Reads over the `(8)` of `align(8)`.
fn skip_argument(meta: &ParseNestedMeta) -> Result<(), Error> {
    if meta.input.peek(syn::token::Paren) {
        let content;
        syn::parenthesized!(content in meta.input);
        content.parse::<proc_macro2::TokenStream>()?;
    }
    Ok(())
}

fn check_generics(input: &DeriveInput, mistakes: &mut Mistakes) {
    if !input.generics.params.is_empty() {
        mistakes.say(
            &input.generics,
            format_args!(
                "`{}` is generic: its layout depends on its parameters\nhelp: derive NvProxy on a struct without parameters",
                input.ident
            ),
        );
    }
}

fn struct_args(attrs: &[Attribute], mistakes: &mut Mistakes) -> StructArgs {
    let mut args = StructArgs::default();
    each_key(attrs, STRUCT_KEYS, mistakes, |meta, mistakes| {
        let path = &meta.path;
        if path.is_ident("name") {
            text(meta, &mut args.name, mistakes)
        } else if path.is_ident("driver") {
            text(meta, &mut args.driver, mistakes)
        } else if path.is_ident("since") {
            text(meta, &mut args.since, mistakes)
        } else if path.is_ident("crate") {
            krate(meta, &mut args.krate, mistakes)
        } else if path.is_ident("flatten") {
            flatten(meta, &mut args.flatten, mistakes)
        } else {
            Ok(false)
        }
    });
    args
}

/// Calls `key` for every key of every `#[nvproxy(…)]`. It returns whether it knows the key.
fn each_key(
    attrs: &[Attribute],
    keys: &str,
    mistakes: &mut Mistakes,
    mut key: impl FnMut(&ParseNestedMeta, &mut Mistakes) -> Result<bool, Error>,
) {
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("nvproxy")) {
        let parsed = attr.parse_nested_meta(|meta| {
            if !key(&meta, mistakes)? {
                mistakes.say(
                    &meta.path,
                    format_args!("unknown key in #[nvproxy(…)]\nhelp: the keys here are {keys}"),
                );
                skip_value(&meta)?;
            }
            Ok(())
        });
        if let Err(error) = parsed {
            mistakes.add(error);
        }
    }
}

/// Reads over the value of an unknown key, so that the keys after it are read too.
fn skip_value(meta: &ParseNestedMeta) -> Result<(), Error> {
    if meta.input.peek(syn::Token![=]) {
        meta.value()?.parse::<syn::Lit>()?;
    }
    skip_argument(meta)
}

/// Reads `= "…"` into `slot`.
fn text(
    meta: &ParseNestedMeta,
    slot: &mut Option<LitStr>,
    mistakes: &mut Mistakes,
) -> Result<bool, Error> {
    let value: LitStr = meta.value()?.parse()?;
    if slot.is_some() {
        let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        mistakes.say(&meta.path, format_args!("`{key}` is given twice"));
    }
    if value.value().is_empty() {
        mistakes.say(&value, "the string is empty");
    }
    *slot = Some(value);
    Ok(true)
}

fn flatten(
    meta: &ParseNestedMeta,
    slot: &mut Option<Flatten>,
    mistakes: &mut Mistakes,
) -> Result<bool, Error> {
    if slot.is_some() {
        mistakes.say(&meta.path, "`flatten` is given twice");
    }
    let mut how = None;
    if meta.input.peek(syn::Token![=]) {
        text(meta, &mut how, mistakes)?;
    }
    *slot = Some(match how {
        None => Flatten::ByName,
        Some(how) => {
            if how.value() != "by_offset" {
                mistakes.say(&how, "expected `flatten` or `flatten = \"by_offset\"`");
            }
            Flatten::ByOffset
        }
    });
    Ok(true)
}

fn krate(
    meta: &ParseNestedMeta,
    slot: &mut Option<Path>,
    mistakes: &mut Mistakes,
) -> Result<bool, Error> {
    let mut value = None;
    text(meta, &mut value, mistakes)?;
    if slot.is_some() {
        mistakes.say(&meta.path, "`crate` is given twice");
    }
    if let Some(value) = value {
        match value.parse_with(Path::parse_mod_style) {
            Ok(path) => *slot = Some(path),
            Err(_) => mistakes.say(
                &value,
                "`crate` is no path\nhelp: name a module that has `check` and `ABI`, such as \"crate::drm\"",
            ),
        }
    }
    Ok(true)
}

fn fields<'a>(input: &'a DeriveInput, mistakes: &mut Mistakes) -> Vec<TargetField<'a>> {
    let name = &input.ident;
    let fields: Vec<_> = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Unnamed(fields) if fields.unnamed.len() > 1 => {
                mistakes.say(
                    name,
                    format_args!(
                        "`{name}` is a tuple struct: its fields have no names\nhelp: name them as the driver does"
                    ),
                );
                return Vec::new();
            }
            fields => fields.iter().collect(),
        },
        Data::Union(data) => data.fields.named.iter().collect(),
        Data::Enum(_) => {
            mistakes.say(
                name,
                format_args!(
                    "`{name}` is an enum: a driver may write any value to it\nhelp: derive NvProxy on a struct; a field that is an enum to the driver is `u32`"
                ),
            );
            return Vec::new();
        }
    };
    if fields.is_empty() {
        mistakes.say(name, format_args!("`{name}` has no fields"));
    }
    fields.into_iter().enumerate().map(|(at, field)| target_field(at, field, mistakes)).collect()
}

fn target_field<'a>(at: usize, field: &'a syn::Field, mistakes: &mut Mistakes) -> TargetField<'a> {
    let mut renamed = None;
    each_key(&field.attrs, FIELD_KEYS, mistakes, |meta, mistakes| {
        if meta.path.is_ident("name") { text(meta, &mut renamed, mistakes) } else { Ok(false) }
    });
    let (member, name, span) = match &field.ident {
        Some(ident) => (Member::Named(ident.clone()), ident.unraw().to_string(), ident.span()),
        None => (Member::from(at), at.to_string(), field.ty.span()),
    };
    let explicit = renamed.is_some();
    let driver_name = renamed.map_or_else(|| name.clone(), |renamed| renamed.value());
    TargetField { member, ty: &field.ty, name, driver_name, explicit, span }
}

/// Two fields cannot both be the driver's field of one name.
fn check_names(fields: &[TargetField], mistakes: &mut Mistakes) {
    let mut seen = std::collections::HashMap::new();
    for field in fields {
        if let Some(first) = seen.insert(&field.driver_name, &field.name) {
            let (name, twice) = (&field.name, &field.driver_name);
            mistakes.add(Error::new(
                field.span,
                format_args!("`{name}` and `{first}` are both the driver's `{twice}`"),
            ));
        }
    }
}
