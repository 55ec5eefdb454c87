//! The site table: `nvabi_trace_sites` of `nvabi_trace.h`, then a `nvabi_trace_site` each, then their texts.

use std::collections::HashMap;
use std::path::PathBuf;

use inkwell::module::Module;
use nvabi_trace::abi::r2::{NVABI_TRACE_KIND_SHIFT, NVABI_TRACE_SITE};
use nvabi_trace::records::{self, Site};
use zerocopy::IntoBytes as _;

use crate::Failure;
use crate::debug::{self, Frame};
use crate::options::{Kind, Options};
use crate::paths::{is_toolkit, normal, plain_name, shown, without_unit};

/// Sites that an event can name.
const MOST: usize = NVABI_TRACE_SITE as usize + 1;

/// What distinguishes a site from the others in every build; its key is a hash of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SiteIdentity {
    kind: Kind,
    file: String,
    function: String,
    inlined: String,
    line: u32,
    column: u32,
}

pub(crate) struct Sites {
    here: PathBuf,
    root: PathBuf,
    main: String,
    entries: Vec<u8>,
    count: u32,
    strings: Strings,
    ordinals: HashMap<SiteIdentity, u16>,
}

impl Sites {
    pub(crate) fn new(module: &Module<'_>, options: &Options) -> Self {
        let source = module.get_source_file_name().to_string_lossy().into_owned();
        // Debug information has absolute paths; the module's name is as the command line had it.
        let here = std::env::current_dir().unwrap_or_default();
        let source = normal(&here.join(source));
        let folder = || source.parent().map(PathBuf::from).unwrap_or_default();
        let root = options.root.as_ref().map(|root| normal(&here.join(root)));
        let root = root.unwrap_or_else(folder);
        Self {
            main: shown(&source, &root),
            here,
            root,
            entries: Vec::new(),
            count: 0,
            strings: Strings::default(),
            ordinals: HashMap::new(),
        }
    }

    /// Adds a site in a function, `frames` being where it stands, innermost first, or nothing where
    /// that is not known. What comes back is what an event of it holds in its first half.
    pub(crate) fn add(
        &mut self,
        kind: Kind,
        function: &str,
        mut frames: Vec<Frame>,
        bytes: u8,
    ) -> Result<u32, Failure> {
        if self.count as usize == MOST {
            return Err(format!("more than {MOST} sites in {}", self.main).into());
        }
        // Debug information of optimised code leaves mangled names out.
        if let Some(outermost) = frames.last_mut() {
            function.clone_into(&mut outermost.function);
        }
        // An atomic stands where the program calls it, not inside CUDA's headers.
        while frames.len() > 1 && frames.first().is_some_and(|frame| is_toolkit(&frame.path)) {
            frames.remove(0);
        }
        let place = self.place(kind, function, &frames);
        let ordinal = self.ordinals.entry(place.clone()).or_default();
        let key = key(&place, *ordinal);
        let this = *ordinal;
        *ordinal = ordinal.saturating_add(1);
        self.write(&place, key, this, bytes);
        self.count += 1;
        Ok((self.count - 1) | (kind as u32) << NVABI_TRACE_KIND_SHIFT)
    }

    fn place(&self, kind: Kind, function: &str, frames: &[Frame]) -> SiteIdentity {
        let Some((inner, outer)) = frames.split_first() else {
            let (file, function) = (self.main.clone(), without_unit(function));
            return SiteIdentity {
                kind,
                file,
                function,
                inlined: String::new(),
                line: 0,
                column: 0,
            };
        };
        let call = |frame: &Frame| {
            let (file, function) = (shown(&frame.path, &self.root), self.name(frame));
            format!("{file}:{}:{}:{function}", frame.line, frame.column)
        };
        SiteIdentity {
            kind,
            file: shown(&inner.path, &self.root),
            function: self.name(inner),
            inlined: outer.iter().map(call).collect::<Vec<_>>().join(";"),
            line: inner.line,
            column: inner.column,
        }
    }

    fn name(&self, frame: &Frame) -> String {
        plain_name(&frame.function, &self.here, &self.root)
    }

    fn write(&mut self, place: &SiteIdentity, key: u64, ordinal: u16, bytes: u8) {
        let name = debug::demangled(&place.function);
        let [file, function, inlined] =
            [&place.file, &name, &place.inlined].map(|text| self.strings.offset(text));
        let (line, column, kind) = (place.line, place.column, place.kind as u8);
        let site = Site { key, file, function, inlined, line, column, ordinal, kind, bytes };
        self.entries.extend(site.as_bytes());
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The whole table.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let strings = self.strings.bytes.len() as u32;
        let head = records::Sites { first: 0, count: self.count, strings, flags: 0 };
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend(&self.entries);
        bytes.extend(&self.strings.bytes);
        bytes
    }
}

struct Strings {
    bytes: Vec<u8>,
    offsets: HashMap<String, u32>,
}

impl Default for Strings {
    fn default() -> Self {
        Self { bytes: vec![0], offsets: HashMap::from([(String::new(), 0)]) }
    }
}

impl Strings {
    fn offset(&mut self, text: &str) -> u32 {
        if let Some(offset) = self.offsets.get(text) {
            return *offset;
        }
        let offset = self.bytes.len() as u32;
        self.bytes.extend(text.replace('\0', " ").bytes());
        self.bytes.push(0);
        self.offsets.insert(text.to_owned(), offset);
        offset
    }
}

/// FNV-1a over everything that tells the site from others, with zero bytes between texts.
fn key(place: &SiteIdentity, ordinal: u16) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    for text in [&place.file, &place.function, &place.inlined] {
        add(text.as_bytes());
        add(&[0]);
    }
    for number in [place.line, place.column, place.kind as u32, u32::from(ordinal)] {
        add(&number.to_le_bytes());
    }
    hash
}
