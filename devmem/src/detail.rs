//! What a use asks for besides its operation, and an image besides its size and format.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use super::capability::VENDOR_BASE;

/// One thing that is asked for: a rotation, or what a vendor defines. A device that does not know it does not offer
/// anything.
///
/// As text, and in JSON: `rotate-90+reflect-x`, or `0x10de:3(1, 2)` for words of a vendor, as capabilities are shown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Detail {
    /// Whose it is: [`VENDOR_BASE`], or PCI's number.
    pub vendor: u32,
    /// Which of the vendor's.
    pub name: u16,
    /// What the vendor says about it.
    pub payload: Vec<u32>,
}

/// How an image is turned, the bits of [`Detail::transform`]; the numbers are DRM's (`DRM_MODE_ROTATE_0`…), and
/// so is their order: it is mirrored first, then turned against the clock.
pub mod transform {
    /// As it is.
    pub const ROTATE_0: u32 = 1;
    /// A quarter.
    pub const ROTATE_90: u32 = 1 << 1;
    /// A half.
    pub const ROTATE_180: u32 = 1 << 2;
    /// Three quarters.
    pub const ROTATE_270: u32 = 1 << 3;
    /// Left and right change places.
    pub const REFLECT_X: u32 = 1 << 4;
    /// Top and bottom change places.
    pub const REFLECT_Y: u32 = 1 << 5;
}

/// Words of a transform, by bit.
const WORDS: [&str; 6] =
    ["rotate-0", "rotate-90", "rotate-180", "rotate-270", "reflect-x", "reflect-y"];
/// The bits that say how far it is turned.
const ROTATIONS: u32 = 0xf;

impl Detail {
    pub(crate) const TRANSFORM: u16 = 0;

    /// A turned or mirrored image: bits of [`transform`]. Where none says how far it is turned, it is not.
    pub fn transform(bits: u32) -> Self {
        let turned = if bits & ROTATIONS == 0 { transform::ROTATE_0 } else { 0 };
        Self { vendor: VENDOR_BASE, name: Self::TRANSFORM, payload: vec![bits | turned] }
    }

    /// What a vendor defines.
    pub fn vendor(vendor: u32, name: u16, payload: Vec<u32>) -> Self {
        Self { vendor, name, payload }
    }

    /// The bits of a transform; `None` where it is none, such as one that is turned in two ways.
    pub fn as_transform(&self) -> Option<u32> {
        let is_one = |bits: u32| bits >> WORDS.len() == 0 && (bits & ROTATIONS).is_power_of_two();
        match (self.vendor, self.name, self.payload.as_slice()) {
            (VENDOR_BASE, Self::TRANSFORM, [bits]) if is_one(*bits) => Some(*bits),
            _ => None,
        }
    }

    /// A transform that does not say how far an image is turned does not turn it.
    fn turn(&mut self) {
        if let (VENDOR_BASE, Self::TRANSFORM, [bits]) =
            (self.vendor, self.name, self.payload.as_mut_slice())
        {
            if *bits & ROTATIONS == 0 {
                *bits |= transform::ROTATE_0;
            }
        }
    }

    /// Whether it asks for nothing: an image as it is.
    pub fn is_plain(&self) -> bool {
        self.as_transform() == Some(transform::ROTATE_0)
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(bits) = self.as_transform() {
            let words = WORDS.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
            let words: Vec<&str> = words.map(|(_, word)| *word).collect();
            return f.write_str(&words.join("+"));
        }
        let words: Vec<String> = self.payload.iter().map(u32::to_string).collect();
        write!(f, "{:#x}:{}({})", self.vendor, self.name, words.join(", "))
    }
}

impl FromStr for Detail {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(detail) = of_vendor(text) {
            return Ok(detail);
        }
        let bit = |word: &str| {
            let bit = WORDS.iter().position(|known| *known == word);
            let known = WORDS.join(", ");
            bit.map(|bit| 1 << bit).ok_or_else(|| {
                format!(
                    "`{word}` is no detail: {known}, or VENDOR:NAME(WORD, …) such as 0x10de:3(1, 2)"
                )
            })
        };
        let bits =
            text.split('+').try_fold(0, |bits, word| Ok::<u32, String>(bits | bit(word)?))?;
        match (bits & ROTATIONS).count_ones() > 1 {
            true => Err(format!("`{text}` turns an image in two ways")),
            false => Ok(Self::transform(bits)),
        }
    }
}

/// A list of details has one way to be written: each once and in order, without what asks for nothing.
///
/// # Errors
///
/// When an image is to be turned in two ways.
pub(crate) fn list(mut details: Vec<Detail>) -> Result<Vec<Detail>, String> {
    details.iter_mut().for_each(Detail::turn);
    details.retain(|detail| !detail.is_plain());
    details.sort_unstable();
    details.dedup();
    let mut turns = details.iter().filter(|detail| detail.as_transform().is_some());
    match (turns.next(), turns.next()) {
        (Some(one), Some(other)) => Err(format!("`{one}` and `{other}` turn an image in two ways")),
        _ => Ok(details),
    }
}

/// The same of what is read.
pub(crate) fn read_list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Detail>, D::Error> {
    list(Vec::deserialize(from)?).map_err(serde::de::Error::custom)
}

/// `0x10de:3(1, 2)`.
fn of_vendor(text: &str) -> Option<Detail> {
    let (vendor, rest) = text.split_once(':')?;
    let vendor = u32::from_str_radix(vendor.strip_prefix("0x")?, 16).ok()?;
    let (name, words) = rest.strip_suffix(')')?.split_once('(')?;
    let words = words.split(',').map(str::trim).filter(|word| !word.is_empty());
    let payload = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let detail = Detail::vendor(vendor, name.parse().ok()?, payload);
    // A transform has one way to be written.
    detail.as_transform().is_none().then_some(detail)
}

impl From<Detail> for String {
    fn from(detail: Detail) -> Self {
        detail.to_string()
    }
}

impl TryFrom<String> for Detail {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Operation, Use};

    #[test]
    fn text_and_details_are_one_to_one() {
        for (text, detail) in [
            ("rotate-90", Detail::transform(transform::ROTATE_90)),
            ("rotate-0+reflect-x", Detail::transform(transform::REFLECT_X)),
            (
                "rotate-180+reflect-y",
                Detail::transform(transform::ROTATE_180 | transform::REFLECT_Y),
            ),
            ("0x10de:3(1, 2)", Detail::vendor(0x10de, 3, vec![1, 2])),
            ("0x10de:3()", Detail::vendor(0x10de, 3, Vec::new())),
        ] {
            assert_eq!((detail.to_string().as_str(), text.parse()), (text, Ok(detail)), "{text}");
        }
        assert_eq!("reflect-x".parse(), Ok(Detail::transform(transform::REFLECT_X)));
        assert!(Detail::transform(0).is_plain());
        assert!(!Detail::transform(transform::REFLECT_Y).is_plain());
    }

    #[test]
    fn what_is_no_detail_is_told() {
        let told = |text: &str| text.parse::<Detail>().unwrap_err();
        assert!(told("rotate-45").starts_with("`rotate-45` is no detail: rotate-0, rotate-90"));
        assert_eq!(
            told("rotate-90+rotate-180"),
            "`rotate-90+rotate-180` turns an image in two ways"
        );
        assert_eq!(Detail::vendor(VENDOR_BASE, 0, vec![2 | 4]).as_transform(), None);
        let mirrored = Detail::vendor(VENDOR_BASE, 0, vec![transform::REFLECT_X]);
        assert_eq!(list(vec![mirrored]), Ok(vec![Detail::transform(transform::REFLECT_X)]));
        for text in ["0x10de:3(x)", "0x10de:70000(1)", "10de:3(1)", "0x0:0(2)", ""] {
            assert!(told(text).contains("is no detail"), "{text}");
        }
    }

    #[test]
    fn a_use_has_details_behind_its_operation() {
        let turned = Use::new("drm:card0", Operation::Scanout)
            .with(Detail::transform(transform::ROTATE_90 | transform::REFLECT_X));
        let text = "drm:card0:scanout+rotate-90+reflect-x";
        assert_eq!((turned.to_string().as_str(), text.parse()), (text, Ok(turned)));
        let both = Use::new("gpu", Operation::Texture)
            .with(Detail::transform(transform::ROTATE_180))
            .with(Detail::vendor(0x10de, 3, vec![1]));
        let text = "gpu:texture+rotate-180+0x10de:3(1)";
        assert_eq!((both.to_string().as_str(), text.parse()), (text, Ok(both.clone())));
        // Another order is the same use, and what asks for nothing is left out.
        let other = "gpu:texture+0x10de:3(1)+rotate-180+0x10de:3(1)";
        assert_eq!(other.parse(), Ok(both.clone()));
        let read = |details: &str| {
            let use_ =
                format!(r#"{{"device": "gpu", "operation": "texture", "details": [{details}]}}"#);
            serde_json::from_str::<Use>(&use_).map_err(|error| error.to_string())
        };
        assert_eq!(read(r#""0x10de:3(1)", "rotate-180""#), Ok(both));
        assert_eq!(read(r#""rotate-0""#), Ok(Use::new("gpu", Operation::Texture)));
        let told = read(r#""rotate-90", "reflect-x""#).unwrap_err();
        let two = "`rotate-90` and `rotate-0+reflect-x` turn an image in two ways";
        assert!(told.starts_with(two), "{told}");
        // The same of an image.
        let usage = r#"{"image": {"width": 8, "height": 8, "format": "P030"}, "uses": [],
                        "details": ["rotate-180", "rotate-90"]}"#;
        let told = serde_json::from_str::<crate::Usage>(usage).unwrap_err().to_string();
        assert!(told.contains("turn an image in two ways"), "{told}");
        // A device's name may hold a plus.
        assert_eq!("a+b:copy".parse(), Ok(Use::new("a+b", Operation::Copy)));
        assert!(
            "gpu:texture+rotate-45"
                .parse::<Use>()
                .unwrap_err()
                .contains("`rotate-45` is no detail")
        );
        assert!(
            "gpu:paint+rotate-90".parse::<Use>().unwrap_err().contains("`paint` is no operation")
        );
    }
}
