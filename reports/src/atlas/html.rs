//! Text as HTML, and what every page has around its content.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Text that is shown as it is, in elements and in quoted attributes.
pub(crate) struct Esc<'a>(pub(crate) &'a str);

impl fmt::Display for Esc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

/// What a path keeps in a URL; everything else is percent-encoded.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');

/// A part of a URL's path.
pub(super) struct UrlPath<'a>(pub(super) &'a str);

impl fmt::Display for UrlPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        utf8_percent_encode(self.0, PATH).fmt(f)
    }
}

/// A document that is one file: the atlas's style, and nothing from elsewhere.
pub(crate) fn alone(title: &str, class: &str, body: &str) -> String {
    let (title, style) = (Esc(title), include_str!("style.css"));
    format!(
        "<!doctype html>\n<html lang=en><meta charset=utf-8>\
<meta name=viewport content=\"width=device-width\">\
<title>{title} · nvabi</title>\n<style>\n{style}</style>\n\
<body class={class}><main>\n{body}</main>\n"
    )
}

/// A document: `up` leads to the atlas's folder, `class` is the body's.
pub(super) fn document(title: &str, up: &str, class: &str, body: &str) -> String {
    let title = Esc(title);
    format!(
        "<!doctype html>\n<html lang=en><meta charset=utf-8>\
<meta name=viewport content=\"width=device-width\">\
<title>{title} · nvabi atlas</title>\n<link rel=stylesheet href={up}style.css>\n\
<body class={class}><header><a href={up}index.html>nvabi atlas</a>\
<form action={up}search.html role=search><input name=q type=search aria-label=Search \
placeholder=\"Search: struct, field, command, number\" autocomplete=off spellcheck=false></form>\
</header>\n<main>\n{body}</main>\n<script src={up}atlas.js></script>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_everything_that_means_something() {
        assert_eq!(Esc("a<b>&\"'c").to_string(), "a&lt;b&gt;&amp;&quot;&#39;c");
        assert_eq!(UrlPath("a b/c#d\"é.h").to_string(), "a%20b/c%23d%22%C3%A9.h");
    }
}
