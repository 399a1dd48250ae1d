//! A packed request body, unpacked before it is read and forwarded (SPEC §9, §10; RFC 9110 §8.4).
//!
//! What is forwarded is always plain: the gateway may have to rewrite it, and most backends take nothing else. The
//! unpacking is bounded by `http.max_body`, like a body that comes plain, and done beside the cores: a small packed body
//! may be a large plain one. Not read is `deflate`, which some write without the frame that RFC 9110 §8.4.1.2 has it in, and
//! what is coded twice.

use super::{Denied, Exchange};
use crate::http1::Role;
use crate::rt;
use crate::usage::Coding;
use crate::usage::unpack::{NotWhole, whole};

impl Exchange<'_> {
    /// The body as it is meant.
    pub(super) async fn unpacked(&self, body: Vec<u8>) -> Result<Vec<u8>, Denied> {
        let mut codings = self.client.head.values(Role::ContentEncoding).map(|value| Coding::of(Some(value)));
        match (codings.next().unwrap_or(Coding::Identity), codings.next()) {
            (Coding::Identity, None) => Ok(body),
            (coding @ (Coding::Gzip | Coding::Brotli | Coding::Zstd), None) => {
                let most = self.http.max_body;
                let work = move || whole(coding, &body, usize::try_from(most).unwrap_or(usize::MAX));
                rt::offload(&self.core.shared.offload, work).await.map_err(|not_whole| match not_whole {
                    NotWhole::TooLarge => Denied::BodyTooLarge(most),
                    NotWhole::Broken => Denied::BrokenCoding,
                })
            }
            _ => Err(Denied::UnknownCoding),
        }
    }
}
