//! Floats of all widths, and conversions.

use nvabi_sass::{Modifier, Op as Name, Value};

use super::{Decoded, Decoder, Kind, Op, native};
use crate::lanes;
use crate::sass::compute::{floats, halves};
use crate::sass::{Compute, Function, Native, Predicate, Signs};

/// Names of roundings in PTX, of floats and to whole numbers.
const ROUNDINGS: [(Modifier, &str); 3] =
    [(Modifier::RM, "rm"), (Modifier::RP, "rp"), (Modifier::RZ, "rz")];
const WHOLE: [(Modifier, &str); 3] =
    [(Modifier::FLOOR, "rmi"), (Modifier::CEIL, "rpi"), (Modifier::TRUNC, "rzi")];

/// Integers that conversions name; without one it is s32.
const INTEGERS: [(Modifier, &str); 7] = [
    (Modifier::U8, "u8"),
    (Modifier::S8, "s8"),
    (Modifier::U16, "u16"),
    (Modifier::S16, "s16"),
    (Modifier::U32, "u32"),
    (Modifier::U64, "u64"),
    (Modifier::S64, "s64"),
];

/// Powers of two that a product is multiplied with.
const SCALES: [(Modifier, i8); 6] = [
    (Modifier::D8, -3),
    (Modifier::D4, -2),
    (Modifier::D2, -1),
    (Modifier::M2, 1),
    (Modifier::M4, 2),
    (Modifier::M8, 3),
];

impl Decoder<'_> {
    pub(super) fn floats(&self) -> Decoded<Op> {
        use Name::*;
        match self.instruction.op {
            FADD => self.single(floats::add, "add", &[1, 2]),
            FMUL => self.single(floats::multiply, "mul", &[1, 2]),
            FFMA => self.single(floats::fused, "fma", &[1, 2, 3]),
            FMNMX => self.chosen(floats::least_or_most),
            FSEL => self.chosen(floats::select),
            FSETP => {
                let mut compute = self.comparison(floats::compare, &[2, 3], Kind::Single)?;
                compute.modes.flush = self.has(Modifier::FTZ);
                compute.predicates[0] = self.predicate(4)?;
                Ok(compute.into())
            }
            FSET => {
                let mut compute = self.compute(floats::set, 0, &[1, 2], Kind::Single)?;
                compute.modes.compare = self.relation();
                compute.modes.combine = self.combination();
                compute.modes.flush = self.has(Modifier::FTZ);
                compute.predicates[0] = self.predicate(3)?;
                Ok(compute.into())
            }
            FCHK => {
                let mut compute =
                    self.predicates_only(floats::check_division, &[1, 2], Kind::Single)?;
                compute.outcomes[0] = self.outcome(0)?;
                Ok(compute.into())
            }
            MUFU => self.special_function(),
            DADD | DMUL | DFMA => self.double(),
            DSETP => self.compare_doubles(),
            I2F | I2FP => self.of_integer(),
            F2I => self.to_integer(),
            F2F => self.between(),
            FRND => self.round(),
            F2FP => self.pack(),
            F2IP => self.pack_integers(),
            FSWZADD => self.add_with_signs(),
            HADD2 | HMUL2 | HFMA2 | HMNMX2 => self.two_halves(),
            HSET2 | HSETP2 => self.compare_halves(),
            _ => Err("it is decoded, but not run".to_owned()),
        }
    }

    fn flush(&self) -> &'static str {
        if self.has(Modifier::FTZ) { ".ftz" } else { "" }
    }

    fn rounding(&self) -> Option<&'static str> {
        self.choose(&ROUNDINGS)
    }

    fn single(&self, f: Native, name: &str, from: &[usize]) -> Decoded<Op> {
        if self.has(Modifier::FMZ) {
            return Err("FMZ is not computed here".to_owned());
        }
        if let Some(power) = self.choose(&SCALES) {
            if self.rounding().is_some() {
                return Err("a scaled product is only rounded to nearest here".to_owned());
            }
            let mut compute = self.compute(floats::multiply_scaled, 0, from, Kind::Single)?;
            compute.modes.flush = self.has(Modifier::FTZ);
            compute.modes.saturate = self.has(Modifier::SAT);
            compute.modes.power = power;
            return Ok(compute.into());
        }
        if let Some(rounding) = self.rounding() {
            let sat = if self.has(Modifier::SAT) { ".sat" } else { "" };
            let text = format!("{name}.{rounding}{}{sat}.f32", self.flush());
            return Ok(self.shared(&text, 0, from, Kind::Single)?.into());
        }
        let mut compute = self.compute(f, 0, from, Kind::Single)?;
        compute.modes.flush = self.has(Modifier::FTZ);
        compute.modes.saturate = self.has(Modifier::SAT);
        Ok(compute.into())
    }

    /// That lanes of four run together (NDV) is for the hardware to know.
    fn add_with_signs(&self) -> Decoded<Op> {
        let Value::Signs(bits) = self.operand(3)?.value else {
            return Err("it has no signs".to_owned());
        };
        let all = [Signs::None, Signs::Second, Signs::First, Signs::SecondAlone];
        let signs = [6, 4, 2, 0].map(|at| all[usize::from(bits >> at & 3)]);
        let rounding = self.rounding().unwrap_or("rn");
        let (add, _) = super::function(&format!("add.{rounding}{}.f32", self.flush()))?;
        let from = [self.source(1, Kind::Single)?, self.source(2, Kind::Single)?];
        Ok(Op::AddWithSigns { to: self.register(0)?, from, signs, add })
    }

    fn chosen(&self, f: Native) -> Decoded<Op> {
        if self.has(Modifier::XORSIGN) {
            return self.chosen_with_signs("f32", Kind::Single);
        }
        let mut compute = self.compute(f, 0, &[1, 2], Kind::Single)?;
        compute.modes.flush = self.has(Modifier::FTZ);
        compute.modes.propagate_nan = self.has(Modifier::NAN);
        compute.predicates[0] = self.predicate(3)?;
        Ok(compute.into())
    }

    /// The least or most of two without signs, with both signs.
    fn chosen_with_signs(&self, kind: &str, bits: Kind) -> Decoded<Op> {
        let name = self.least_or_most_name(3)?;
        let nan = if self.has(Modifier::NAN) { ".NaN" } else { "" };
        let text = format!("{name}{}{nan}.xorsign.abs.{kind}", self.flush());
        let mut compute = self.shared(&text, 0, &[1, 2], bits)?;
        for (source, at) in compute.sources.iter_mut().zip([1, 2]) {
            let operand = self.operand(at)?;
            if !operand.absolute || operand.negated {
                return Err("signs of sources that keep theirs".to_owned());
            }
            source.low_bits = super::Bits::SAME;
        }
        Ok(compute.into())
    }

    fn least_or_most_name(&self, at: usize) -> Decoded<&'static str> {
        match self.predicate(at)? {
            Predicate { number: super::TRUE, negated: false, .. } => Ok("min"),
            Predicate { number: super::TRUE, negated: true, .. } => Ok("max"),
            _ => Err("the choice of a predicate is not computed here".to_owned()),
        }
    }

    fn special_function(&self) -> Decoded<Op> {
        let short = [(Modifier::F16, ("f16", "")), (Modifier::BF16, ("bf16", ".ftz"))];
        if let Some((kind, ftz)) = self.choose(&short) {
            let name = match () {
                () if self.has(Modifier::EX2) => format!("ex2.approx{ftz}.{kind}"),
                () if self.has(Modifier::TANH) => format!("tanh.approx.{kind}"),
                () => return Err("this function of 16 bits is not computed here".to_owned()),
            };
            return Ok(self.shared(&name, 0, &[1], Kind::Halves)?.into());
        }
        let mut compute = self.compute(floats::special, 0, &[1], Kind::Single)?;
        let name = self.instruction.modifiers.iter().find_map(|modifier| {
            let name = format!("{modifier:?}");
            floats::SPECIAL.iter().position(|known| *known == name)
        });
        compute.modes.number = name.ok_or("its function is not known")? as u8;
        Ok(compute.into())
    }

    fn double(&self) -> Decoded<Op> {
        let (name, from): (_, &[usize]) = match self.instruction.op {
            Name::DADD => ("add", &[1, 2]),
            Name::DMUL => ("mul", &[1, 2]),
            _ => ("fma", &[1, 2, 3]),
        };
        let rounding = self.rounding().unwrap_or("rn");
        Ok(self.shared(&format!("{name}.{rounding}.f64"), 0, from, Kind::Double)?.into())
    }

    fn compare_doubles(&self) -> Decoded<Op> {
        let (least, most) = (self.has(Modifier::MIN), self.has(Modifier::MAX));
        let f = if least || most { floats::choose_double } else { floats::compare_double };
        let mut compute = self.comparison(f, &[2, 3], Kind::Double)?;
        compute.modes.high = most;
        compute.predicates[0] = self.predicate(4)?;
        Ok(compute.into())
    }

    /// A computation of PTX between types of these widths.
    fn convert(&self, text: &str, from: usize, long: [bool; 2], kind: Kind) -> Decoded<Compute> {
        let kind = match (kind, long[1]) {
            (Kind::Integer, true) => Kind::Long,
            (Kind::Single, true) => Kind::Double,
            (kind, _) => kind,
        };
        let mut compute = self.shared(text, 0, &[from], kind)?;
        compute.wide = long[0];
        Ok(compute)
    }

    fn of_integer(&self) -> Decoded<Op> {
        let from = self.choose(&INTEGERS).unwrap_or("s32");
        let kinds = [(Modifier::F16, "f16"), (Modifier::BF16, "bf16"), (Modifier::F64, "f64")];
        let to = self.choose(&kinds).unwrap_or("f32");
        let text = format!("cvt.{}.{to}.{from}", self.rounding().unwrap_or("rn"));
        let long = [to == "f64", from.ends_with("64")];
        Ok(self.convert(&text, 1, long, Kind::Integer)?.into())
    }

    fn to_integer(&self) -> Decoded<Op> {
        let to = self.choose(&INTEGERS).unwrap_or("s32");
        let from = self.choose(&[(Modifier::F16, "f16"), (Modifier::F64, "f64")]).unwrap_or("f32");
        let rounding = self.choose(&WHOLE).unwrap_or("rni");
        let text = format!("cvt.{rounding}{}.{to}.{from}", self.flush_of(from));
        let kind = if from == "f16" { Kind::Halves } else { Kind::Single };
        let mut compute = self.convert(&text, 1, [to.ends_with("64"), from == "f64"], kind)?;
        let nan_is_top = !self.has(Modifier::NTZ);
        let f = lanes::float_to_integer(&text, nan_is_top).ok_or("its types are not known")?;
        compute.f = Function::Lanes(f, 1);
        Ok(compute.into())
    }

    /// Only floats of 32 bits have it in PTX.
    fn flush_of(&self, kind: &str) -> &'static str {
        if kind == "f32" { self.flush() } else { "" }
    }

    /// From the second type that is named to the first.
    fn between(&self) -> Decoded<Op> {
        let name = |modifier: &Modifier| match modifier {
            Modifier::F16 => Some("f16"),
            Modifier::BF16 => Some("bf16"),
            Modifier::F32 => Some("f32"),
            Modifier::F64 => Some("f64"),
            _ => None,
        };
        let names: Vec<&str> = self.instruction.modifiers.iter().filter_map(name).collect();
        let [to, from] = names[..] else { return Err("its types are not known".to_owned()) };
        let widens = to > from;
        let rounding = if widens {
            ""
        } else {
            self.rounding().map_or(".rn", |name| match name {
                "rm" => ".rm",
                "rp" => ".rp",
                _ => ".rz",
            })
        };
        let flush = if from == "f32" || to == "f32" { self.flush() } else { "" };
        let text = format!("cvt{rounding}{flush}.{to}.{from}");
        let kind = if from == "f16" { Kind::Halves } else { Kind::Single };
        Ok(self.convert(&text, 1, [to == "f64", from == "f64"], kind)?.into())
    }

    fn round(&self) -> Decoded<Op> {
        let kind = self.choose(&[(Modifier::F16, "f16"), (Modifier::F64, "f64")]).unwrap_or("f32");
        let rounding = self.choose(&WHOLE).unwrap_or("rni");
        let text = format!("cvt.{rounding}{}.{kind}.{kind}", self.flush_of(kind));
        let from = if kind == "f16" { Kind::Halves } else { Kind::Single };
        Ok(self.convert(&text, 1, [kind == "f64"; 2], from)?.into())
    }

    fn pack(&self) -> Decoded<Op> {
        let relu = if self.has(Modifier::RELU) { ".relu" } else { "" };
        let rounding = self.rounding().unwrap_or("rn");
        if self.has(Modifier::TF32) {
            let text = format!("cvt.{rounding}{relu}.tf32.f32");
            return Ok(self.shared(&text, 0, &[2], Kind::Single)?.into());
        }
        let merges = self.has(Modifier::MERGE_C) && self.is_zero(3)?;
        if !merges && !self.has(Modifier::PACK_AB) || self.has(Modifier::SATFINITE) {
            return Err(
                "only numbers of 16 bits are packed here, of two or of one and zero".to_owned()
            );
        }
        let to = if self.has(Modifier::BF16) { "bf16" } else { "f16" };
        let text = format!("cvt.{rounding}{relu}.{to}");
        Ok(match merges {
            true => self.shared(&format!("{text}.f32"), 0, &[2], Kind::Single)?.into(),
            false => self.shared(&format!("{text}x2.f32"), 0, &[1, 2], Kind::Single)?.into(),
        })
    }

    /// A byte, where nothing else is packed with it.
    fn pack_integers(&self) -> Decoded<Op> {
        let plain = self.has(Modifier::U8) && !self.has(Modifier::RELU);
        if !plain || !self.is_zero(1)? || !self.is_zero(3)? {
            return Err("only one byte without a sign is packed here".to_owned());
        }
        let nan_is_top = !self.has(Modifier::NTZ);
        let mut compute = self.compute(native::copy, 0, &[2], Kind::Single)?;
        let rounding = self.choose(&WHOLE).unwrap_or("rni");
        let f = lanes::float_to_integer(&format!("cvt.{rounding}.u8.f32"), nan_is_top);
        compute.f = Function::Lanes(f.ok_or("its types are not known")?, 1);
        Ok(compute.into())
    }

    fn is_zero(&self, at: usize) -> Decoded<bool> {
        Ok(self.source(at, Kind::Integer)?.is_zero())
    }

    fn two_halves(&self) -> Decoded<Op> {
        for (modifier, name) in [(Modifier::FMZ, "FMZ"), (Modifier::OOB, "OOB")] {
            if self.has(modifier) {
                return Err(format!("{name} is not computed here"));
            }
        }
        let brain = self.has(Modifier::BF16_V2);
        let kind = if brain { "bf16x2" } else { "f16x2" };
        if self.has(Modifier::XORSIGN) {
            return self.chosen_with_signs(kind, Kind::Halves);
        }
        let (mut name, from): (String, &[usize]) = match self.instruction.op {
            Name::HADD2 => ("add".to_owned(), &[1, 2]),
            Name::HMUL2 => ("mul".to_owned(), &[1, 2]),
            Name::HFMA2 => ("fma.rn".to_owned(), &[1, 2, 3]),
            _ => return self.least_or_most_halves(kind),
        };
        if self.has(Modifier::F32) {
            if self.instruction.op != Name::HADD2 || brain {
                return Err("a result of 32 bits is not computed here".to_owned());
            }
            let mut compute = self.compute(halves::add_to_single, 0, from, Kind::Halves)?;
            compute.modes.flush = self.has(Modifier::FTZ);
            return Ok(compute.into());
        }
        if self.has(Modifier::RELU) && self.count() > 4 && self.predicate(4)? != Predicate::TRUE {
            return Err("a clamp that depends on a predicate".to_owned());
        }
        if self.instruction.op == Name::HFMA2 && self.is_constant()? {
            return Ok(self.compute(native::copy, 0, &[3], Kind::Halves)?.into());
        }
        let flags = [(Modifier::FTZ, ".ftz"), (Modifier::SAT, ".sat"), (Modifier::RELU, ".relu")];
        for (modifier, text) in flags {
            if self.has(modifier) {
                name.push_str(text);
            }
        }
        Ok(self.shared(&format!("{name}.{kind}"), 0, from, Kind::Halves)?.into())
    }

    /// Whether it only moves its third source: nothing times nothing, and -0 leaves a sum as it is.
    fn is_constant(&self) -> Decoded<bool> {
        let (a, b) = (self.operand(1)?, self.operand(2)?);
        let zero = nvabi_sass::Value::Register(super::ZERO);
        Ok(a.value == zero && b.value == zero && a.negated != b.negated)
    }

    fn least_or_most_halves(&self, kind: &str) -> Decoded<Op> {
        let name = self.least_or_most_name(3)?;
        let nan = if self.has(Modifier::NAN) { ".NaN" } else { "" };
        let text = format!("{name}{}{nan}.{kind}", self.flush());
        Ok(self.shared(&text, 0, &[1, 2], Kind::Halves)?.into())
    }

    fn compare_halves(&self) -> Decoded<Op> {
        let sets = self.instruction.op == Name::HSET2;
        let mut compute = if sets {
            let mut compute = self.compute(halves::set, 0, &[1, 2], Kind::Halves)?;
            compute.modes.compare = self.relation();
            compute.modes.combine = self.combination();
            compute.predicates[0] = self.predicate(3)?;
            compute
        } else {
            let mut compute = self.comparison(halves::compare, &[2, 3], Kind::Halves)?;
            compute.predicates[0] = self.predicate(4)?;
            compute
        };
        compute.modes.flush = self.has(Modifier::FTZ);
        compute.modes.wide = self.has(Modifier::BF16_V2);
        compute.modes.high = self.has(Modifier::H_AND);
        compute.modes.left = self.has(Modifier::BF);
        Ok(compute.into())
    }
}
