//! An instruction as text, as LLVM's disassembler has it.
use crate::code::{ACC, BUFFER, LITERAL, OFF, VCC, VECTOR};
use crate::decode::is_scalar;
use crate::inst::{Encoding, Inst, Kind, Run};
use crate::target::Target;
use crate::wave::FLOATS;
use std::fmt::{self, Display, Formatter, Write};

impl Display for Inst {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let operands = match self.op.run {
            Run::Memory(_) | Run::Ds(..) => self.access(),
            Run::ScalarLoad(words) => self.scalar_load(words),
            Run::Caches(_) => String::new(),
            _ if self.encoding == Encoding::Sopp => self.program(),
            _ => self.operands(),
        };
        f.write_str(&self.name())?;
        if !operands.is_empty() {
            write!(f, " {operands}")?;
        }
        match self.op.run {
            Run::Memory(_) | Run::Caches(_) => self.caches(f),
            _ => Ok(()),
        }
    }
}

fn registers(prefix: char, first: u16, words: u16) -> String {
    match words {
        0 | 1 => format!("{prefix}{first}"),
        _ => format!("{prefix}[{first}:{}]", first + words - 1),
    }
}

/// A source or destination of so many registers.
fn operand(inst: &Inst, code: u16, words: u16) -> String {
    let pair = |name: &str| match (words, code & 1) {
        (2, _) => name.to_owned(),
        (_, 0) => format!("{name}_lo"),
        _ => format!("{name}_hi"),
    };
    match code {
        0..=101 => registers('s', code, words),
        102 | 103 => pair("flat_scratch"),
        104 | 105 => pair("xnack_mask"),
        106 | 107 => pair("vcc"),
        108..=123 => registers('t', code - 108, words).replace('t', "ttmp"),
        124 => "m0".into(),
        126 | 127 => pair("exec"),
        128..=192 => (code - 128).to_string(),
        193..=208 => (192 - i32::from(code)).to_string(),
        235 => "src_shared_base".into(),
        236 => "src_shared_limit".into(),
        237 => "src_private_base".into(),
        238 => "src_private_limit".into(),
        240..=248 => format!("{:?}", FLOATS[usize::from(code - 240)] as f32),
        251 => "src_vccz".into(),
        252 => "src_execz".into(),
        253 => "src_scc".into(),
        // LLVM prints it like a constant that needs no literal.
        LITERAL if words < 2 && (-16..=64).contains(&(inst.literal as i32)) => {
            (inst.literal as i32).to_string()
        }
        LITERAL if inst.literal <= 64 => inst.literal.to_string(),
        LITERAL => format!("{:#x}", inst.literal),
        ACC.. => registers('a', code - ACC, words),
        VECTOR.. => registers('v', code - VECTOR, words),
        _ => format!("?{code}"),
    }
}

fn select(part: u8) -> &'static str {
    ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"][usize::from(part)]
}

impl Inst {
    fn name(&self) -> String {
        const ONE_FORM: [&str; 7] = [
            "v_swap_b32",
            "v_readfirstlane_b32",
            "v_accvgpr_mov_b32",
            "v_fmamk_f32",
            "v_fmaak_f32",
            "v_madmk_f32",
            "v_madak_f32",
        ];
        let short = matches!(self.op.encoding, Encoding::Vop1 | Encoding::Vop2 | Encoding::Vopc);
        match self.op.encoding {
            Encoding::Flat => {
                let segment = ["flat", "scratch", "global", "buffer"][usize::from(self.segment)];
                format!("{segment}_{}", self.op.name)
            }
            _ if !short || ONE_FORM.contains(&self.op.name) => self.op.name.into(),
            _ if self.sdwa.is_some() => format!("{}_sdwa", self.op.name),
            _ if self.encoding == Encoding::Vop3 => format!("{}_e64", self.op.name),
            _ => format!("{}_e32", self.op.name),
        }
    }

    fn caches(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let names = match (self.target, self.op.run) {
            (Target::Gfx942, _) => [" sc0", " nt", " sc1"],
            (Target::Gfx90a, Run::Caches(_)) => [""; 3],
            (Target::Gfx90a, _) => [" glc", " slc", " scc"],
        };
        for (set, name) in [self.sc0, self.nt, self.sc1].into_iter().zip(names) {
            if set {
                f.write_str(name)?;
            }
        }
        Ok(())
    }

    fn offset(&self, text: &mut String) {
        if self.offset != 0 {
            let _ = write!(text, " offset:{}", self.offset);
        }
    }

    /// FLAT, MUBUF and DS.
    fn access(&self) -> String {
        let registers = self.registers().into_iter().filter(|(_, words)| *words > 0);
        let names = registers.map(|(code, words)| match code {
            OFF => "off".into(),
            _ => operand(self, code, words),
        });
        let mut text = names.collect::<Vec<_>>().join(", ");
        match self.op.run {
            Run::Ds(_, 1..) => {
                for (index, offset) in
                    [self.offset & 0xff, self.offset >> 8].into_iter().enumerate()
                {
                    if offset != 0 {
                        let _ = write!(text, " offset{index}:{offset}");
                    }
                }
                return text;
            }
            _ if self.segment == BUFFER && self.src[0] != OFF => text.push_str(" offen"),
            _ => {}
        }
        self.offset(&mut text);
        text
    }

    fn scalar_load(&self, words: u16) -> String {
        let (dst, base) = (operand(self, self.dst, words), operand(self, self.src[0], 2));
        match self.segment {
            0 if self.offset < 0 => format!("{dst}, {base}, -{:#x}", -self.offset),
            0 => format!("{dst}, {base}, {:#x}", self.offset),
            1 => format!("{dst}, {base}, {}", operand(self, self.src[1], 1)),
            _ => format!(
                "{dst}, {base}, {} offset:{:#x}",
                operand(self, self.src[1], 1),
                self.offset
            ),
        }
    }

    /// SOPP: one immediate, or none.
    fn program(&self) -> String {
        let value = self.offset as u16;
        match self.op.name {
            "s_endpgm" | "s_barrier" | "s_icache_inv" => String::new(),
            "s_waitcnt" => {
                let (vm, exp, lgkm) =
                    (value & 15 | value >> 10 & 0x30, value >> 4 & 7, value >> 8 & 15);
                let counts = [("vmcnt", vm, 63), ("expcnt", exp, 7), ("lgkmcnt", lgkm, 15)];
                let none = counts.iter().all(|(_, count, all)| count == all);
                let waits = counts.into_iter().filter(|(_, count, all)| none || count != all);
                waits
                    .map(|(name, count, _)| format!("{name}({count})"))
                    .collect::<Vec<_>>()
                    .join(" ")
            }
            _ => value.to_string(),
        }
    }

    fn operands(&self) -> String {
        let (op, mut parts) = (self.op, Vec::new());
        if op.dst != Kind::None {
            parts.push(operand(self, self.dst, op.dst.words()));
        }
        if op.flag && !is_scalar(self) {
            parts.push(operand(self, if self.mask == OFF { VCC } else { self.mask }, 2));
        }
        for (index, &kind) in op.src.iter().enumerate() {
            match kind {
                Kind::Lane => {}
                Kind::Flag if is_scalar(self) || index > 2 => {}
                Kind::Flag if self.encoding == Encoding::Vop3 => {
                    parts.push(operand(self, self.src[2], 2))
                }
                Kind::Flag => parts.push("vcc".into()),
                // The destination, once more.
                _ if ["v_fmac_f32", "v_mac_f32"].contains(&op.name) && index == 2 => {}
                _ if self.encoding == Encoding::Sop1 && index == 1 => {}
                _ if self.encoding == Encoding::Sopk && self.src[index] == LITERAL => {
                    parts.push(format!("{:#x}", self.literal as u16));
                }
                _ if self.encoding == Encoding::Sopk && op.dst != Kind::None => {}
                _ => parts.push(self.source(index, kind)),
            }
        }
        let mut text = parts.join(", ");
        if self.encoding == Encoding::Ds {
            self.offset(&mut text);
        }
        self.modifiers(&mut text);
        text
    }

    fn source(&self, index: usize, kind: Kind) -> String {
        let mut text = operand(self, self.src[index], kind.words());
        if self.absolute >> index & 1 != 0 {
            text = format!("|{text}|");
        }
        if kind != Kind::Pair && self.negate >> index & 1 != 0 {
            text = format!("-{text}");
        }
        if self.sdwa.is_some_and(|sdwa| index < 2 && sdwa.signed[index]) {
            text = format!("sext({text})");
        }
        text
    }

    fn modifiers(&self, text: &mut String) {
        if self.clamp {
            text.push_str(" clamp");
        }
        if self.op.dst == Kind::Pair {
            let count = self.op.src.len();
            let list = |bits: u8| {
                (0..count)
                    .map(|index| (bits >> index & 1).to_string())
                    .collect::<Vec<_>>()
                    .join(",")
            };
            if self.halves[0] != 0 {
                let _ = write!(text, " op_sel:[{}]", list(self.halves[0]));
            }
            let all = (1 << count) - 1;
            if self.halves[1] & all != all {
                let _ = write!(text, " op_sel_hi:[{}]", list(self.halves[1]));
            }
            for (name, signs) in [("neg_lo", self.negate), ("neg_hi", self.negate_high)] {
                if signs != 0 {
                    let _ = write!(text, " {name}:[{}]", list(signs));
                }
            }
        }
        if let Some(sdwa) = self.sdwa {
            if self.encoding != Encoding::Vopc {
                let unused =
                    ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"][usize::from(sdwa.unused)];
                let _ = write!(text, " dst_sel:{} dst_unused:{unused}", select(sdwa.dst));
            }
            let _ = write!(text, " src0_sel:{}", select(sdwa.src[0]));
            if self.encoding != Encoding::Vop1 {
                let _ = write!(text, " src1_sel:{}", select(sdwa.src[1]));
            }
        }
    }
}
