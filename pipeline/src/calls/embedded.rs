//! The driver's own list of pointers in the parameters of control commands: which it follows, how
//! much lies behind each, and which way that is copied.
//!
//! The list is code: a `switch` over commands with one macro for each pointer, after which flags
//! leave out one of the two directions. The form of that code is all that is read here.

use crate::model::Embedded;

use super::{arguments, is_word, number, without_comments};

/// A command and its pointers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The name of its number.
    pub name: String,
    /// In the order of the list.
    pub pointers: Vec<Embedded>,
}

const FUNCTION: &str = "embeddedParamCopyIn(";
const INIT: &str = "RMAPI_PARAM_COPY_INIT(";

/// The commands of the list, in its order.
pub fn parse(text: &str) -> Vec<Command> {
    let text = without_comments(text);
    let Some(list) = body(&text, FUNCTION) else { return Vec::new() };
    let mut commands: Vec<Command> = Vec::new();
    let mut waiting: Vec<&str> = Vec::new();
    let labels = labels(list);
    for (i, (label, start)) in labels.iter().enumerate() {
        let end = labels.get(i + 1).map_or(list.len(), |(next, _)| *next);
        let Some((name, code)) = list[*start..end].split_once(':').filter(|_| label < start) else {
            waiting.clear();
            continue;
        };
        waiting.push(name.trim());
        // A label without code shares that of the next one.
        if code.trim().is_empty() {
            continue;
        }
        let pointers = pointers(&text, code);
        let with = |name: &str| Command { name: name.to_owned(), pointers: pointers.clone() };
        commands.extend(waiting.drain(..).map(with));
    }
    commands.retain(|command| !command.pointers.is_empty());
    commands
}

/// The text between the braces of a function's definition.
fn body<'t>(text: &'t str, function: &str) -> Option<&'t str> {
    let ends = |at: usize| text[..at].chars().next_back().is_none_or(|c| !is_word(c));
    let mut uses = text.match_indices(function).filter(|(at, _)| ends(*at));
    uses.find_map(|(at, _)| {
        let inside = at + function.len();
        let close = inside + closing(&text[inside..], '(', ')')?;
        let rest = text[close + 1..].trim_start();
        let rest = rest.strip_prefix('{')?;
        rest.get(..closing(rest, '{', '}')?)
    })
}

/// Where the bracket is closed that opened just before `text`.
fn closing(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0usize;
    text.char_indices().find_map(|(at, c)| {
        if c == close && depth == 0 {
            return Some(at);
        }
        if c == open {
            depth += 1;
        } else if c == close {
            depth -= 1;
        }
        None
    })
}

/// The labels of the outermost `switch`: where each starts and where its name does. Of `default`
/// both are one place.
fn labels(list: &str) -> Vec<(usize, usize)> {
    let (mut depth, mut found) = (0usize, Vec::new());
    for (at, c) in list.char_indices() {
        let word = |word: &str| {
            let before = list[..at].chars().next_back().is_none_or(|c| !is_word(c));
            before && list[at..].starts_with(word)
        };
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            'c' if depth == 1 && word("case ") => found.push((at, at + "case ".len())),
            'd' if depth == 1 && word("default") => found.push((at, at)),
            _ => {}
        }
    }
    found
}

/// The pointers of one command's code, and of the function that it may leave the work to.
fn pointers(text: &str, code: &str) -> Vec<Embedded> {
    let mut found = own_pointers(code);
    if found.is_empty() {
        let mut calls = code.match_indices("(paramCopies,");
        let helper = calls.find_map(|(at, _)| {
            let name = code[..at].rsplit(|c| !is_word(c)).next()?;
            body(text, &format!("{name}("))
        });
        found = helper.map(own_pointers).unwrap_or_default();
    }
    found
}

fn own_pointers(code: &str) -> Vec<Embedded> {
    // By the place in the driver's array, each with the directions that flags leave out.
    let mut found: Vec<(String, Embedded, [bool; 2])> = Vec::new();
    let mut at = 0;
    while let Some(next) = next(code, at) {
        at = next.end();
        match next {
            Next::Init { start, end } => {
                let Some((slot, embedded)) = embedded(&code[..start], &code[start..end]) else {
                    continue;
                };
                found.push((slot, embedded, [false; 2]));
            }
            Next::Flag { slot, direction, .. } => {
                let of = found.iter_mut().rev().find(|(known, ..)| known == slot);
                if let Some((_, _, skipped)) = of {
                    skipped[direction] = true;
                }
            }
        }
    }
    let directed = |(_, mut embedded, skipped): (String, Embedded, [bool; 2])| {
        embedded.direction = match skipped {
            [true, false] => "out",
            [false, true] => "in",
            // Flags that both stand there are set in turn.
            _ => "inout",
        }
        .to_owned();
        embedded
    };
    found.into_iter().map(directed).collect()
}

/// What matters next in a piece of code.
enum Next<'c> {
    /// The arguments of the macro.
    Init { start: usize, end: usize },
    /// `slot` is not copied in, or not out.
    Flag { slot: &'c str, direction: usize, end: usize },
}

impl Next<'_> {
    fn end(&self) -> usize {
        match self {
            Self::Init { end, .. } | Self::Flag { end, .. } => *end,
        }
    }
}

fn next(code: &str, from: usize) -> Option<Next<'_>> {
    let init = code[from..].find(INIT).map(|at| from + at + INIT.len());
    let flag = code[from..].find(".flags").map(|at| from + at);
    match (init, flag) {
        (Some(start), flag) if flag.is_none_or(|flag| start < flag) => {
            let end = start + closing(&code[start..], '(', ')')?;
            Some(Next::Init { start, end })
        }
        (_, Some(at)) => {
            let slot = code[..at].rsplit(char::is_whitespace).next()?;
            let end = code[at..].find(';').map_or(code.len(), |end| at + end);
            let direction = match &code[at..end] {
                set if set.contains("SKIP_COPYIN") => 0,
                set if set.contains("SKIP_COPYOUT") => 1,
                _ => return next(code, end),
            };
            Some(Next::Flag { slot, direction, end })
        }
        _ => None,
    }
}

/// Reads the macro's arguments: place, pointer for the kernel, pointer of the caller, count, size.
fn embedded(before: &str, text: &str) -> Option<(String, Embedded)> {
    let [slot, _, pointer, count, unit] = arguments(text)[..] else { return None };
    let field = fields(pointer).pop()?;
    let count = expression(before, count);
    let unit = unit.strip_prefix("sizeof(").and_then(|of| of.strip_suffix(')')).map_or_else(
        || number(unit).map_or("?".to_owned(), |n| n.to_string()),
        |of| of.trim().to_owned(),
    );
    let direction = String::new();
    Some((slot.trim().to_owned(), Embedded { field: field.to_owned(), count, unit, direction }))
}

/// A count: a number, or fields multiplied; `?` for anything else. A local variable is what was
/// assigned to it last.
fn expression(before: &str, text: &str) -> String {
    if let Some(number) = number(text.trim()) {
        return number.to_string();
    }
    if text.chars().all(is_word) {
        let assigned = format!("{text} = ");
        let values = before.match_indices(&assigned).filter_map(|(at, _)| {
            let value = &before[at + assigned.len()..];
            Some(value.split_once(';')?.0.trim()).filter(|value| number(value) != Some(0))
        });
        return values.last().map_or("?".to_owned(), |value| expression("", value));
    }
    let fields = fields(text);
    match fields.is_empty() || text.contains(['?', '+', '/']) {
        true => "?".to_owned(),
        false => fields.join("*"),
    }
}

/// The members that an expression names: what stands behind its arrows.
fn fields(text: &str) -> Vec<&str> {
    let member = |rest: &'_ str| rest.find(|c| !is_word(c) && c != '.').unwrap_or(rest.len());
    let named = text.split("->").skip(1).map(|rest| &rest[..member(rest)]);
    named.filter(|name| *name != "pParams").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<String> {
        let pointer = |p: &Embedded| format!("{}:{}:{}:{}", p.field, p.count, p.unit, p.direction);
        let line = |c: Command| {
            let pointers: Vec<String> = c.pointers.iter().map(pointer).collect();
            format!("{} {}", c.name, pointers.join(" "))
        };
        parse(text).into_iter().map(line).collect()
    }

    fn list(cases: &str) -> String {
        format!(
            "NV_STATUS embeddedParamCopyIn(A *paramCopies, B *p);\n\
             static X _own(RMAPI_PARAM_COPY *paramCopies, B *p) {{ switch (t) {{ case 1: {{\n\
             RMAPI_PARAM_COPY_INIT(paramCopies[0], q->u.a, q->u.a, q->u.n, 1);\n\
             if (w) paramCopies[0].flags |= SKIP_COPYOUT; else paramCopies[0].flags |= SKIP_COPYIN;\n\
             }} }} }}\n\
             NV_STATUS embeddedParamCopyIn(A *paramCopies, B *p) {{ switch (p->cmd) {{ {cases} \
             default: {{ RMAPI_PARAM_COPY_INIT(x, y->z, y->z, 1, 1); }} }} }}\n\
             NV_STATUS embeddedParamCopyOut(A *p) {{ switch (c) {{ case OUT: {{ }} }} }}"
        )
    }

    const INIT_A: &str =
        "RMAPI_PARAM_COPY_INIT(paramCopies[0], ((P*)pParams)->a, ((P*)pParams)->a,";

    #[test]
    fn counts_sizes_and_directions() {
        let cases = format!(
            "case BYTES: {{ {INIT_A} ((P*)p->pParams)->n, 1); break; }}\n\
             case OUT_ONLY: {{ {INIT_A} ((P*)pParams)->n, sizeof(T));\n\
             paramCopies[0].flags |= RMAPI_PARAM_COPY_FLAGS_SKIP_COPYIN;\n\
             paramCopies[0].flags |= RMAPI_PARAM_COPY_FLAGS_ZERO_BUFFER; break; }}\n\
             case TWO: {{ {INIT_A} 1, 0x10 /* a name */); // a comment\n\
             RMAPI_PARAM_COPY_INIT(paramCopies[1], x->b, x->b, x->m, sizeof(T));\n\
             paramCopies[0].flags |= RMAPI_PARAM_COPY_FLAGS_SKIP_COPYOUT; break; }}\n\
             case NONE: {{ break; }}"
        );
        assert_eq!(
            parsed(&list(&cases)),
            ["BYTES a:n:1:inout", "OUT_ONLY a:n:T:out", "TWO a:1:16:in b:m:T:inout",]
        );
    }

    #[test]
    fn local_variables_shared_code_and_helpers() {
        let cases = format!(
            "case SQUARE: {{ NvU32 n = 0; if (x) {{ n = ((P*)pParams)->c *\n((P*)pParams)->c; }}\n\
             {INIT_A} n, sizeof(NvU32)); break; }}\n\
             case ONE: case OTHER: {{ switch (k) {{ case INNER: break; }} {INIT_A} k, 1); break; }}\n\
             case CHOICE: {{ NvU32 s = x->y ? 1 : 2; {INIT_A} 1, s); break; }}\n\
             case HELPED: {{ if (!_own(paramCopies, p)) return s; break; }}"
        );
        assert_eq!(
            parsed(&list(&cases)),
            [
                "SQUARE a:c*c:NvU32:inout",
                "ONE a:?:1:inout",
                "OTHER a:?:1:inout",
                "CHOICE a:1:?:inout",
                "HELPED u.a:u.n:1:inout",
            ]
        );
    }

    #[test]
    fn text_of_another_form_is_no_list() {
        for text in ["", "int main() {}", "embeddedParamCopyIn(", "x embeddedParamCopyIn(y) {", "}"]
        {
            assert_eq!(parse(text), []);
        }
        assert_eq!(parsed(&list("case CUT: { RMAPI_PARAM_COPY_INIT(a, b }")), Vec::<String>::new());
    }
}
