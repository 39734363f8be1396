//! Requests out of a stream of bytes, however it is cut.

use super::opcode::Part;
use super::{Opcode, ProtocolError, Request};
use crate::Limits;

/// Meaning of the bytes in `field` once there are enough of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    Opcode,
    Word,
    Number,
    Count,
    Length(Role),
    Body(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Key,
    Value,
}

/// Turns bytes into requests. It keeps only what belongs to the message at hand, and looks at each
/// byte once.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    want: Want,
    /// Bytes of the field at hand.
    field: Vec<u8>,
    opcode: Opcode,
    /// Index of the next of the opcode's parts.
    part: usize,
    /// Strings that are still to come in the list at hand, and whether they alternate.
    left: usize,
    pairs: bool,
    items: Vec<Vec<u8>>,
    number: u64,
    /// Bytes of the message so far.
    size: usize,
}

impl Decoder {
    /// A decoder at the beginning of a message.
    pub fn new(limits: Limits) -> Decoder {
        Decoder {
            limits,
            want: Want::Opcode,
            field: Vec::new(),
            opcode: Opcode::Validate,
            part: 0,
            left: 0,
            pairs: false,
            items: Vec::new(),
            number: 0,
            size: 0,
        }
    }

    /// Bytes of the message that is under way; 0 between messages.
    pub fn held(&self) -> usize {
        self.size
    }

    /// Takes bytes off the front of `input` until a request is complete (`Some`) or `input` is
    /// empty (`None`). After an error the stream has no meaning any more.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<Option<Request>, ProtocolError> {
        loop {
            let width = match self.want {
                Want::Opcode => 1,
                Want::Word => 4,
                Want::Number | Want::Count | Want::Length(_) => 8,
                Want::Body(len) => len,
            };
            let (now, later) = input.split_at((width - self.field.len()).min(input.len()));
            self.field.extend_from_slice(now);
            self.size += now.len();
            *input = later;
            if self.field.len() < width {
                return Ok(None);
            }
            self.accept()?;
            if self.want == Want::Opcode {
                return Ok(Some(self.finish()));
            }
        }
    }

    /// Takes the field, which is complete, and decides what comes next.
    fn accept(&mut self) -> Result<(), ProtocolError> {
        match self.want {
            Want::Body(_) => self.items.push(std::mem::take(&mut self.field)),
            Want::Opcode => {
                let byte = self.field[0];
                self.opcode = Opcode::from_byte(byte).ok_or(ProtocolError::UnknownOpcode(byte))?;
            }
            Want::Word | Want::Number | Want::Count | Want::Length(_) => {
                let mut le = [0; 8];
                le[..self.field.len()].copy_from_slice(&self.field);
                self.number = u64::from_le_bytes(le);
            }
        }
        self.field.clear();
        match self.want {
            Want::Length(role) => {
                self.want = Want::Body(self.length(role)?);
                return Ok(());
            }
            Want::Count => self.left = self.count()?,
            _ => {}
        }
        self.want = self.next();
        Ok(())
    }

    fn length(&self, role: Role) -> Result<usize, ProtocolError> {
        let (opcode, size) = (self.opcode, self.number);
        let limit = match role {
            Role::Key => self.limits.key,
            Role::Value => self.limits.value,
        };
        if size > limit as u64 {
            return Err(match role {
                Role::Key => ProtocolError::KeyTooLong { opcode, size, limit },
                Role::Value => ProtocolError::ValueTooLong { opcode, size, limit },
            });
        }
        let (message, limit) = (self.size as u64 + size, self.limits.message);
        if message > limit as u64 {
            return Err(ProtocolError::MessageTooLong { opcode, size: message, limit });
        }
        // Fits, being at most a limit, which is a usize.
        Ok(size as usize)
    }

    /// How many strings the list at hand has.
    fn count(&self) -> Result<usize, ProtocolError> {
        let (opcode, count, limit) = (self.opcode, self.number, self.limits.keys_per_message);
        if count > limit as u64 {
            return Err(ProtocolError::TooManyKeys { opcode, count, limit });
        }
        Ok(count as usize * if self.pairs { 2 } else { 1 })
    }

    fn next(&mut self) -> Want {
        if self.left > 0 {
            self.left -= 1;
            // Of the strings left after this one, an odd number means that its value follows.
            let value = self.pairs && self.left.is_multiple_of(2);
            return Want::Length(if value { Role::Value } else { Role::Key });
        }
        let Some(part) = self.opcode.parts().get(self.part) else { return Want::Opcode };
        self.part += 1;
        match part {
            Part::Word => Want::Word,
            Part::Number => Want::Number,
            Part::Key => Want::Length(Role::Key),
            Part::Value => Want::Length(Role::Value),
            Part::Keys | Part::Pairs => {
                self.pairs = *part == Part::Pairs;
                Want::Count
            }
        }
    }

    fn finish(&mut self) -> Request {
        self.part = 0;
        self.size = 0;
        let keys = std::mem::take(&mut self.items);
        let mut items = keys.into_iter();
        // `parts` says how many there are; an opcode with fewer would give an empty string.
        let mut item = || items.next().unwrap_or_default();
        match self.opcode {
            Opcode::Validate => Request::Validate { magic: self.number as u32 },
            Opcode::Ping => Request::Ping { nonce: self.number as u32 },
            Opcode::Set => Request::Set { key: item(), value: item() },
            Opcode::Append => Request::Append { key: item(), value: item() },
            Opcode::CompareSet => {
                Request::CompareSet { key: item(), expected: item(), desired: item() }
            }
            Opcode::Get => Request::Get { key: item() },
            Opcode::Delete => Request::Delete { key: item() },
            Opcode::Add => Request::Add { key: item(), delta: self.number as i64 },
            Opcode::Check => Request::Check { keys: items.collect() },
            Opcode::Wait => Request::Wait { keys: items.collect() },
            Opcode::MultiGet => Request::MultiGet { keys: items.collect() },
            Opcode::MultiSet => Request::MultiSet {
                pairs: std::iter::from_fn(|| Some((items.next()?, items.next()?))).collect(),
            },
            Opcode::KeyCount => Request::KeyCount,
            Opcode::CancelWait => Request::CancelWait,
        }
    }
}
