//! Generic netlink: one request, its answers, and what the kernel says of a refusal.

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable as _, NLM_F_ACK, NLM_F_REQUEST, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable, Nla as _, NlaBuffer,
    NlasIterator, Parseable as _,
};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};
use std::io;
use thiserror::Error;

/// A request did not succeed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// The netlink socket failed.
    #[error("{call} on a netlink socket failed")]
    Socket {
        /// The call.
        call: &'static str,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The kernel has no such family of commands.
    #[error("this kernel has no generic netlink family {family:?}")]
    NoFamily {
        /// Its name.
        family: &'static str,
    },
    /// The kernel's answer is malformed, or lacks something.
    #[error("the kernel's answer cannot be understood: {what}")]
    Malformed {
        /// The fault in it.
        what: String,
    },
    /// The kernel refused.
    #[error("{}", refused(*errno, message))]
    Refused {
        /// The kernel's error number.
        errno: i32,
        /// Its explanation, if it gave one.
        message: Option<String>,
    },
}

fn refused(errno: i32, message: &Option<String>) -> String {
    let system = io::Error::from_raw_os_error(errno);
    match message {
        Some(message) => format!("{message} ({system})"),
        None => system.to_string(),
    }
}

impl From<DecodeError> for NetlinkError {
    fn from(error: DecodeError) -> Self {
        Self::Malformed { what: error.to_string() }
    }
}

/// The payload of a generic netlink message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Generic {
    pub(crate) family: u16,
    pub(crate) command: u8,
    pub(crate) attributes: Vec<DefaultNla>,
}

/// Command, version and 16 reserved bits.
const HEADER: usize = 4;

impl NetlinkSerializable for Generic {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        HEADER + self.attributes.as_slice().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..HEADER].copy_from_slice(&[self.command, 1, 0, 0]);
        self.attributes.as_slice().emit(&mut buffer[HEADER..]);
    }
}

impl From<Generic> for NetlinkPayload<Generic> {
    fn from(message: Generic) -> Self {
        Self::InnerMessage(message)
    }
}

impl NetlinkDeserializable for Generic {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let Some((start, rest)) = payload.split_first_chunk::<HEADER>() else {
            return Err("a generic netlink message without its header".into());
        };
        let attributes = attributes(rest)?;
        Ok(Self { family: header.message_type, command: start[0], attributes })
    }
}

/// The attributes in some bytes.
pub(crate) fn attributes(bytes: &[u8]) -> Result<Vec<DefaultNla>, DecodeError> {
    NlasIterator::new(bytes)
        .map(|next| DefaultNla::parse(&NlaBuffer::new(next?.into_inner())))
        .collect()
}

/// The bytes of an attribute.
pub(crate) fn value(attribute: &DefaultNla) -> Vec<u8> {
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    bytes
}

/// The bytes of the attribute of this kind.
pub(crate) fn find(attributes: &[DefaultNla], kind: u16) -> Option<Vec<u8>> {
    const TYPE: u16 = 0x3fff;
    attributes.iter().find(|attribute| attribute.kind() & TYPE == kind).map(value)
}

/// The attribute of this kind, as a number of 32 bits or less, in the byte order of the machine.
pub(crate) fn find_number(attributes: &[DefaultNla], kind: u16) -> Option<u32> {
    match find(attributes, kind)?.as_slice() {
        [byte] => Some((*byte).into()),
        bytes @ [_, _] => Some(u16::from_ne_bytes(bytes.try_into().ok()?).into()),
        bytes => Some(u32::from_ne_bytes(bytes.try_into().ok()?)),
    }
}

/// An attribute that is a number of 32 bits.
pub(crate) fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

/// An attribute that is a list of attributes.
pub(crate) fn nested(kind: u16, inner: &[DefaultNla]) -> DefaultNla {
    const NESTED: u16 = 0x8000;
    let mut bytes = vec![0; inner.buffer_len()];
    inner.emit(&mut bytes);
    DefaultNla::new(kind | NESTED, bytes)
}

/// A netlink socket and the number of one family.
pub(crate) struct Netlink {
    socket: Socket,
    family: u16,
    /// Commands of the family that the kernel has.
    commands: Vec<u32>,
    sequence: u32,
}

/// The family that knows all families.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const FAMILY_OPS: u16 = 6;
const OP_ID: u16 = 1;

impl Netlink {
    /// Opens a socket, and looks up the family of this name.
    pub(crate) fn open(family: &'static str) -> Result<Self, NetlinkError> {
        let fail = |call| move |cause| NetlinkError::Socket { call, cause };
        let mut socket = Socket::new(NETLINK_GENERIC).map_err(fail("socket"))?;
        socket.bind_auto().map_err(fail("bind"))?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(fail("connect"))?;
        // Refusals explain themselves, without repeating the request.
        socket.set_ext_ack(true).map_err(fail("setsockopt(NETLINK_EXT_ACK)"))?;
        socket.set_cap_ack(true).map_err(fail("setsockopt(NETLINK_CAP_ACK)"))?;
        let mut netlink = Self { socket, family: CONTROL, commands: Vec::new(), sequence: 0 };
        let name = DefaultNla::new(FAMILY_NAME, [family.as_bytes(), &[0]].concat());
        let answers = match netlink.request(GET_FAMILY, vec![name]) {
            Err(NetlinkError::Refused { errno: libc::ENOENT, .. }) => {
                return Err(NetlinkError::NoFamily { family });
            }
            answers => answers?,
        };
        let found = answers.first().map(|answer| answer.attributes.as_slice()).unwrap_or_default();
        let id = find_number(found, FAMILY_ID).and_then(|id| u16::try_from(id).ok());
        netlink.family = id.ok_or(NetlinkError::NoFamily { family })?;
        if let Some(list) = find(found, FAMILY_OPS) {
            for op in attributes(&list)? {
                netlink.commands.extend(find_number(&attributes(&value(&op))?, OP_ID));
            }
        }
        Ok(netlink)
    }

    /// Whether the kernel has a command.
    pub(crate) fn has(&self, command: u8) -> bool {
        self.commands.contains(&command.into())
    }

    /// Makes a request; all answers up to the acknowledgement. The kernel answers within the call
    /// that sends, so nothing waits.
    pub(crate) fn request(
        &mut self,
        command: u8,
        attributes: Vec<DefaultNla>,
    ) -> Result<Vec<Generic>, NetlinkError> {
        self.sequence += 1;
        let payload = Generic { family: self.family, command, attributes };
        let mut message = NetlinkMessage::from(payload);
        message.header.flags = NLM_F_REQUEST | NLM_F_ACK;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        let fail = |call| move |cause| NetlinkError::Socket { call, cause };
        self.socket.send(&bytes, 0).map_err(fail("send"))?;
        let mut answers = Vec::new();
        loop {
            let mut received = Vec::with_capacity(1 << 16);
            self.socket.recv(&mut received, libc::MSG_DONTWAIT).map_err(fail("recv"))?;
            if self.take(&received, &mut answers)? {
                return Ok(answers);
            }
        }
    }

    /// Appends the answers in one datagram. Whether the acknowledgement is among them.
    fn take(&self, mut bytes: &[u8], answers: &mut Vec<Generic>) -> Result<bool, NetlinkError> {
        while !bytes.is_empty() {
            let message = NetlinkMessage::<Generic>::deserialize(bytes)?;
            let len = (message.header.length as usize).next_multiple_of(4).max(4);
            bytes = bytes.get(len..).unwrap_or_default();
            if message.header.sequence_number != self.sequence {
                continue;
            }
            match message.payload {
                NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) => match error.code {
                    None => return Ok(true),
                    Some(code) => {
                        let message = explanation(&error.header);
                        return Err(NetlinkError::Refused { errno: -code.get(), message });
                    }
                },
                _ => {}
            }
        }
        Ok(false)
    }
}

/// `NLMSGERR_ATTR_MSG` behind the header of the request.
fn explanation(header: &[u8]) -> Option<String> {
    const REQUEST: usize = 16;
    const MESSAGE: u16 = 1;
    let text = find(&attributes(header.get(REQUEST..)?).ok()?, MESSAGE)?;
    let text = String::from_utf8_lossy(&text);
    Some(text.trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_being_bytes() {
        let inner = [number(1, 7), number(3, 0)];
        let list = vec![number(1, 42), nested(2, &inner), DefaultNla::new(5, b"abc".to_vec())];
        let payload = Generic { family: 99, command: 13, attributes: list };
        let mut message = NetlinkMessage::from(payload.clone());
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        let back = NetlinkMessage::<Generic>::deserialize(&bytes).unwrap();
        let NetlinkPayload::InnerMessage(back) = back.payload else { panic!("{back:?}") };
        assert_eq!(back, payload);
        assert_eq!(find_number(&back.attributes, 1), Some(42));
        let list = attributes(&find(&back.attributes, 2).unwrap()).unwrap();
        assert_eq!(find_number(&list, 1), Some(7));
        // Cut anywhere, it is refused and nothing else happens.
        for len in 0..bytes.len() {
            assert!(NetlinkMessage::<Generic>::deserialize(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn numbers_have_the_byte_order_of_the_machine_and_one_of_three_lengths() {
        let with = |bytes: &[u8]| find_number(&[DefaultNla::new(4, bytes.to_vec())], 4);
        assert_eq!(with(&[7]), Some(7));
        assert_eq!(with(&0x0102u16.to_ne_bytes()), Some(0x0102));
        assert_eq!(with(&0x0102_0304u32.to_ne_bytes()), Some(0x0102_0304));
        for len in [0, 3, 5, 8] {
            assert_eq!(with(&vec![1; len]), None, "{len} bytes");
        }
    }

    #[test]
    fn an_explanation_is_found_behind_the_request() {
        let mut header = vec![0; 16];
        let text = DefaultNla::new(1, b"tcp-data-split is disabled\0".to_vec());
        let list = [number(2, 20), text];
        let mut tail = vec![0; list.as_slice().buffer_len()];
        list.as_slice().emit(&mut tail);
        header.extend(tail);
        assert_eq!(explanation(&header).as_deref(), Some("tcp-data-split is disabled"));
        assert_eq!(explanation(&header[..16]), None);
        assert_eq!(explanation(&[]), None);
    }
}
