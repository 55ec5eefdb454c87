//! As much of Go as constants, types and the building of tables take.
//!
//! A file is cut into declarations; bodies of functions stay tokens until somebody asks for their statements.
//! What is not understood is an error with its place: nothing is passed over that could matter.

use std::ops::Range;

use nvabi_pipeline::diagnostic::{Diagnostic, SourceSpan};

/// A file of Go.
#[derive(Debug, Clone)]
pub struct File {
    /// Its path, for people.
    pub path: String,
    /// What is in it.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenKind<'t> {
    Name(&'t str),
    Number(i128),
    Text(&'t str),
    Mark(&'t str),
    /// A semicolon, or the end of a line that ends a statement.
    End,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'t> {
    kind: TokenKind<'t>,
    at: usize,
}

/// A declaration at the top of a file.
pub(super) enum Declaration<'t> {
    /// The value may be that of an earlier line, with another `iota`.
    Constant {
        name: &'t str,
        value: Expression<'t>,
        iota: i128,
    },
    Type {
        name: &'t str,
        ty: Type<'t>,
    },
    Function {
        /// The name and type of a method's object.
        receiver: Option<(&'t str, &'t str)>,
        name: &'t str,
        body: Vec<Token<'t>>,
    },
}

/// What a type is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Type<'t> {
    /// Without the name of a package.
    Name(&'t str),
    Array(Box<Expression<'t>>, Box<Type<'t>>),
    Struct(Vec<Field<'t>>),
    /// A slice, a map, a pointer, a function, an interface: nothing that a driver is given.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field<'t> {
    /// For an embedded type its name.
    pub(super) name: &'t str,
    pub(super) ty: Type<'t>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expression<'t> {
    pub(super) kind: ExpressionKind<'t>,
    at: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExpressionKind<'t> {
    /// Parts between points: `nvgpu.NV01_ROOT` has two.
    Path(Vec<&'t str>),
    Number(i128),
    Text(&'t str),
    Unary(&'t str, Box<Expression<'t>>),
    Binary(&'t str, Box<Expression<'t>>, Box<Expression<'t>>),
    Call(Box<Expression<'t>>, Vec<Expression<'t>>),
    Index(Box<Expression<'t>>, Vec<Expression<'t>>),
    /// `T{…}`, with keys where they are written.
    Composite(Box<Expression<'t>>, Vec<(Option<Expression<'t>>, Expression<'t>)>),
    Function(Vec<Statement<'t>>),
    Type(Type<'t>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Statement<'t> {
    /// `a = b` or `a := b`.
    Assign(Expression<'t>, Expression<'t>),
    Expression(Expression<'t>),
    Return(Option<Expression<'t>>),
}

impl<'t> Expression<'t> {
    /// The last part of a path, which a package may stand before.
    pub(super) fn name(&self) -> Option<&'t str> {
        match &self.kind {
            ExpressionKind::Path(parts) => parts.last().copied(),
            _ => None,
        }
    }

    /// What is called, and with what.
    pub(super) fn call(&self) -> Option<(&Expression<'t>, &[Expression<'t>])> {
        match &self.kind {
            ExpressionKind::Call(function, arguments) => Some((function, arguments)),
            _ => None,
        }
    }
}

impl File {
    /// An error at a byte.
    fn error(&self, at: usize, message: impl Into<String>) -> Diagnostic {
        let rest = self.text.get(at..).unwrap_or_default();
        let len = rest.chars().next().map_or(0, char::len_utf8);
        let span: Range<usize> = at..at + len;
        let text = self.text.as_str().into();
        Diagnostic::error("coverage-go", message).at(SourceSpan {
            path: self.path.clone(),
            text,
            span,
        })
    }

    /// An error at an expression.
    pub(super) fn error_at(
        &self,
        expression: &Expression<'_>,
        message: impl Into<String>,
    ) -> Diagnostic {
        self.error(expression.at, message)
    }

    /// The declarations, in their order.
    pub(super) fn declarations(&self) -> Result<Vec<Declaration<'_>>, Diagnostic> {
        let tokens = self.tokens()?;
        Parser { file: self, tokens: &tokens, next: 0, depth: 0 }.declarations()
    }

    /// The statements of a function's body.
    pub(super) fn statements<'t>(
        &'t self,
        body: &[Token<'t>],
    ) -> Result<Vec<Statement<'t>>, Diagnostic> {
        Parser { file: self, tokens: body, next: 0, depth: 0 }.statements()
    }

    fn tokens(&self) -> Result<Vec<Token<'_>>, Diagnostic> {
        let mut tokens: Vec<Token<'_>> = Vec::new();
        let mut rest = self.text.as_str();
        while let Some(first) = rest.chars().next() {
            let at = self.text.len() - rest.len();
            let kind;
            let len;
            if first == '\n' {
                rest = &rest[1..];
                if tokens.last().is_some_and(ends_statement) {
                    tokens.push(Token { kind: TokenKind::End, at });
                }
                continue;
            } else if first.is_whitespace() {
                rest = &rest[first.len_utf8()..];
                continue;
            } else if rest.starts_with("//") {
                rest = rest.find('\n').map_or("", |end| &rest[end..]);
                continue;
            } else if rest.starts_with("/*") {
                let end = rest.find("*/").ok_or_else(|| self.error(at, "an open comment"))?;
                rest = &rest[end + 2..];
                continue;
            } else if first == '_' || first.is_alphabetic() {
                let is_part = |c: char| c == '_' || c.is_alphanumeric();
                len = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                kind = TokenKind::Name(&rest[..len]);
            } else if first.is_ascii_digit() {
                let is_part = |c: char| c == '_' || c == '.' || c.is_ascii_alphanumeric();
                len = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                let value = number(&rest[..len]);
                kind = TokenKind::Number(value.ok_or_else(|| self.error(at, "an integer"))?);
            } else if matches!(first, '"' | '`' | '\'') {
                let (inner, whole) =
                    quoted(rest, first).ok_or_else(|| self.error(at, "an open text"))?;
                len = whole;
                kind = match first {
                    '\'' => TokenKind::Number(
                        character(inner).ok_or_else(|| self.error(at, "expected one character"))?,
                    ),
                    _ => TokenKind::Text(inner),
                };
            } else if first == ';' {
                (kind, len) = (TokenKind::End, 1);
            } else {
                len = mark(rest);
                kind = TokenKind::Mark(&rest[..len]);
            }
            tokens.push(Token { kind, at });
            rest = &rest[len..];
        }
        Ok(tokens)
    }
}

/// Whether a line that ends so ends a statement.
fn ends_statement(token: &Token<'_>) -> bool {
    match token.kind {
        TokenKind::Name(_) | TokenKind::Number(_) | TokenKind::Text(_) => true,
        TokenKind::Mark(mark) => matches!(mark, ")" | "]" | "}" | "++" | "--"),
        TokenKind::End => false,
    }
}

fn number(text: &str) -> Option<i128> {
    let digits = text.replace('_', "").to_ascii_lowercase();
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x', ..] => (&digits[2..], 16),
        [b'0', b'b', ..] => (&digits[2..], 2),
        [b'0', b'o', ..] => (&digits[2..], 8),
        // A number that begins with 0 is octal, though `08` and `09` are versions nobody means so.
        [b'0', _, ..] if digits.bytes().all(|digit| matches!(digit, b'0'..=b'7')) => {
            (digits.as_str(), 8)
        }
        _ => (digits.as_str(), 10),
    };
    i128::from_str_radix(digits, radix).ok()
}

/// What is between quotes, and how many bytes that takes with them.
fn quoted(rest: &str, quote: char) -> Option<(&str, usize)> {
    let mut escaped = false;
    for (i, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quote != '`' => escaped = true,
            '\n' if quote != '`' => return None,
            c if c == quote => return Some((&rest[1..i], i + 1)),
            _ => {}
        }
    }
    None
}

fn character(inner: &str) -> Option<i128> {
    let mut chars = inner.chars();
    let first = chars.next()?;
    chars.next().is_none().then(|| i128::from(u32::from(first)))
}

/// How long the mark is that a text begins with.
fn mark(rest: &str) -> usize {
    let long = ["<<=", ">>=", "&^=", "...", "&&=", "||="];
    let two = [
        "<<", ">>", "&^", "&&", "||", "==", "!=", "<=", ">=", ":=", "++", "--", "+=", "-=", "*=",
        "/=", "%=", "&=", "|=", "^=", "<-",
    ];
    let starts = |marks: &[&str]| marks.iter().any(|mark| rest.starts_with(mark));
    match rest {
        _ if starts(&long) => 3,
        _ if starts(&two) => 2,
        _ => rest.chars().next().map_or(1, char::len_utf8),
    }
}

/// Types and expressions nested deeper than this do not occur; the parser's stack is bounded so.
const DEEPEST: usize = 32;

struct Parser<'p, 't> {
    file: &'t File,
    tokens: &'p [Token<'t>],
    next: usize,
    depth: usize,
}

impl<'t> Parser<'_, 't> {
    fn peek(&self) -> Option<TokenKind<'t>> {
        self.tokens.get(self.next).map(|token| token.kind)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.file.text.len(), |token| token.at)
    }

    fn is(&self, mark: &str) -> bool {
        self.peek() == Some(TokenKind::Mark(mark))
    }

    fn takes(&mut self, mark: &str) -> bool {
        let is = self.is(mark);
        self.next += usize::from(is);
        is
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is = self.peek() == Some(TokenKind::Name(word));
        self.next += usize::from(is);
        is
    }

    fn expected(&self, what: &str) -> Diagnostic {
        self.file.error(self.at(), format!("expected {what}"))
    }

    fn expect(&mut self, mark: &str) -> Result<(), Diagnostic> {
        match self.takes(mark) {
            true => Ok(()),
            false => Err(self.expected(&format!("`{mark}`"))),
        }
    }

    fn word(&mut self) -> Result<&'t str, Diagnostic> {
        match self.peek() {
            Some(TokenKind::Name(name)) => {
                self.next += 1;
                Ok(name)
            }
            _ => Err(self.expected("a name")),
        }
    }

    /// Whether anything follows the ends of statements.
    fn skip_ends(&mut self) -> bool {
        while self.peek() == Some(TokenKind::End) {
            self.next += 1;
        }
        self.peek().is_some()
    }

    /// Skips ends and takes a closing mark, if that follows.
    fn closes(&mut self, mark: &str) -> Result<bool, Diagnostic> {
        if !self.skip_ends() {
            return Err(self.expected(&format!("`{mark}`")));
        }
        Ok(self.takes(mark))
    }

    /// The tokens between an opening mark, which is next, and the one that closes it.
    fn enclosed(&mut self, open: &str, close: &str) -> Result<Vec<Token<'t>>, Diagnostic> {
        let begin = self.at();
        self.expect(open)?;
        let first = self.next;
        let mut depth = 1;
        while let Some(kind) = self.peek() {
            self.next += 1;
            match kind {
                TokenKind::Mark(mark) if mark == open => depth += 1,
                TokenKind::Mark(mark) if mark == close => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(self.tokens[first..self.next - 1].to_vec());
            }
        }
        Err(self.file.error(begin, format!("`{open}` without `{close}`")))
    }

    fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, Diagnostic>,
    ) -> Result<T, Diagnostic> {
        if self.depth == DEEPEST {
            return Err(self.file.error(self.at(), format!("nested {DEEPEST} deep")));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn statements(mut self) -> Result<Vec<Statement<'t>>, Diagnostic> {
        let mut statements = Vec::new();
        while self.skip_ends() {
            statements.push(self.statement()?);
        }
        Ok(statements)
    }

    fn declarations(mut self) -> Result<Vec<Declaration<'t>>, Diagnostic> {
        let mut found = Vec::new();
        while self.skip_ends() {
            match self.word()? {
                "package" => drop(self.word()?),
                "import" | "var" => self.pass_over()?,
                "const" => self.constants(&mut found)?,
                "type" => self.types(&mut found)?,
                "func" => found.push(self.function()?),
                _ => {
                    self.next -= 1;
                    return Err(self.expected("a declaration"));
                }
            }
        }
        Ok(found)
    }

    /// A declaration that says nothing of the driver.
    fn pass_over(&mut self) -> Result<(), Diagnostic> {
        while let Some(kind) = self.peek() {
            match kind {
                TokenKind::End => return Ok(()),
                TokenKind::Mark("(") => drop(self.enclosed("(", ")")?),
                TokenKind::Mark("{") => drop(self.enclosed("{", "}")?),
                _ => self.next += 1,
            }
        }
        Ok(())
    }

    /// One declaration, or several in parentheses.
    fn group(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), Diagnostic>,
    ) -> Result<(), Diagnostic> {
        if !self.takes("(") {
            return each(self);
        }
        while !self.closes(")")? {
            each(self)?;
        }
        Ok(())
    }

    fn constants(&mut self, found: &mut Vec<Declaration<'t>>) -> Result<(), Diagnostic> {
        let mut iota = 0;
        let mut before: Option<Expression<'t>> = None;
        self.group(|parser| {
            let name = parser.word()?;
            if !parser.is("=") && !matches!(parser.peek(), Some(TokenKind::End) | None) {
                parser.ty()?;
            }
            if parser.takes("=") {
                before = Some(parser.expression()?);
            }
            let value = before.clone().ok_or_else(|| parser.expected("`=`"))?;
            found.push(Declaration::Constant { name, value, iota });
            iota += 1;
            Ok(())
        })
    }

    fn types(&mut self, found: &mut Vec<Declaration<'t>>) -> Result<(), Diagnostic> {
        self.group(|parser| {
            let name = parser.word()?;
            parser.takes("=");
            // `type T[P any] struct`: a type that is made for others.
            if parser.is("[") && matches!(parser.tokens.get(parser.next + 2), Some(token) if matches!(token.kind, TokenKind::Name(_)))
            {
                parser.enclosed("[", "]")?;
            }
            found.push(Declaration::Type { name, ty: parser.ty()? });
            Ok(())
        })
    }

    fn function(&mut self) -> Result<Declaration<'t>, Diagnostic> {
        let mut receiver = None;
        if self.is("(") {
            let inside = self.enclosed("(", ")")?;
            let mut words = inside.iter().filter_map(|token| match token.kind {
                TokenKind::Name(name) => Some(name),
                _ => None,
            });
            receiver = words.next().zip(words.next());
        }
        let name = self.word()?;
        if self.is("[") {
            self.enclosed("[", "]")?;
        }
        self.enclosed("(", ")")?;
        self.results()?;
        let body = if self.is("{") { self.enclosed("{", "}")? } else { Vec::new() };
        Ok(Declaration::Function { receiver, name, body })
    }

    /// What a function gives, up to its body.
    fn results(&mut self) -> Result<(), Diagnostic> {
        match self.peek() {
            Some(TokenKind::Mark("(")) => self.enclosed("(", ")").map(drop),
            Some(TokenKind::Mark("{") | TokenKind::End) | None => Ok(()),
            _ => self.ty().map(drop),
        }
    }

    fn ty(&mut self) -> Result<Type<'t>, Diagnostic> {
        self.nested(Self::flat_type)
    }

    fn flat_type(&mut self) -> Result<Type<'t>, Diagnostic> {
        match self.peek() {
            Some(TokenKind::Mark("*")) => {
                self.next += 1;
                self.ty()?;
                Ok(Type::Other)
            }
            Some(TokenKind::Mark("[")) => {
                self.next += 1;
                if self.takes("]") {
                    self.ty()?;
                    return Ok(Type::Other);
                }
                let len = self.expression()?;
                self.expect("]")?;
                Ok(Type::Array(Box::new(len), Box::new(self.ty()?)))
            }
            Some(TokenKind::Name("map")) => {
                self.next += 1;
                self.enclosed("[", "]")?;
                self.ty()?;
                Ok(Type::Other)
            }
            Some(TokenKind::Name("struct")) => {
                self.next += 1;
                self.fields().map(Type::Struct)
            }
            Some(TokenKind::Name("interface")) => {
                self.next += 1;
                self.enclosed("{", "}")?;
                Ok(Type::Other)
            }
            Some(TokenKind::Name("func")) => {
                self.next += 1;
                self.enclosed("(", ")")?;
                self.results()?;
                Ok(Type::Other)
            }
            _ => {
                let mut name = self.word()?;
                while self.takes(".") {
                    name = self.word()?;
                }
                Ok(Type::Name(name))
            }
        }
    }

    fn fields(&mut self) -> Result<Vec<Field<'t>>, Diagnostic> {
        self.expect("{")?;
        let mut fields = Vec::new();
        while !self.closes("}")? {
            let mut names = vec![self.word()?];
            while self.takes(",") {
                names.push(self.word()?);
            }
            // `T` or `package.T` alone is embedded.
            let ty = match self.peek() {
                Some(TokenKind::End | TokenKind::Mark("}") | TokenKind::Text(_)) => {
                    Type::Name(names[0])
                }
                Some(TokenKind::Mark(".")) => {
                    self.next += 1;
                    names = vec![self.word()?];
                    Type::Name(names[0])
                }
                _ => self.ty()?,
            };
            // A tag.
            if matches!(self.peek(), Some(TokenKind::Text(_))) {
                self.next += 1;
            }
            fields.extend(names.into_iter().map(|name| Field { name, ty: ty.clone() }));
        }
        Ok(fields)
    }

    fn statement(&mut self) -> Result<Statement<'t>, Diagnostic> {
        if self.takes_word("return") {
            let ends = matches!(self.peek(), Some(TokenKind::End | TokenKind::Mark("}")) | None);
            return Ok(Statement::Return(if ends { None } else { Some(self.expression()?) }));
        }
        if let Some(TokenKind::Name(word @ ("if" | "for" | "switch" | "go" | "defer" | "var"))) =
            self.peek()
        {
            let message = format!("`{word}` is not followed: the table may be made in any way");
            return Err(self.file.error(self.at(), message));
        }
        let target = self.expression()?;
        if self.takes("=") || self.takes(":=") {
            return Ok(Statement::Assign(target, self.expression()?));
        }
        match self.peek() {
            Some(TokenKind::End | TokenKind::Mark("}")) | None => Ok(Statement::Expression(target)),
            _ => Err(self.expected("`=` or the end of a statement")),
        }
    }

    fn expression(&mut self) -> Result<Expression<'t>, Diagnostic> {
        self.binary(0)
    }

    fn binary(&mut self, lowest: u8) -> Result<Expression<'t>, Diagnostic> {
        let mut left = self.unary()?;
        let mut count = 0;
        while let Some(TokenKind::Mark(mark)) = self.peek() {
            let Some(binds) = precedence(mark).filter(|binds| *binds > lowest) else { break };
            self.next += 1;
            count += 1;
            self.bounded(count)?;
            let right = self.binary(binds)?;
            let at = left.at;
            let kind = ExpressionKind::Binary(mark, Box::new(left), Box::new(right));
            left = Expression { kind, at };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression<'t>, Diagnostic> {
        self.nested(Self::flat_unary)
    }

    fn flat_unary(&mut self) -> Result<Expression<'t>, Diagnostic> {
        let at = self.at();
        match self.peek() {
            Some(TokenKind::Mark(mark @ ("-" | "+" | "^" | "!" | "&" | "*"))) => {
                self.next += 1;
                let operand = Box::new(self.unary()?);
                Ok(Expression { kind: ExpressionKind::Unary(mark, operand), at })
            }
            _ => self.postfix(),
        }
    }

    fn postfix(&mut self) -> Result<Expression<'t>, Diagnostic> {
        let mut left = self.primary()?;
        for count in 0.. {
            self.bounded(count)?;
            let at = left.at;
            let kind = match self.peek() {
                Some(TokenKind::Mark("(")) => {
                    ExpressionKind::Call(Box::new(left), self.list("(", ")")?)
                }
                Some(TokenKind::Mark("[")) => {
                    ExpressionKind::Index(Box::new(left), self.list("[", "]")?)
                }
                Some(TokenKind::Mark("{")) if is_type(&left) => {
                    ExpressionKind::Composite(Box::new(left), self.elements()?)
                }
                _ => break,
            };
            left = Expression { kind, at };
        }
        Ok(left)
    }

    /// Each operator puts what is before it one deeper.
    fn bounded(&self, count: usize) -> Result<(), Diagnostic> {
        match count > 2 * DEEPEST {
            true => Err(self.file.error(self.at(), "too many operators in one expression")),
            false => Ok(()),
        }
    }

    fn primary(&mut self) -> Result<Expression<'t>, Diagnostic> {
        let at = self.at();
        let kind = match self.peek() {
            Some(TokenKind::Number(value)) => {
                self.next += 1;
                ExpressionKind::Number(value)
            }
            Some(TokenKind::Text(text)) => {
                self.next += 1;
                ExpressionKind::Text(text)
            }
            Some(TokenKind::Mark("(")) => {
                self.next += 1;
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Some(TokenKind::Name("func")) => {
                self.next += 1;
                self.enclosed("(", ")")?;
                self.results()?;
                let body = self.enclosed("{", "}")?;
                let (file, depth) = (self.file, self.depth);
                let body = Parser { file, tokens: &body, next: 0, depth }.statements()?;
                ExpressionKind::Function(body)
            }
            Some(TokenKind::Mark("[") | TokenKind::Name("map" | "struct" | "interface")) => {
                ExpressionKind::Type(self.ty()?)
            }
            _ => {
                let mut parts = vec![self.word()?];
                while self.takes(".") {
                    parts.push(self.word()?);
                }
                ExpressionKind::Path(parts)
            }
        };
        Ok(Expression { kind, at })
    }

    fn list(&mut self, open: &str, close: &str) -> Result<Vec<Expression<'t>>, Diagnostic> {
        self.expect(open)?;
        let mut found = Vec::new();
        while !self.closes(close)? {
            found.push(self.expression()?);
            self.takes("...");
            if !self.takes(",") && !self.is(close) {
                return Err(self.expected(&format!("`,` or `{close}`")));
            }
        }
        Ok(found)
    }

    fn elements(&mut self) -> Result<Vec<(Option<Expression<'t>>, Expression<'t>)>, Diagnostic> {
        self.expect("{")?;
        let mut found = Vec::new();
        while !self.closes("}")? {
            let first = self.expression()?;
            found.push(match self.takes(":") {
                true => (Some(first), self.expression()?),
                false => (None, first),
            });
            if !self.takes(",") && !self.is("}") {
                return Err(self.expected("`,` or `}`"));
            }
        }
        Ok(found)
    }
}

/// The field in the `return object.Field` of a body, whatever it is converted to.
pub(super) fn field_of<'t>(body: &[Token<'t>], object: &str) -> Option<&'t str> {
    body.windows(3).find_map(|three| match (three[0].kind, three[1].kind, three[2].kind) {
        (TokenKind::Name(name), TokenKind::Mark("."), TokenKind::Name(field)) => {
            (name == object).then_some(field)
        }
        _ => None,
    })
}

/// What may stand before the braces of a value.
fn is_type(expression: &Expression<'_>) -> bool {
    matches!(expression.kind, ExpressionKind::Path(_) | ExpressionKind::Type(_))
}

fn precedence(mark: &str) -> Option<u8> {
    Some(match mark {
        "||" => 1,
        "&&" => 2,
        "==" | "!=" | "<" | "<=" | ">" | ">=" => 3,
        "+" | "-" | "|" | "^" => 4,
        "*" | "/" | "%" | "<<" | ">>" | "&" | "&^" => 5,
        _ => return None,
    })
}
