//! Where files go.

use super::kept::Kept;
use crate::s3::Bucket;
use std::path::PathBuf;
use std::sync::Arc;

/// A directory, or a bucket and the files that wait for it.
#[derive(Debug)]
pub(crate) enum To {
    Directory(PathBuf),
    Bucket(Arc<(Bucket, Kept)>),
}
