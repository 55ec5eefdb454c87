//! The attribute `#[test]` of nvabi-test.

use proc_macro::{TokenStream, TokenTree};

/// Adds a function to the tests that `test_main!` runs.
///
/// It takes the place of the attribute of the standard library: `#[macro_use] extern crate nvabi_test;`
/// brings it into every module of a test target.
#[proc_macro_attribute]
pub fn test(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    let Some(name) = name_of(&item) else {
        return tokens("compile_error!(\"#[test] stands before a function\");");
    };
    let mut output = item;
    output.extend(tokens(&format!(
        "::nvabi_test::inventory::submit! {{ \
             ::nvabi_test::Test {{ module: module_path!(), name: {name:?}, run: {name} }} \
         }}"
    )));
    output
}

/// The identifier behind the first `fn`.
fn name_of(item: &TokenStream) -> Option<String> {
    let mut tokens = item.clone().into_iter();
    let is_fn =
        |token: &TokenTree| matches!(token, TokenTree::Ident(name) if name.to_string() == "fn");
    tokens.find(is_fn)?;
    Some(tokens.next()?.to_string())
}

fn tokens(text: &str) -> TokenStream {
    // The texts above are Rust whatever the name is, so there is nothing to report.
    text.parse().unwrap_or_default()
}
