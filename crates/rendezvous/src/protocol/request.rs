//! Requests as values.

use super::Opcode;

/// A request. `B` holds a key or a value: owned where it was parsed, borrowed where it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by what they are; the opcodes say the rest")]
pub enum Request<B = Vec<u8>> {
    /// [`Opcode::Validate`], without reply.
    Validate { magic: u32 },
    /// [`Opcode::Set`], without reply.
    Set { key: B, value: B },
    /// [`Opcode::CompareSet`]; the reply is the value that holds afterwards, or `expected` where
    /// there is no such key and `expected` is not empty.
    CompareSet { key: B, expected: B, desired: B },
    /// [`Opcode::Get`]; the reply is the value, empty where there is none.
    Get { key: B },
    /// [`Opcode::Add`]; the reply is the sum.
    Add { key: B, delta: i64 },
    /// [`Opcode::Check`]; the reply is 0 if all are there.
    Check { keys: Vec<B> },
    /// [`Opcode::Wait`]; the reply comes when all are there.
    Wait { keys: Vec<B> },
    /// [`Opcode::KeyCount`]; the reply is a number.
    KeyCount,
    /// [`Opcode::Delete`]; the reply is how many were removed.
    Delete { key: B },
    /// [`Opcode::Append`], without reply.
    Append { key: B, value: B },
    /// [`Opcode::MultiGet`]; the reply is as many values, without a count.
    MultiGet { keys: Vec<B> },
    /// [`Opcode::MultiSet`], without reply.
    MultiSet { pairs: Vec<(B, B)> },
    /// [`Opcode::CancelWait`]; the reply says so, also if nothing was waited for.
    CancelWait,
    /// [`Opcode::Ping`]; the reply is the nonce.
    Ping { nonce: u32 },
}

impl<B: AsRef<[u8]>> Request<B> {
    /// The opcode.
    pub fn opcode(&self) -> Opcode {
        match self {
            Request::Validate { .. } => Opcode::Validate,
            Request::Set { .. } => Opcode::Set,
            Request::CompareSet { .. } => Opcode::CompareSet,
            Request::Get { .. } => Opcode::Get,
            Request::Add { .. } => Opcode::Add,
            Request::Check { .. } => Opcode::Check,
            Request::Wait { .. } => Opcode::Wait,
            Request::KeyCount => Opcode::KeyCount,
            Request::Delete { .. } => Opcode::Delete,
            Request::Append { .. } => Opcode::Append,
            Request::MultiGet { .. } => Opcode::MultiGet,
            Request::MultiSet { .. } => Opcode::MultiSet,
            Request::CancelWait => Opcode::CancelWait,
            Request::Ping { .. } => Opcode::Ping,
        }
    }

    /// The fields after the opcode, in order.
    pub(crate) fn fields(&self) -> Vec<Field<'_>> {
        match self {
            Request::Validate { magic: word } | Request::Ping { nonce: word } => {
                vec![Field::Word(*word)]
            }
            Request::Set { key, value } | Request::Append { key, value } => {
                vec![Field::Key(key.as_ref()), Field::Value(value.as_ref())]
            }
            Request::CompareSet { key, expected, desired } => {
                let values = [expected, desired].map(|value| Field::Value(value.as_ref()));
                std::iter::once(Field::Key(key.as_ref())).chain(values).collect()
            }
            Request::Get { key } | Request::Delete { key } => vec![Field::Key(key.as_ref())],
            Request::Add { key, delta } => vec![Field::Key(key.as_ref()), Field::Number(*delta)],
            Request::Check { keys } | Request::Wait { keys } | Request::MultiGet { keys } => {
                let keys = keys.iter().map(|key| Field::Key(key.as_ref()));
                std::iter::once(Field::Count(keys.len())).chain(keys).collect()
            }
            Request::MultiSet { pairs } => {
                let strings = pairs.iter().flat_map(|(key, value)| {
                    [Field::Key(key.as_ref()), Field::Value(value.as_ref())]
                });
                std::iter::once(Field::Count(pairs.len())).chain(strings).collect()
            }
            Request::KeyCount | Request::CancelWait => Vec::new(),
        }
    }

    /// Appends the request's bytes to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.push(self.opcode().byte());
        for field in self.fields() {
            match field {
                Field::Word(word) => out.extend_from_slice(&word.to_le_bytes()),
                Field::Number(number) => out.extend_from_slice(&number.to_le_bytes()),
                Field::Count(count) => emit_len(out, count),
                Field::Key(bytes) | Field::Value(bytes) => emit_bytes(out, &bytes),
            }
        }
    }
}

/// A field of a request.
pub(crate) enum Field<'a> {
    Word(u32),
    Number(i64),
    /// Of keys, or of pairs.
    Count(usize),
    Key(&'a [u8]),
    Value(&'a [u8]),
}

fn emit_len(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&(len as u64).to_le_bytes());
}

pub(super) fn emit_bytes(out: &mut Vec<u8>, bytes: &impl AsRef<[u8]>) {
    emit_len(out, bytes.as_ref().len());
    out.extend_from_slice(bytes.as_ref());
}
