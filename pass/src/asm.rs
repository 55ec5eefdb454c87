//! Inline assembly, as far as the pass has to understand it.

/// The text of a call that is assembly, and the list of its operands.
pub(crate) struct Assembly {
    pub(crate) text: String,
    pub(crate) constraints: String,
}

/// An instruction of it that all lanes execute which come there.
pub(crate) struct Statement {
    /// `atom.global.add.u32`.
    pub(crate) opcode: String,
    /// `$0, [$1], $2`.
    pub(crate) operands: String,
}

impl Assembly {
    /// What is executed whenever the assembly is: nothing under a predicate, nor anything where there are
    /// jumps.
    pub(crate) fn statements(&self) -> Vec<Statement> {
        let text = without_comments(&self.text);
        let mut statements = Vec::new();
        for statement in text.split(';') {
            let Some((guarded, statement)) = instruction(statement) else { continue };
            if statement.opcode.split('.').next() == Some("bra") {
                return Vec::new();
            }
            if !guarded {
                statements.push(statement);
            }
        }
        statements
    }

    /// Which of the call's results an operand is, and of how many.
    pub(crate) fn result(&self, operand: u32) -> Option<(u32, u32)> {
        // Outputs come first; an indirect one is written through a pointer and no result.
        let outputs = || self.constraints.split(',').take_while(|text| text.starts_with('='));
        let is_result = |text: &&str| !text.starts_with("=*");
        let own = outputs().nth(operand as usize)?;
        let before = outputs().take(operand as usize).filter(is_result).count();
        is_result(&own).then_some((before as u32, outputs().filter(is_result).count() as u32))
    }
}

fn without_comments(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        plain.push_str(&rest[..at]);
        plain.push(' ');
        let (end, length) = if rest[at..].starts_with("//") { ("\n", 1) } else { ("*/", 2) };
        let begun = &rest[at + 2..];
        rest = begun.find(end).map_or("", |at| &begun[at + length..]);
    }
    plain + rest
}

/// An instruction without what stands before it: braces, labels, and a predicate, which is told.
fn instruction(text: &str) -> Option<(bool, Statement)> {
    let mut rest = text.trim();
    let mut guarded = false;
    loop {
        rest = rest.trim_start_matches(['{', '}']).trim_start();
        let word = rest.split(char::is_whitespace).next()?;
        // A label ends with a colon, but for `::` inside an opcode.
        let label = word.find(':').filter(|at| !word[at + 1..].starts_with(':'));
        if word.starts_with('@') {
            guarded = true;
            rest = rest[word.len()..].trim_start();
        } else if let Some(at) = label.filter(|_| !word.contains('.')) {
            rest = rest[at + 1..].trim_start();
        } else {
            break;
        }
    }
    let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let statement = Statement { opcode: opcode.to_owned(), operands: operands.trim().to_owned() };
    (!opcode.is_empty()).then_some((guarded, statement))
}

/// The number of the operand that a statement names first: `$1`, `${1}`, or the first of a vector.
pub(crate) fn first_operand(operands: &str) -> Option<u32> {
    let first = operands.split(',').next()?.trim();
    let vector = first.strip_prefix('{').map_or(first, str::trim);
    let number = vector.strip_prefix('$')?.trim_start_matches('{');
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    let rest = number[end..].trim_end_matches('}');
    (rest.is_empty() || rest.starts_with(':')).then(|| number[..end].parse().ok())?
}
