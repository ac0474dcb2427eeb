//! The spool and the messages next to it.

use midair_record::connect::{
    ConnectProof, ConnectReply, ConnectRequest, SECRET_LEN, TEXT_LEN, Token, outcome, purpose,
};
use midair_record::event::decode;
use midair_record::offer::{Offer, Reply};
use midair_record::spool::{Reader, ReaderOptions};
use std::convert::Infallible;

/// Reads a run of records.
pub fn records(bytes: &[u8]) {
    let mut rest = bytes;
    let mut count = 0;
    while let Ok((record, size)) = decode(rest) {
        assert!(size >= 8 && size <= rest.len() && size.is_multiple_of(8));
        super::used(record);
        rest = &rest[size..];
        count += 1;
    }
    assert!(count <= bytes.len() / 8);
}

/// Reads a whole spool, of which the target may write every byte. `bytes` are laid over its head
/// and over each of its chunks.
pub fn spool(bytes: &[u8]) {
    let options = ReaderOptions {
        size: 1,
        settings: Vec::new(),
        drain_ms: 1,
        lease_ms: 1,
        session: 1,
    };
    let mut reader = Reader::create(&options).unwrap_or_else(|error| panic!("a spool: {error}"));
    let (base, size) = reader.mapping();
    let piece = (size / 3) & !0xfff;
    for at in [0, piece, 2 * piece] {
        let len = bytes.len().min(size - at);
        // SAFETY: the destination lies within the mapping, which no other process has and which
        // does not overlap `bytes`. The reader holds no reference to it at this moment.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.add(at), len) };
    }
    super::used((reader.message(), reader.dropped(), reader.size()));
    for _ in 0..3 {
        let mut taken = 0;
        let Ok(total) = reader.drain(|run| {
            taken += run.len();
            records(run);
            Ok::<(), Infallible>(())
        });
        assert_eq!(total, taken);
        assert!(taken <= size, "more than there is room for");
    }
}

/// Reads the offer, and the answer to it.
pub fn offer(bytes: &[u8]) {
    super::used(Reply::read(bytes));
    for accepted in [true, false] {
        assert_eq!(
            Reply::read(&bytes_of(&Reply::new(accepted))),
            Some(accepted)
        );
    }
    let mut words = [0_u64; size_of::<Offer>().div_ceil(8)];
    for (word, piece) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut raw = [0; 8];
        raw.copy_from_slice(piece);
        *word = u64::from_le_bytes(raw);
    }
    // SAFETY: `words` has the size and the alignment of an Offer, and an Offer consists of
    // integers, so any bytes are valid.
    let offer = unsafe { &*words.as_ptr().cast::<Offer>() };
    super::used((offer.is_ours(), offer.bytes().len()));
}

fn bytes_of(reply: &Reply) -> Vec<u8> {
    // SAFETY: a Reply consists of two integers without padding, so all its bytes are initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(reply).cast(), size_of::<Reply>()) }
        .to_vec()
}

/// Reads what a listener and an attacher send each other before a session.
pub fn connect_request(bytes: &[u8]) {
    if let Some(request) = ConnectRequest::read(bytes) {
        assert_eq!(request.bytes().as_slice(), bytes);
    }
    if let Some(answer) = ConnectReply::read(bytes) {
        assert_eq!(ConnectReply::read(answer.bytes()), Some(answer));
        assert!(answer.message().len() <= TEXT_LEN);
        super::used(answer);
    }
    if let Some(proof) = ConnectProof::read(bytes) {
        assert_eq!(proof.bytes().as_slice(), bytes);
    }
    if let Some(memory) = bytes.first_chunk()
        && let Some(token) = Token::read(memory)
    {
        assert_eq!(token.bytes(), *memory);
    }
}

/// Returns a valid proof.
pub fn a_proof() -> Vec<u8> {
    let secret = [7; SECRET_LEN];
    let token = Token { secret };
    ConnectProof { token }.bytes().to_vec()
}

/// Returns a valid connect request.
pub fn a_connect_request() -> Vec<u8> {
    ConnectRequest::new(purpose::ATTACH).bytes().to_vec()
}

/// Returns a valid answer.
pub fn an_answer() -> Vec<u8> {
    let mut answer = ConnectReply::new(outcome::FAILED);
    answer.set_message(b"no such file");
    answer.bytes().to_vec()
}
