//! Writes the code of a derive: the traits, and one constant for each thing that can be wrong, so
//! that each message is shown where its mistake is.
//!
//! Everything is inside `const _: () = { … }`, under names that start with `__nvproxy`, because
//! items are not hygienic: the user's types and array lengths are named in there too.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::LitStr;

use crate::attrs::{Flatten, Target, TargetField};

pub(crate) fn expand(target: &Target) -> TokenStream {
    let import = import(target);
    let constants = constants(target);
    let lookup = lookup_checks(target);
    let fields = target.fields.iter().enumerate().map(|(at, field)| field_check(at, field));
    let whole = struct_check(target);
    let impls = impls(target);
    quote_spanned! {Span::mixed_site()=>
        const _: () = {
            #import
            #constants
            #impls
            #lookup
            #(#fields)*
            #whole
        };
    }
}

/// Tokens that are shown at `span` but stay the macro's: lints of the user's crate leave them alone.
fn at(span: Span) -> Span {
    Span::mixed_site().located_at(span)
}

/// One `use`, so that a crate that cannot be found is one error.
fn import(target: &Target) -> TokenStream {
    let path = match &target.args.krate {
        Some(path) => quote!(#path),
        None => match family(target) {
            Some(family) => quote_spanned!(Span::call_site()=> ::nvabi::#family),
            None => quote_spanned!(Span::call_site()=> ::nvabi),
        },
    };
    quote_spanned! {Span::mixed_site()=>
        use #path::{ABI as __NVPROXY_ABI, check as __nvproxy_check};
    }
}

/// The module of nvabi for drivers whose names begin with a family: `tegra` for `tegra-r36`.
fn family(target: &Target) -> Option<syn::Ident> {
    let named = target.args.driver.as_ref().or(target.args.since.as_ref())?;
    let value = named.value();
    let (family, _) = value.split_once('-')?;
    // What is no such name is told when the driver is looked up.
    let family = syn::parse_str::<syn::Ident>(family).ok()?;
    (family == "tegra").then_some(family)
}

fn constants(target: &Target) -> TokenStream {
    let ident = target.ident;
    let name = driver_name(target);
    let driver = option(&target.args.driver);
    let since = option(&target.args.since);
    let how = how(target);
    quote_spanned! {Span::mixed_site()=>
        const __NVPROXY_QUERY: __nvproxy_check::Query =
            __nvproxy_check::Query { name: #name, driver: #driver, since: #since };
        const __NVPROXY_FOUND: ::core::option::Option<&'static __nvproxy_check::Layout> =
            __nvproxy_check::find(&__NVPROXY_ABI, &__NVPROXY_QUERY);
        const __NVPROXY_COMPARISON: __nvproxy_check::Comparison = __nvproxy_check::Comparison {
            own: <#ident as __nvproxy_check::NvProxy>::OWN,
            driver: __NVPROXY_FOUND,
            how: #how,
        };
        // Only where it is wrong is each part looked at by itself.
        const __NVPROXY_AGREES: ::core::primitive::bool =
            __nvproxy_check::agrees(&__NVPROXY_COMPARISON);
    }
}

fn how(target: &Target) -> TokenStream {
    let span = Span::mixed_site();
    let Some(flatten) = target.args.flatten else {
        return quote_spanned!(span=> __nvproxy_check::How::Strict);
    };
    let explicit = target.fields.iter().map(|field| field.explicit);
    let by_offset = flatten == Flatten::ByOffset;
    quote_spanned! {span=>
        __nvproxy_check::How::Flatten {
            explicit: const { &[#(#explicit),*] },
            by_offset: #by_offset,
        }
    }
}

fn driver_name(target: &Target) -> String {
    match &target.args.name {
        Some(name) => name.value(),
        None => own_name(target),
    }
}

fn own_name(target: &Target) -> String {
    syn::ext::IdentExt::unraw(target.ident).to_string()
}

fn option(text: &Option<LitStr>) -> TokenStream {
    let span = Span::mixed_site();
    match text.as_ref().map(LitStr::value) {
        Some(text) => quote_spanned!(span=> ::core::option::Option::Some(#text)),
        None => quote_spanned!(span=> ::core::option::Option::None),
    }
}

fn impls(target: &Target) -> TokenStream {
    let ident = target.ident;
    let name = own_name(target);
    let kind = if target.is_union { quote!(Union) } else { quote!(Struct) };
    let fields = target.fields.iter().map(|field| field_entry(target, field));
    quote_spanned! {Span::mixed_site()=>
        #[automatically_derived]
        impl __nvproxy_check::FieldType for #ident {
            const TYPE: __nvproxy_check::Type = __nvproxy_check::derived(
                __NVPROXY_FOUND,
                <Self as __nvproxy_check::NvProxy>::OWN,
            );
        }
        #[automatically_derived]
        impl __nvproxy_check::NvProxy for #ident {
            const NAME: &'static ::core::primitive::str = __NVPROXY_QUERY.name;
            const LAYOUT: &'static __nvproxy_check::Layout = __nvproxy_check::found_or(
                __NVPROXY_FOUND,
                <Self as __nvproxy_check::NvProxy>::OWN,
            );
            const OWN: &'static __nvproxy_check::Layout = const {
                &__nvproxy_check::Layout {
                    name: #name,
                    kind: __nvproxy_check::LayoutKind::#kind,
                    size: __nvproxy_check::bytes(::core::mem::size_of::<Self>()),
                    align: __nvproxy_check::bytes(::core::mem::align_of::<Self>()),
                    since: "",
                    source: "",
                    fields: const { &[#(#fields),*] },
                }
            };
        }
    }
}

fn field_entry(target: &Target, field: &TargetField) -> TokenStream {
    let ident = target.ident;
    let TargetField { member, ty, driver_name, .. } = field;
    let (place, spelled) = (format!("{}::{}", own_name(target), field.name), written(ty));
    let ty = quote_spanned!(at(field.span)=> __nvproxy_check::type_of::<#ty>(#place, #spelled));
    quote_spanned! {Span::mixed_site()=>
        __nvproxy_check::Field {
            name: #driver_name,
            offset: __nvproxy_check::bytes(::core::mem::offset_of!(#ident, #member)),
            ty: #ty,
        }
    }
}

/// A type as its author would write it: tokens in print have a space around each.
fn written(ty: &syn::Type) -> String {
    let spaced = quote!(#ty).to_string();
    let mut text = spaced.replace(" :: ", "::").replace(" ;", ";").replace(" ,", ",");
    for bracket in ["[", "<", "("] {
        text =
            text.replace(&format!("{bracket} "), bracket).replace(&format!(" {bracket}"), bracket);
    }
    for bracket in ["]", ">", ")"] {
        text = text.replace(&format!(" {bracket}"), bracket);
    }
    text
}

/// One check for each part of the query that is written out, shown there.
fn lookup_checks(target: &Target) -> TokenStream {
    let args = &target.args;
    let name = args.name.as_ref().map_or_else(|| target.ident.span(), LitStr::span);
    let name = lookup_check(name, &quote!(Name));
    let driver = args.driver.iter().map(|text| lookup_check(text.span(), &quote!(Driver)));
    let since = args.since.iter().map(|text| lookup_check(text.span(), &quote!(Since)));
    let tag = args.since.as_ref().or(args.driver.as_ref()).map(|text| tag_check(text.span()));
    quote!(#name #(#driver)* #(#since)* #tag)
}

/// Whether the struct is that of another tag than the one that is named.
fn tag_check(span: Span) -> TokenStream {
    quote_spanned! {at(span)=>
        const _: () = if !__NVPROXY_AGREES {
            __nvproxy_check::assert_tag(
                &__NVPROXY_ABI,
                &__NVPROXY_QUERY,
                &__NVPROXY_COMPARISON,
            );
        };
    }
}

fn lookup_check(span: Span, place: &TokenStream) -> TokenStream {
    quote_spanned! {at(span)=>
        const _: () = if __NVPROXY_FOUND.is_none() {
            __nvproxy_check::assert_found(
                &__NVPROXY_ABI,
                &__NVPROXY_QUERY,
                __nvproxy_check::QueryPart::#place,
            );
        };
    }
}

fn field_check(index: usize, field: &TargetField) -> TokenStream {
    let name = &field.name;
    quote_spanned! {at(field.span)=>
        const _: () = if !__NVPROXY_AGREES {
            __nvproxy_check::assert_field(&__NVPROXY_COMPARISON, #index, #name);
        };
    }
}

fn struct_check(target: &Target) -> TokenStream {
    quote_spanned! {at(target.ident.span())=>
        const _: () = if !__NVPROXY_AGREES {
            __nvproxy_check::assert_struct(&__NVPROXY_COMPARISON);
        };
    }
}
