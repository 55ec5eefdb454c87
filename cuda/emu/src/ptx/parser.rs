//! Tokens into a [`Module`].

use super::lexer::{Token, tokens};
use super::{
    Function, Init, Instruction, Linkage, Loc, Module, Operand, Space, Statement, Variable,
};
use crate::error::{LoadError, load_error};

/// Reads a module.
pub(crate) fn parse(text: &str) -> Result<Module<'_>, LoadError> {
    let tokens = tokens(text)?;
    Parser { tokens, at: 0, loc: Loc::default() }.module()
}

struct Parser<'a> {
    tokens: Vec<(Token<'a>, u32)>,
    at: usize,
    loc: Loc,
}

/// The deepest nesting of operands and blocks that is read.
const DEPTH: usize = 64;

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|(token, _)| *token)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |(_, line)| *line)
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn error<T>(&self, wanted: &str) -> Result<T, LoadError> {
        let found = match self.peek() {
            None => "the end".to_owned(),
            Some(Token::Word(word)) => format!("`{word}`"),
            Some(Token::Number(value)) => format!("`{value}`"),
            Some(Token::Text(text)) => format!("\"{text}\""),
            Some(Token::Mark(mark)) => format!("`{}`", char::from(mark)),
        };
        Err(load_error(self.line(), format!("expected {wanted}, found {found}")))
    }

    fn eat(&mut self, mark: u8) -> bool {
        let found = self.peek() == Some(Token::Mark(mark));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, mark: u8) -> Result<(), LoadError> {
        if self.eat(mark) { Ok(()) } else { self.error(&format!("`{}`", char::from(mark))) }
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(Token::Word(word));
        self.at += usize::from(found);
        found
    }

    fn word(&mut self) -> Result<&'a str, LoadError> {
        match self.peek() {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            _ => self.error("a name"),
        }
    }

    fn number(&mut self) -> Result<u64, LoadError> {
        let minus = self.eat(b'-');
        match self.peek() {
            Some(Token::Number(value)) => {
                self.at += 1;
                Ok(if minus { value.wrapping_neg() } else { value })
            }
            _ => self.error("a number"),
        }
    }

    fn module(mut self) -> Result<Module<'a>, LoadError> {
        let mut module = Module::default();
        while let Some(token) = self.peek() {
            match token {
                Token::Mark(b';') => self.at += 1,
                Token::Word(".version") => self.skip_line(),
                Token::Word(".target") => self.skip_line(),
                Token::Word(".address_size") => self.address_size()?,
                Token::Word(".file") => module.files.push(self.file()?),
                Token::Word(".loc") => self.loc()?,
                Token::Word(".section") => self.section()?,
                Token::Word(".pragma" | ".alias") => self.skip_statement(),
                Token::Word(_) => self.declaration(&mut module)?,
                _ => return self.error("a directive"),
            }
        }
        Ok(module)
    }

    fn skip_line(&mut self) {
        let line = self.line();
        while self.peek().is_some() && self.line() == line {
            self.at += 1;
        }
    }

    fn skip_statement(&mut self) {
        while self.next().is_some_and(|token| token != Token::Mark(b';')) {}
    }

    fn address_size(&mut self) -> Result<(), LoadError> {
        self.at += 1;
        let line = self.line();
        match self.number()? {
            64 => Ok(()),
            other => Err(load_error(line, format!("addresses have {other} bits, not 64"))),
        }
    }

    fn file(&mut self) -> Result<(u32, &'a str), LoadError> {
        self.at += 1;
        let number = self.number()? as u32;
        let Some(Token::Text(path)) = self.peek() else { return self.error("a path") };
        self.at += 1;
        // An optional time and size.
        while self.eat(b',') {
            self.number()?;
        }
        Ok((number, path))
    }

    fn loc(&mut self) -> Result<(), LoadError> {
        self.at += 1;
        let line = self.line();
        self.loc = Loc {
            file: self.number()? as u32,
            line: self.number()? as u32,
            column: self.number()? as u32,
        };
        // `, function_name NAME, inlined_at …` ends with the line.
        while self.peek().is_some() && self.line() == line {
            self.at += 1;
        }
        Ok(())
    }

    fn section(&mut self) -> Result<(), LoadError> {
        self.at += 1;
        self.word()?;
        self.expect(b'{')?;
        while !self.eat(b'}') {
            if self.next().is_none() {
                return self.error("`}`");
            }
        }
        Ok(())
    }

    /// A variable or function of the module.
    fn declaration(&mut self, module: &mut Module<'a>) -> Result<(), LoadError> {
        let mut linkage = Linkage::Local;
        loop {
            match self.peek() {
                Some(Token::Word(".extern")) => linkage = Linkage::Extern,
                Some(Token::Word(".visible")) => linkage = Linkage::Visible,
                Some(Token::Word(".weak" | ".common")) => linkage = Linkage::Weak,
                Some(Token::Word(".entry")) => {
                    module.functions.push(self.function(true, linkage)?);
                    return Ok(());
                }
                Some(Token::Word(".func")) => {
                    module.functions.push(self.function(false, linkage)?);
                    return Ok(());
                }
                Some(Token::Word(word)) => match space(word) {
                    Some(space) => {
                        let variable = self.variable(space, linkage)?;
                        module.variables.push(variable);
                        return self.expect(b';');
                    }
                    None => return self.error("a directive of PTX"),
                },
                _ => return self.error("a directive"),
            }
            self.at += 1;
        }
    }

    /// From the state space to before the `;`, `,` or `)`.
    fn variable(&mut self, space: Space, linkage: Linkage) -> Result<Variable<'a>, LoadError> {
        self.at += 1;
        let line = self.line();
        let (mut align, mut width) = (0, None);
        loop {
            let word = self.word()?;
            match word {
                ".align" => align = self.number()?,
                ".ptr" | ".const" | ".global" | ".shared" | ".local" => {}
                ".v2" => width = Some(2),
                ".v4" => width = Some(4),
                _ if word.starts_with('.') => {
                    let Some(bits) = type_bits(word) else {
                        return Err(load_error(line, format!("`{word}` is no type")));
                    };
                    width = Some(width.unwrap_or(1) * u64::from(bits.div_ceil(8)));
                }
                name => {
                    let Some(width) = width else {
                        return Err(load_error(line, format!("`{name}` has no type")));
                    };
                    let mut variable = Variable {
                        name,
                        space,
                        align: if align == 0 { width } else { align },
                        width,
                        size: width,
                        linkage,
                        init: Vec::new(),
                        line,
                    };
                    if !variable.align.is_power_of_two() || variable.align > 1 << 16 {
                        return Err(load_error(line, format!("alignment {align}")));
                    }
                    self.array(&mut variable)?;
                    return Ok(variable);
                }
            }
        }
    }

    /// `[n][m]` and `= …` after the name.
    fn array(&mut self, variable: &mut Variable<'a>) -> Result<(), LoadError> {
        let line = self.line();
        while self.eat(b'[') {
            let count = if self.peek() == Some(Token::Mark(b']')) { 0 } else { self.number()? };
            self.expect(b']')?;
            variable.size = variable
                .size
                .checked_mul(count)
                .filter(|size| *size < 1 << 40)
                .ok_or_else(|| load_error(line, format!("`{}` is too large", variable.name)))?;
        }
        if self.eat(b'=') {
            self.init(&mut variable.init, 0)?;
        }
        Ok(())
    }

    fn init(&mut self, out: &mut Vec<Init<'a>>, depth: usize) -> Result<(), LoadError> {
        if depth > DEPTH {
            return self.error("less nesting");
        }
        if self.eat(b'{') {
            while !self.eat(b'}') {
                self.init(out, depth + 1)?;
                self.eat(b',');
            }
            return Ok(());
        }
        if let Some(Token::Word(word)) = self.peek() {
            self.at += 1;
            let name = if word == "generic" {
                self.expect(b'(')?;
                let name = self.word()?;
                self.expect(b')')?;
                name
            } else {
                word
            };
            let offset = self.offset()?;
            out.push(Init::Symbol { name, offset });
        } else {
            out.push(Init::Value(self.number()?));
        }
        Ok(())
    }

    /// `+ n` or `- n`, if there is one.
    fn offset(&mut self) -> Result<i64, LoadError> {
        if self.eat(b'+') || self.peek() == Some(Token::Mark(b'-')) {
            return Ok(self.number()? as i64);
        }
        Ok(0)
    }

    fn parameters(&mut self) -> Result<Vec<Variable<'a>>, LoadError> {
        let mut out = Vec::new();
        if !self.eat(b'(') {
            return Ok(out);
        }
        while !self.eat(b')') {
            match self.peek() {
                Some(Token::Word(".param" | ".reg")) => {
                    out.push(self.variable(Space::Param, Linkage::Local)?);
                }
                _ => return self.error("`.param`"),
            }
            self.eat(b',');
        }
        Ok(out)
    }

    fn function(&mut self, entry: bool, linkage: Linkage) -> Result<Function<'a>, LoadError> {
        self.at += 1;
        let line = self.line();
        let results = if entry { Vec::new() } else { self.parameters()? };
        let name = self.word()?;
        let params = self.parameters()?;
        let mut function = Function {
            name,
            linkage,
            entry,
            defined: false,
            results,
            params,
            max_threads: None,
            body: Vec::new(),
            line,
        };
        self.loc = Loc::default();
        loop {
            match self.peek() {
                Some(Token::Mark(b';')) => {
                    self.at += 1;
                    return Ok(function);
                }
                Some(Token::Mark(b'{')) => {
                    self.at += 1;
                    function.defined = true;
                    self.body(&mut function.body)?;
                    return Ok(function);
                }
                Some(Token::Word(".maxntid" | ".reqntid")) => {
                    self.at += 1;
                    let mut threads = self.number()?;
                    while self.eat(b',') {
                        threads = threads.saturating_mul(self.number()?);
                    }
                    function.max_threads = Some(threads);
                }
                Some(Token::Word(word)) if word.starts_with('.') => {
                    // .noreturn, .minnctapersm 2, .maxnreg 32 …
                    self.at += 1;
                    while matches!(self.peek(), Some(Token::Number(_) | Token::Mark(b','))) {
                        self.at += 1;
                    }
                }
                _ => return self.error("a function's body"),
            }
        }
    }

    fn body(&mut self, out: &mut Vec<Statement<'a>>) -> Result<(), LoadError> {
        let mut depth = 0;
        loop {
            match self.peek() {
                Some(Token::Mark(b';')) => self.at += 1,
                Some(Token::Mark(b'{')) => {
                    self.at += 1;
                    depth += 1;
                    out.push(Statement::Open);
                }
                Some(Token::Mark(b'}')) => {
                    self.at += 1;
                    if depth == 0 {
                        return Ok(());
                    }
                    depth -= 1;
                    out.push(Statement::Close);
                }
                Some(Token::Mark(b'@')) => {
                    self.at += 1;
                    let negated = self.eat(b'!');
                    let guard = Some((self.word()?, negated));
                    let opcode = self.word()?;
                    out.push(self.instruction(guard, opcode)?);
                }
                Some(Token::Word(".loc")) => self.loc()?,
                Some(Token::Word(".pragma")) => self.pragma(out),
                Some(Token::Word(".reg")) => self.registers(out)?,
                Some(Token::Word(word)) if space(word).is_some() => {
                    let Some(space) = space(word) else { continue };
                    out.push(Statement::Variable(self.variable(space, Linkage::Local)?));
                    self.expect(b';')?;
                }
                Some(Token::Word(word)) => {
                    self.at += 1;
                    if self.eat(b':') {
                        self.label(word, out)?;
                    } else {
                        out.push(self.instruction(None, word)?);
                    }
                }
                _ => return self.error("a statement"),
            }
        }
    }

    /// `.pragma "used_bytes_mask 0xfff";` or any other, which says nothing about what a program does.
    fn pragma(&mut self, out: &mut Vec<Statement<'a>>) {
        while let Some(token) = self.next().filter(|token| *token != Token::Mark(b';')) {
            let Token::Text(text) = token else { continue };
            let Some(mask) = text.trim().strip_prefix("used_bytes_mask") else { continue };
            let mask = mask.trim();
            let value = match mask.strip_prefix("0x").or(mask.strip_prefix("0X")) {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => mask.parse(),
            };
            out.extend(value.ok().map(Statement::UsedBytes));
        }
    }

    fn registers(&mut self, out: &mut Vec<Statement<'a>>) -> Result<(), LoadError> {
        self.at += 1;
        let line = self.line();
        let kind = self.word()?;
        if type_bits(kind).is_none() {
            return Err(load_error(line, format!("`{kind}` is no type of registers")));
        }
        loop {
            let name = self.word()?;
            let mut count = None;
            if self.eat(b'<') {
                count = Some(self.number()?.min(1 << 24) as u32);
                self.expect(b'>')?;
            }
            out.push(Statement::Registers { name, count, predicates: kind == ".pred" });
            if !self.eat(b',') {
                return self.expect(b';');
            }
        }
    }

    fn label(&mut self, name: &'a str, out: &mut Vec<Statement<'a>>) -> Result<(), LoadError> {
        if self.eat_word(".branchtargets") {
            let mut labels = vec![self.word()?];
            while self.eat(b',') {
                labels.push(self.word()?);
            }
            self.expect(b';')?;
            out.push(Statement::Targets { name, labels });
        } else if self.eat_word(".callprototype") {
            self.skip_statement();
            out.push(Statement::Prototype { name });
        } else {
            out.push(Statement::Label(name));
        }
        Ok(())
    }

    fn instruction(
        &mut self,
        guard: Option<(&'a str, bool)>,
        opcode: &'a str,
    ) -> Result<Statement<'a>, LoadError> {
        let line = self.tokens.get(self.at - 1).map_or(1, |(_, line)| *line);
        let mut operands = Vec::new();
        while !self.eat(b';') {
            let operand = self.operand(0).and_then(|operand| {
                let more = self.eat(b',') || self.peek() == Some(Token::Mark(b';'));
                if more { Ok(operand) } else { self.error("`,` or `;`") }
            });
            operands.push(
                operand.map_err(|error| {
                    load_error(error.line, format!("`{opcode}`: {}", error.what))
                })?,
            );
        }
        let loc = self.loc;
        Ok(Statement::Instruction(Instruction { guard, opcode, operands, line, loc }))
    }

    fn operand(&mut self, depth: usize) -> Result<Operand<'a>, LoadError> {
        if depth > DEPTH {
            return self.error("less nesting");
        }
        let operand = match self.peek() {
            Some(Token::Mark(b'{')) => Operand::Vector(self.list(b'}', depth)?),
            Some(Token::Mark(b'(')) => Operand::List(self.list(b')', depth)?),
            Some(Token::Mark(b'[')) => {
                self.at += 1;
                let base = self.operand(depth + 1)?;
                let (base, offset) = match base {
                    Operand::Name(name, offset) => (Operand::Name(name, 0), offset),
                    other => {
                        let offset = self.offset()?;
                        (other, offset)
                    }
                };
                // Textures and matrices have addresses of several parts.
                let mut parts = vec![base];
                while self.eat(b',') {
                    parts.push(self.operand(depth + 1)?);
                }
                self.expect(b']')?;
                let base = if parts.len() > 1 { Operand::Vector(parts) } else { parts.remove(0) };
                Operand::Address(Box::new(base), offset)
            }
            Some(Token::Mark(b'!')) => {
                self.at += 1;
                Operand::Not(self.word()?)
            }
            Some(Token::Word(word))
                if self.tokens.get(self.at + 1).is_some_and(|next| next.0 == Token::Mark(b'[')) =>
            {
                self.at += 2;
                let index = self.number()?;
                self.expect(b']')?;
                Operand::Element(word, index)
            }
            Some(Token::Word(word)) => {
                self.at += 1;
                let offset = self.offset()?;
                Operand::Name(word, offset)
            }
            _ => Operand::Immediate(self.number()?),
        };
        if self.eat(b'|') {
            let second = self.operand(depth + 1)?;
            return Ok(Operand::Pair(Box::new(operand), Box::new(second)));
        }
        Ok(operand)
    }

    fn list(&mut self, end: u8, depth: usize) -> Result<Vec<Operand<'a>>, LoadError> {
        self.at += 1;
        let mut out = Vec::new();
        while !self.eat(end) {
            out.push(self.operand(depth + 1)?);
            self.eat(b',');
        }
        Ok(out)
    }
}

fn space(word: &str) -> Option<Space> {
    Some(match word {
        ".global" => Space::Global,
        ".const" => Space::Const,
        ".shared" => Space::Shared,
        ".local" => Space::Local,
        ".param" => Space::Param,
        _ => return None,
    })
}

/// The bits of a type such as `.b32`; 1 for predicates.
fn type_bits(word: &str) -> Option<u32> {
    Some(match word {
        ".pred" => 1,
        ".b8" | ".u8" | ".s8" => 8,
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => 16,
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" => 32,
        ".b64" | ".u64" | ".s64" | ".f64" => 64,
        ".b128" => 128,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Vec<Statement<'_>> {
        parse(text).unwrap().functions.remove(0).body
    }

    #[test]
    fn a_kernel_is_read_with_its_parameters_and_places() {
        let module = parse(
            ".version 8.3\n.target sm_80, debug\n.address_size 64\n.file 1 \"a.cu\"\n\
             .visible .entry k(.param .u64 k_param_0, .param .align 8 .b8 k_param_1[16])\n\
             .maxntid 16, 4, 1\n{\n.reg .pred %p<2>;\n.loc 1 7 3\n@!%p1 bra $L;\n$L: ret;\n}\n",
        )
        .unwrap();
        let kernel = &module.functions[0];
        assert_eq!((kernel.name, kernel.entry, kernel.max_threads), ("k", true, Some(64)));
        assert_eq!(kernel.params[1].size, 16);
        assert_eq!(module.files, [(1, "a.cu")]);
        let Statement::Instruction(branch) = &kernel.body[1] else { panic!() };
        assert_eq!(branch.guard, Some(("%p1", true)));
        assert_eq!((branch.line, branch.loc.line, branch.loc.column), (10, 7, 3));
    }

    #[test]
    fn operands_are_read_in_every_form() {
        let body = body(
            ".func f() { ld.global.v2.u32 {%r1, _}, [%rd1+-8]; setp.eq.s32 %p1|%p2, -1, x+4;\n\
             call.uni (retval0), g, (param0, param1); ld.global.L1::no_allocate.u32 %r1, [16]; }",
        );
        let operands: Vec<_> = body
            .iter()
            .map(|s| match s {
                Statement::Instruction(i) => (i.opcode, i.operands.clone()),
                _ => panic!(),
            })
            .collect();
        let name = |name| Operand::Name(name, 0);
        assert_eq!(operands[0].1[1], Operand::Address(Box::new(name("%rd1")), -8));
        assert_eq!(operands[0].1[0], Operand::Vector(vec![name("%r1"), name("_")]));
        assert_eq!(operands[1].1[1], Operand::Immediate(u64::MAX));
        assert_eq!(operands[1].1[2], Operand::Name("x", 4));
        assert_eq!(operands[2].1[2], Operand::List(vec![name("param0"), name("param1")]));
        assert_eq!(operands[3].0, "ld.global.L1::no_allocate.u32");
    }

    #[test]
    fn variables_keep_their_initialisers() {
        let module = parse(
            ".global .align 4 .u32 a[2] = {1, -2};\n.const .align 8 .u64 p = generic(a)+4;\n\
             .extern .shared .align 16 .b8 dyn[];",
        )
        .unwrap();
        let [a, p, dynamic] = &module.variables[..] else { panic!() };
        assert_eq!((a.size, a.width, a.init.len()), (8, 4, 2));
        assert!(matches!(p.init[0], Init::Symbol { name: "a", offset: 4 }));
        assert_eq!((dynamic.size, dynamic.linkage), (0, Linkage::Extern));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line, what) in [
            (".address_size 32", 1, "addresses have 32 bits"),
            (".entry k() {\n add.s32 %r1 %r2;\n}", 2, "expected `,` or `;`"),
            (".entry k() {\n", 1, "expected a statement, found the end"),
            (".global .x32 a;", 1, "`.x32` is no type"),
            ("\nfoo", 2, "expected a directive of PTX"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.what.contains(what), "{error}");
        }
    }
}
