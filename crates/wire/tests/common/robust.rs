//! Checks that must hold for any bytes at all. Also the body of the fuzz target.

use warpverbs_wire::{
    Checks, Envelope, Extension, Layout, Mtu, Opcode, Packet, ParseError, Transport, ipv4, udp,
};

/// Gives `data` to every parser.
pub(crate) fn packet(data: &[u8]) {
    let no_icrc = Checks { icrc: false, ..Checks::CONFORMING };
    for checks in
        [Checks::CONFORMING, Checks::STRICT, no_icrc, Checks { icrc: false, ..Checks::STRICT }]
    {
        if let Ok(packet) = Packet::parse(data, &checks) {
            read_back(&packet, data, &checks);
        }
    }
    for opcode in Opcode::ALL {
        if let Ok((ext, rest)) = Extension::parse(opcode.headers(), data) {
            assert_eq!(
                (ext.headers(), rest.len()),
                (opcode.headers(), data.len() - opcode.headers().len())
            );
        }
    }
    if let Ok(transport) = Transport::parse(data, &Checks::STRICT) {
        assert_eq!(transport.len(), data.len());
    }
    if let Ok((envelope, datagram)) = Envelope::parse(data) {
        sealed(&envelope, datagram);
    }
}

/// A packet that parsed says nothing that its bytes do not.
fn read_back(packet: &Packet<'_>, data: &[u8], checks: &Checks) {
    assert!(packet.to_string().contains(packet.transport.bth.opcode.name()));
    let fits = Mtu::ALL.iter().any(|mtu| packet.transport.check_payload(*mtu).is_ok());
    let mut bytes = vec![0xa5; packet.len()];
    let emitted = packet.emit(&mut bytes);
    assert_eq!(emitted.is_ok(), fits, "{emitted:?}");
    if !fits {
        return;
    }
    assert_eq!(Packet::parse(&bytes, &Checks::CONFORMING), Ok(*packet));
    if *checks == Checks::STRICT {
        // All but the UDP checksum, which is not looked at, comes back as it was.
        let mut original = data[..bytes.len()].to_vec();
        let at = packet.envelope.len() - udp::Header::LEN + 6;
        original[at..at + 2].fill(0);
        assert_eq!(bytes, original);
    }
}

/// With a right ICRC, whatever else is wrong, nobody complains about the ICRC.
fn sealed(envelope: &Envelope, datagram: &[u8]) {
    let mut datagram = datagram.to_vec();
    let open = envelope.seal(&mut datagram).and_then(|()| envelope.open(&datagram));
    match open {
        Ok(ib) => assert_eq!(envelope.open_any_id(&datagram), Ok((ib, *envelope))),
        Err(error) => assert!(matches!(error, ParseError::Truncated { .. }), "{error}"),
    }
    assert!(envelope.len() >= ipv4::Header::LEN + udp::Header::LEN);
}
