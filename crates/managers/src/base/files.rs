//! Which file a mapping has behind it, and what its region is called in results.

use std::collections::BTreeMap;

use trace::FileId;
use vm::FileKey;

/// Of files that the trace knows by their path only.
const BY_PATH: u64 = u64::MAX;
/// Of segments of shared memory that it knows by their number only.
const BY_SEGMENT: u64 = u64::MAX - 1;
/// Names that get counts of their own; the others are counted together.
const NAMES_MAX: usize = 256;

/// Files and names by number.
#[derive(Default)]
pub(super) struct Files {
    paths: BTreeMap<String, u64>,
    names: Vec<String>,
    labels: BTreeMap<String, u32>,
}

impl Files {
    /// The file of a mapping, if the trace says which.
    pub(super) fn key(&mut self, file: Option<&FileId>, path: Option<&str>) -> Option<FileKey> {
        match (file, path) {
            (Some(file), _) => Some(FileKey { device: file.device, inode: file.inode }),
            (None, Some(path)) => {
                let next = self.paths.len() as u64;
                let inode = *self.paths.entry(path.to_owned()).or_insert(next);
                Some(FileKey { device: BY_PATH, inode })
            }
            (None, None) => None,
        }
    }

    /// A segment of shared memory.
    pub(super) fn segment(&mut self, file: Option<&FileId>, id: i32) -> FileKey {
        let by_number = FileKey { device: BY_SEGMENT, inode: u64::from(id as u32) };
        self.key(file, None).unwrap_or(by_number)
    }

    /// The number of regions called `name`.
    pub(super) fn label(&mut self, name: &str) -> u32 {
        let name = name.rsplit('/').next().unwrap_or(name);
        if let Some(&label) = self.labels.get(name) {
            return label;
        }
        let label = self.names.len().min(NAMES_MAX) as u32;
        if self.names.len() <= NAMES_MAX {
            let full = self.names.len() == NAMES_MAX;
            self.names.push(if full { "others".to_owned() } else { name.to_owned() });
            self.labels.insert(self.names[label as usize].clone(), label);
        }
        label
    }

    /// What regions of this number are called.
    pub(super) fn name(&self, label: u32) -> String {
        self.names.get(label as usize).cloned().unwrap_or_default()
    }
}
