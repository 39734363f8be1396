//! Calls that wait for other ranks, and what they say when those do not come.

use super::{Client, ClientError, all_prefixed};
use crate::Deadline;
use crate::protocol::{Opcode, ReplyError, Request, read};

/// Checks that are under way at once when looking for what is missing.
const BATCH: usize = 256;

impl Client {
    /// Waits until all `keys` are there. If they are not by `deadline`, the error names those that
    /// are missing and the connection remains of use.
    pub fn wait(&mut self, keys: &[&str], deadline: Deadline) -> Result<(), ClientError> {
        let full = all_prefixed(keys);
        let request = Request::Wait { keys: full.iter().map(String::as_bytes).collect() };
        if self.wait_for(&request, deadline)? {
            return Ok(());
        }
        let waited = deadline.waited();
        let present = self.present(keys)?;
        let missing = keys.iter().zip(present).filter(|(_, present)| !present);
        let missing: Vec<_> = missing.map(|(key, _)| (*key).to_owned()).collect();
        if missing.is_empty() {
            // The last one came while we were looking.
            return Ok(());
        }
        Err(ClientError::Missing { call: Opcode::Wait, missing, total: keys.len(), waited })
    }

    /// Which of `keys` are there.
    pub fn present(&mut self, keys: &[&str]) -> Result<Vec<bool>, ClientError> {
        let deadline = Deadline::after(self.grace);
        let mut present = Vec::with_capacity(keys.len());
        for batch in all_prefixed(keys).chunks(BATCH) {
            let mut bytes = Vec::new();
            for key in batch {
                bytes.extend(self.encode(&Request::Check { keys: vec![key.as_bytes()] })?);
            }
            let answers = self.exchange(Opcode::Check, &bytes, deadline, |from| {
                batch.iter().map(|_| Ok(read::flag(from)? == 0)).collect::<Result<Vec<_>, _>>()
            })?;
            present.extend(answers);
        }
        Ok(present)
    }

    /// Whether the reply came before the deadline. If it did not, the wait is cancelled and the
    /// connection in step again.
    fn wait_for<B: AsRef<[u8]>>(
        &mut self,
        request: &Request<B>,
        deadline: Deadline,
    ) -> Result<bool, ClientError> {
        match self.ask_until(request, deadline, |from| read::flag(from)) {
            Ok(read::ARRIVED) => return Ok(true),
            Ok(got) => return self.out_of_step(request.opcode(), got),
            Err(ClientError::Silent { .. }) => {}
            Err(error) => return Err(error),
        }
        // A single byte was awaited and none has come, so the ends are still in step, unless the
        // request did not leave as a whole; then the store does not understand the cancellation.
        self.broken = false;
        let grace = Deadline::after(self.grace);
        let cancel = Request::<&[u8]>::CancelWait;
        match self.ask_until(&cancel, grace, |from| read::flag(from))? {
            read::CANCELLED => Ok(false),
            // It arrived at the last moment; the cancellation is answered all the same.
            _ => match self.exchange(Opcode::CancelWait, &[], grace, |from| read::flag(from))? {
                read::CANCELLED => Ok(true),
                got => self.out_of_step(Opcode::CancelWait, got),
            },
        }
    }

    fn out_of_step<T>(&mut self, call: Opcode, got: u8) -> Result<T, ClientError> {
        self.broken = true;
        let cause = ReplyError::Unexpected { got };
        Err(ClientError::Protocol { call, peer: self.peer, cause })
    }
}
