//! A target that names files and memory for its attacher to read: links to others' files, pipes and
//! devices that block, pages that never arrive.
