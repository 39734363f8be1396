//! The bytes of one `ioctl`, checked against the schema.
//!
//! The checks, their order and their error numbers are those of the kernel's
//! `drivers/infiniband/core/uverbs_ioctl.c`. Every input is copied before anything is done, since
//! programs give inputs and outputs the same memory.

use crate::memory::{load, store};
use crate::schema::{Access, Attr, Class, DRIVER, Kind, Method, Object, UHW_IN};
use crate::{Driver, Errno, Refusal, UserMemory};

/// The request number of the one `ioctl`: `RDMA_VERBS_IOCTL`.
pub const VERBS_IOCTL: u64 = 0xc018_1b01;
/// Bytes of the header: length, object, method and number of attributes (16 bits each), a reserved
/// 64-bit word, the driver's number, and a reserved 32-bit word.
pub const HEADER_BYTES: usize = 24;
/// A list of attributes, with its header, is at most so long.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of an attribute: number, length, flags, a reserved word (16 bits each), and 64 bits of
/// data or an address.
pub(crate) const ATTR_BYTES: usize = 16;

const MANDATORY: u16 = 1;
const VALID_OUTPUT: u16 = 2;

/// An attribute as the program wrote it.
#[derive(Clone, Copy, Debug)]
struct Raw {
    id: u16,
    len: u16,
    flags: u16,
    reserved: u16,
    data: u64,
    /// Where it lies.
    at: u64,
}

impl Raw {
    fn parse(bytes: &[u8], at: u64) -> Self {
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let data = u64::from_ne_bytes(std::array::from_fn(|i| bytes[8 + i]));
        Self { id: half(0), len: half(2), flags: half(4), reserved: half(6), data, at }
    }
}

/// Value of an attribute, its inputs copied.
#[derive(Clone, Debug)]
enum Value {
    In(Vec<u8>),
    Out(Raw),
    Object(Raw),
}

/// One call: its method, and what it was given for each attribute that the method has.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) object: &'static Object,
    pub(crate) method: &'static Method,
    attrs: &'static [Attr],
    values: Vec<Option<Value>>,
    answers: Vec<(usize, Vec<u8>)>,
    made: Vec<(Class, u32)>,
}

fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_ne_bytes(word)
}

/// The method that a header names, and how many attributes follow.
fn header(
    memory: &impl UserMemory,
    at: u64,
    own: Driver,
) -> Result<(&'static Object, u16, usize), Refusal> {
    let bytes = load(memory, at, HEADER_BYTES, "header")?;
    let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let (length, object, method, attrs) = (half(0), half(2), half(4), half(6));
    let want = HEADER_BYTES + usize::from(attrs) * ATTR_BYTES;
    if usize::from(length) > PAGE_BYTES || usize::from(length) != want {
        let why = format!("{attrs} attributes take {want} bytes, the header says {length}");
        return Err(Refusal::invalid(why));
    }
    if number(&bytes[8..16]) != 0 || number(&bytes[20..24]) != 0 {
        return Err(Refusal::new(Errno::EPROTONOSUPPORT, "reserved words of the header are set"));
    }
    let driver = number(&bytes[16..20]) as u32;
    if driver != own.number() {
        let (name, expected) = (own.name(), own.number());
        return Err(Refusal::invalid(format!(
            "driver {driver}, expected that of {name}, {expected}"
        )));
    }
    // Those of drivers are mlx5's.
    let is_common = object < DRIVER && method < DRIVER;
    let Some(object) = Object::find(object).filter(|_| is_common || own == Driver::Mlx5) else {
        let why = format!("there is no object {object:#x} (method {method:#x})");
        return Err(Refusal::new(Errno::EPROTONOSUPPORT, why));
    };
    Ok((object, method, usize::from(attrs)))
}

impl Call {
    /// Reads and checks the list of attributes at `at`. `check` looks up an object that the call
    /// names; `own` is the driver that it is for.
    pub(crate) fn decode(
        memory: &impl UserMemory,
        at: u64,
        own: Driver,
        check: impl Fn(Class, Access, u64) -> Result<(), Refusal>,
    ) -> Result<Self, Refusal> {
        let (object, id, count) = header(memory, at, own)?;
        let unknown = |what: &'static str| Refusal::new(Errno::EPROTONOSUPPORT, what);
        let Some(method) = object.method(id) else {
            return Err(unknown("there is no such method").of(format!("{}.{id:#x}", object.name)));
        };
        let name = || object.call(method);
        let Some(attrs) = method.attrs else {
            return Err(unknown("this method is not modelled").of(name()));
        };
        let (values, answers, made) = (vec![None; attrs.len()], Vec::new(), Vec::new());
        let mut call = Self { object, method, attrs, values, answers, made };
        let first = at.wrapping_add(HEADER_BYTES as u64);
        let bytes =
            load(memory, first, count * ATTR_BYTES, "attributes").map_err(|e| e.of(name()))?;
        for (i, bytes) in bytes.chunks_exact(ATTR_BYTES).enumerate() {
            let raw = Raw::parse(bytes, first.wrapping_add((i * ATTR_BYTES) as u64));
            call.take(memory, raw, &check).map_err(|refusal| refusal.of(name()))?;
        }
        for (attr, value) in attrs.iter().zip(&call.values) {
            if attr.mandatory && value.is_none() {
                return Err(Refusal::invalid(format!("{} is missing", attr.name)).of(name()));
            }
        }
        Ok(call)
    }

    /// Its name, as `QP.CREATE`.
    pub(crate) fn name(&self) -> String {
        self.object.call(self.method)
    }

    fn take(
        &mut self,
        memory: &impl UserMemory,
        raw: Raw,
        check: &impl Fn(Class, Access, u64) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let Some(i) = self.attrs.iter().position(|attr| attr.id == raw.id) else {
            if raw.flags & MANDATORY == 0 {
                return Ok(());
            }
            let why = format!("there is no attribute {:#x}, and it is mandatory", raw.id);
            return Err(Refusal::new(Errno::EPROTONOSUPPORT, why));
        };
        let attr = &self.attrs[i];
        let refuse = |why: &str| Refusal::invalid(format!("{}: {why}", attr.name));
        if self.values[i].is_some() {
            return Err(refuse("given twice"));
        }
        let value = match attr.kind {
            Kind::In { min, max, grows } => {
                Value::In(read_input(memory, attr, raw, (min, max, grows))?)
            }
            Kind::Out { min, max, grows } => {
                if raw.len < min || (raw.len > max && !grows) {
                    let why = format!("a buffer of {} bytes, expected {min} to {max}", raw.len);
                    return Err(refuse(&why));
                }
                Value::Out(raw)
            }
            Kind::Object(class, access) => {
                if raw.len != 0 {
                    return Err(refuse("a handle has no length"));
                }
                check(class, access, raw.data).map_err(|refusal| Refusal {
                    why: format!("{}: {}", attr.name, refusal.why).into(),
                    ..refusal
                })?;
                Value::Object(raw)
            }
            Kind::Descriptor => {
                if raw.len != 0 || i32::try_from(raw.data.cast_signed()).is_err() {
                    let (len, data) = (raw.len, raw.data);
                    let why = format!("{len} bytes, {data:#x}, expected a descriptor in place");
                    return Err(refuse(&why));
                }
                Value::In(raw.data.to_ne_bytes().to_vec())
            }
        };
        if raw.reserved != 0 {
            return Err(refuse("a reserved word is set"));
        }
        self.values[i] = Some(value);
        Ok(())
    }

    fn value(&self, id: u16) -> Option<&Value> {
        let i = self.attrs.iter().position(|attr| attr.id == id)?;
        self.values[i].as_ref()
    }

    /// The bytes of an input.
    pub(crate) fn bytes(&self, id: u16) -> Option<&[u8]> {
        match self.value(id)? {
            Value::In(bytes) => Some(bytes),
            Value::Out(_) | Value::Object(_) => None,
        }
    }

    /// Input for the driver, if it has at least `min` bytes.
    pub(crate) fn driver_input(&self, min: usize) -> Result<&[u8], Refusal> {
        let bytes = self.bytes(UHW_IN).unwrap_or(&[]);
        if bytes.len() < min {
            let why = format!("{} bytes for the driver, expected at least {min}", bytes.len());
            return Err(Refusal::invalid(why));
        }
        Ok(bytes)
    }

    /// An input of at most 64 bits; 0 if it was not given.
    pub(crate) fn number(&self, id: u16) -> u64 {
        self.bytes(id).map_or(0, number)
    }

    /// An input of at most 32 bits; 0 if it was not given.
    pub(crate) fn word(&self, id: u16) -> u32 {
        self.number(id) as u32
    }

    /// A descriptor of the program, if it was given.
    pub(crate) fn descriptor(&self, id: u16) -> Option<i32> {
        self.bytes(id).map(|bytes| number(bytes) as i32)
    }

    /// Flags, none if they were not given; `allowed` are those that are understood.
    pub(crate) fn flags(&self, id: u16, allowed: u64) -> Result<u64, Refusal> {
        let bytes = self.bytes(id).unwrap_or(&[]);
        let flags = number(bytes);
        match bytes.len() {
            0 | 4 | 8 if flags & !allowed == 0 => Ok(flags),
            0 | 4 | 8 => {
                Err(Refusal::invalid(format!("flags {:#x} are unknown", flags & !allowed)))
            }
            len => Err(Refusal::invalid(format!("flags of {len} bytes, expected 4 or 8"))),
        }
    }

    /// The handle or descriptor of an object that the call names.
    pub(crate) fn handle(&self, id: u16) -> Option<u32> {
        match self.value(id)? {
            Value::Object(raw) => Some(raw.data as u32),
            Value::In(_) | Value::Out(_) => None,
        }
    }

    /// How many bytes the program takes for an output; `None` if it does not ask for it.
    pub(crate) fn room(&self, id: u16) -> Option<usize> {
        match self.value(id)? {
            Value::Out(raw) => Some(usize::from(raw.len)),
            Value::In(_) | Value::Object(_) => None,
        }
    }

    /// Answers an output, or the handle of a new object, if it was asked for.
    pub(crate) fn answer(&mut self, id: u16, bytes: impl Into<Vec<u8>>) {
        if let Some(i) = self.attrs.iter().position(|attr| attr.id == id) {
            self.answers.push((i, bytes.into()));
        }
    }

    /// The call has made an object.
    pub(crate) fn note_made(&mut self, class: Class, name: u32) {
        self.made.push((class, name));
    }

    /// The objects that the call has made.
    pub(crate) fn made(&self) -> impl Iterator<Item = (Class, u32)> {
        self.made.iter().copied()
    }

    /// Writes the answers.
    pub(crate) fn finish(&self, memory: &impl UserMemory) -> Result<(), Refusal> {
        for (i, bytes) in &self.answers {
            let attr = &self.attrs[*i];
            match (&self.values[*i], attr.kind) {
                (Some(Value::Out(raw)), Kind::Out { grows, .. }) => {
                    let mut bytes = bytes.clone();
                    if grows || bytes.len() > usize::from(raw.len) {
                        bytes.resize(usize::from(raw.len), 0);
                    }
                    store(memory, raw.data, &bytes, attr.name)?;
                    let flags = (raw.flags | VALID_OUTPUT).to_ne_bytes();
                    store(memory, raw.at.wrapping_add(4), &flags, attr.name)?;
                }
                (Some(Value::Object(raw)), _) => {
                    let mut word = [0; 8];
                    word[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
                    store(memory, raw.at.wrapping_add(8), &word, attr.name)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn read_input(
    memory: &impl UserMemory,
    attr: &Attr,
    raw: Raw,
    (min, max, grows): (u16, u16, bool),
) -> Result<Vec<u8>, Refusal> {
    let len = usize::from(raw.len);
    if raw.len < min || (raw.len > max && !grows) {
        let why = format!("{}: {len} bytes, expected {min} to {max}", attr.name);
        return Err(Refusal::invalid(why));
    }
    let mut bytes = match len {
        0..=8 => raw.data.to_ne_bytes()[..len].to_vec(),
        _ => load(memory, raw.data, len, attr.name)?,
    };
    if let Some(rest) = bytes.get(usize::from(max)..)
        && rest.iter().any(|byte| *byte != 0)
    {
        let why = format!("{}: bytes beyond the {max} that are understood are set", attr.name);
        return Err(Refusal::unsupported(why));
    }
    bytes.truncate(usize::from(max));
    Ok(bytes)
}
